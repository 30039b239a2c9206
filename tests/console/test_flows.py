"""The views of flows in a real Chromium: the list, a flow with its graph, and the walk of a run."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

from greenroom.gateway import Role, add_token

from ..clients.browser import needs_browser
from ..flow.definitions import flow
from .test_pages import AXE, HOSTILE, PRINTABLE, House, house, needs_axe

pytestmark = needs_browser

SHIP = flow(
    "check pick, check:late late, pick pack, pack ask, ask:approved -, ask:denied late, late -",
    check={
        "kind": "choice",
        "choice_cases": [{"action": "late", "expr": "$params.late eq true"}],
        "default_action": "default",
    },
    pick={"kind": "timer", "params": {"delay_ms": 1}},
    pack={"kind": "subflow", "subflow": flow("wrap label", wrap={"kind": "timer", "params": {"delay_ms": 1}}, label={"kind": "wait_event", "params": {"signal_key": "$shared.label"}})},
    ask={"kind": "approval", "params": {"approval_key": "$shared.ask"}},
    late={"kind": "timer", "params": {"delay_ms": 1}},
)


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path) as home:
        yield home


def tone(path: str) -> str:
    """The expression for the classes of a node's box."""
    return f"document.querySelector({json.dumps(f'[data-path={json.dumps(path)}]')})?.getAttribute('class')"


async def test_the_list_shows_flows_as_they_are_published(home):
    await home.tab.open(f"{home.url}/flows")
    await home.tab.until_text("There are no flows yet.")
    await home.engine.flows.publish("ship", SHIP)
    await home.tab.until_text("ship", "table")
    await home.engine.flows.add_version("ship", SHIP, status="draft")
    await home.tab.until_text("draft", "table")
    await home.tab.click("ship", "table")
    await home.tab.until_text("version 2", ".versions")
    assert await home.path() == "/flows/ship"


async def test_a_run_is_drawn_as_it_walks_its_flow(home, tmp_path):
    await home.engine.flows.publish("ship", SHIP)
    ticket = await home.engine.flows.start("ship", params={"late": False})
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until(f"{tone('pick')}?.includes('succeeded')")
    await home.tab.screenshot(Path("/tmp/cv2-run.png"))
    await home.tab.until(f"{tone('pack/label')}?.includes('suspended')")
    await home.tab.screenshot(Path("/tmp/cv2-run.png"))
