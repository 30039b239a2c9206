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


def tone_is_empty(classes: str) -> bool:
    return classes.split() == ["box"]


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


async def test_a_run_is_drawn_as_it_walks_its_flow(home):
    await home.engine.flows.publish("ship", SHIP)
    ticket = await home.engine.flows.start("ship", params={"late": False})
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until(f"{tone('pick')}?.includes('succeeded')")
    await home.tab.until(f"{tone('pack/label')}?.includes('suspended')")
    assert tone_is_empty(await home.tab.run(tone("late")))
    await home.engine.signal(ticket.id, "label", {"name": "blue"})
    await home.tab.until(f"{tone('pack/label')}?.includes('succeeded')")


EDITOR = "document.querySelector('.editor')?.shadowRoot?"


async def write(home: House, text: str) -> None:
    """Replace the text of the editor, as a person who selects all of it and pastes another one."""
    content = f"{EDITOR}.querySelector('.cm-content')"
    await home.tab.until(content)
    await home.tab.run(f"{content}.focus()")
    for kind in ("rawKeyDown", "keyUp"):
        await home.tab.call(
            "Input.dispatchKeyEvent", type=kind, key="a", code="KeyA", windowsVirtualKeyCode=65, modifiers=2
        )
    await home.tab.run(
        f"""(() => {{
            const clipboardData = new DataTransfer();
            clipboardData.setData("text/plain", {json.dumps(text)});
            const options = {{ clipboardData, bubbles: true, cancelable: true }};
            {content}.dispatchEvent(new ClipboardEvent("paste", options));
        }})()"""
    )


async def test_a_flow_is_written_checked_and_published(home):
    await home.tab.open(f"{home.url}/flows")
    await home.tab.click("New flow")
    await home.tab.fill(".edit input", "mail")
    await home.tab.until_text("No errors.")
    await home.tab.screenshot(Path("/tmp/cv2-edit.png"))
    await write(home, "start: a\nnodes:\n  a:\n    kind: time\n")
    await home.tab.until_text("error in line 4", ".mistakes")
    await home.tab.until(f"{EDITOR}.querySelector('.cm-lintRange-error')")
    await home.tab.screenshot(Path("/tmp/cv2-edit2.png"))
    assert await home.tab.run("document.querySelector('.edit .primary').disabled")
    await home.tab.click("error in line 4")
    assert await home.tab.run("document.activeElement.className") == "editor"
    await write(home, "start: a\nnodes:\n  a:\n    kind: timer\n    params:\n      delay_ms: 5\n")
    await home.tab.until_text("No errors.")
    await home.tab.click("Save as draft")
    await home.tab.until_text("draft", ".versions")
    await home.tab.click("Edit")
    await home.tab.click("Publish")
    await home.tab.until_text("published", ".versions")
    [version] = await home.engine.flows.versions("mail")
    assert (version.version, version.status) == (1, "published")
    await home.tab.click("Start version 1")
    await home.tab.until_text("succeeded", ".title")


async def test_two_versions_are_compared(home):
    await home.engine.flows.publish("ship", SHIP)
    await home.engine.flows.publish("ship", {**SHIP, "start": "late"})
    await home.tab.open(f"{home.url}/flows/ship?version=2&against=1")
    await home.tab.until(f"{EDITOR}.querySelectorAll('.cm-changedLine').length >= 2")
    await home.tab.screenshot(Path("/tmp/cv2-compare.png"))


async def test_an_address_of_the_task_api_is_a_view_for_people_only(home):
    await home.engine.flows.publish("ship", SHIP)
    await home.tab.open(f"{home.url}/flows")
    assert await home.tab.run("fetch('/flows').then((found) => found.json()).then(({ total }) => total)") == 1


@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_serious(scheme, home):
    await home.engine.flows.publish("ship", SHIP)
    await home.engine.flows.publish("ship", {**SHIP, "start": "late"})
    ticket = await home.engine.flows.start("ship", version=1, params={"late": False})
    await home.tab.resize(1280, 800, scheme)
    axe = await trio.Path(AXE).read_text(encoding="utf-8")
    views = ("flows", "flows?edit=1", "flows/ship", "flows/ship?against=1", "flows/ship?edit=1", f"runs/{ticket.id}")
    for view in views:
        await home.tab.open(f"{home.url}/{view}")
        await home.tab.until("document.querySelector('table, .frame, .cm-editor') || !!document.querySelector('.editor')?.shadowRoot")
        await home.tab.call("Runtime.evaluate", expression=axe)
        found = await home.tab.run(
            """axe.run().then(({ violations }) => violations
                .filter(({ impact }) => ["serious", "critical"].includes(impact))
                .flatMap(({ id, nodes }) => nodes.map((node) => [id, node.html, node.failureSummary])))"""
        )
        assert found == [], view
