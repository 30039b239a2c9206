"""What is checked in every view: what axe-core finds serious, and controls without a name."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from ..clients.javascript import ROOT
from .chromium import Tab

AXE = ROOT / ".venv" / "node_modules" / "axe-core" / "axe.min.js"
"""The package `axe-core`, which `python3 -m tests` fetches."""
needs_axe = pytest.mark.skipif(not AXE.exists(), reason="there is no axe-core")

long = pytest.mark.long("GREENROOM_CONSOLE")
SCHEMES = ["light", pytest.param("dark", marks=long)]
"""The color schemes; without `GREENROOM_CONSOLE=long`, only some views are judged in the dark one."""

SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
"""By how much the page is wider than its window."""


async def violations(tab: Tab) -> list[dict[str, Any]]:
    """What axe-core finds in the page."""
    if not await tab.run("'axe' in window"):
        await tab.call("Runtime.evaluate", expression=await trio.Path(AXE).read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = await tab.run(
        """axe.run().then(({ violations }) => violations.flatMap(({ id, impact, nodes }) =>
            nodes.map(({ html, failureSummary }) => ({ id, impact, html, failureSummary }))))"""
    )
    return found


async def serious(tab: Tab) -> list[dict[str, Any]]:
    """What axe-core finds that is serious or worse."""
    return [one for one in await violations(tab) if one["impact"] in ("serious", "critical")]


async def unnamed(tab: Tab) -> list[str]:
    """The roles of the controls that have no name for a screen reader."""
    tree = (await tab.call("Accessibility.getFullAXTree"))["nodes"]
    controls = ("button", "link", "textbox", "searchbox", "checkbox", "combobox", "slider", "spinbutton")
    found = [(one["role"]["value"], one.get("name", {}).get("value")) for one in tree if "role" in one]
    return [role for role, name in found if role in controls and not name]
