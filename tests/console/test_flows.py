"""The views of flows in a real Chromium: the list, one flow, its editor, and the walk of a run."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from greenroom.gateway import Role, add_token

from ..clients.browser import needs_browser
from ..flow.definitions import TIMER, flow
from .house import HOSTILE, PRINTABLE, House, house, log_in
from .judging import SCHEMES, SIDEWAYS, needs_axe, serious, unnamed

pytestmark = needs_browser

SHIP = flow(
    "check pick, check:late late, pick pack, pack ask, ask:approved -, ask:denied late, late -",
    check={
        "kind": "choice",
        "choice_cases": [{"action": "late", "expr": "$params.late eq true"}],
        "default_action": "default",
    },
    pick={"kind": "timer", "params": {"delay_ms": 1}},
    pack={
        "kind": "subflow",
        "subflow": flow(
            "wrap label",
            wrap={"kind": "timer", "params": {"delay_ms": 1}},
            label={"kind": "wait_event", "params": {"signal_key": "$shared.label"}},
        ),
    },
    ask={"kind": "approval", "params": {"approval_key": "$shared.ask"}},
    late={"kind": "timer", "params": {"delay_ms": 1}},
)
EDITOR = "document.querySelector('.editor')?.shadowRoot?"
CONTENT = f"{EDITOR}.querySelector('.cm-content')"
TRANSFORM = "document.querySelector('.frame g')?.getAttribute('transform')"

RUNS = "document.querySelector('.views a[href$=\"/runs\"]').click()"


def tone(path: str) -> str:
    """The expression for the classes of a node's box."""
    return f"document.querySelector({json.dumps(f'[data-path={json.dumps(path)}]')})?.getAttribute('class')"


async def select_all(home: House) -> None:
    """Select the text of the editor."""
    await home.tab.until(CONTENT)
    await home.tab.run(f"{CONTENT}.focus()")
    for kind in ("rawKeyDown", "keyUp"):
        await home.tab.call(
            "Input.dispatchKeyEvent", type=kind, key="a", code="KeyA", windowsVirtualKeyCode=65, modifiers=2
        )


async def write(home: House, text: str) -> None:
    """Replace the text of the editor, as a person who selects all of it and pastes another one."""
    await select_all(home)
    await home.tab.run(
        f"""(() => {{
            const clipboardData = new DataTransfer();
            clipboardData.setData("text/plain", {json.dumps(text)});
            const options = {{ clipboardData, bubbles: true, cancelable: true }};
            {CONTENT}.dispatchEvent(new ClipboardEvent("paste", options));
        }})()"""
    )


# The list, and one flow.


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


async def test_a_long_list_is_read_page_by_page(home):
    for number in range(25):
        await home.engine.flows.publish(f"flow {number}", flow("", a=TIMER))
    await home.tab.open(f"{home.url}/flows")
    await home.tab.until("document.querySelectorAll('tbody tr').length === 20")
    await home.tab.click("More")
    await home.tab.until("document.querySelectorAll('tbody tr').length === 25")


async def test_a_flow_with_any_names_has_its_page_and_its_graph(home):
    names = ["constructor", "toString", "hasOwnProperty", "__proto__"]
    path = '$params["\\q"] $params["\\u12"] $params["\t"] $params.constructor'
    node = {"kind": "timer", "params": {"delay_ms": 1, "note": path}}
    edges = [{"from": one, "to": other} for one, other in itertools.pairwise(names)]
    definition = {"start": names[0], "nodes": dict.fromkeys(names, node), "edges": edges}
    await home.engine.flows.publish("odd", definition)
    ticket = await home.engine.flows.start("odd")
    await ticket.wait()
    for address in ("flows/odd", f"runs/{ticket.id}"):
        await home.tab.open(f"{home.url}/{address}")
        for name in names:
            await home.tab.until(tone(name))
        assert await home.tab.run("document.querySelectorAll('.frame .edge').length") == 5
    await home.tab.until("document.querySelectorAll('.box.succeeded').length === 4")
    await home.tab.open(f"{home.url}/flows/odd")
    await home.tab.until("document.querySelectorAll('.start-form [required]').length === 4")


async def test_the_versions_of_a_flow_and_its_drafts_are_live(home):
    await home.engine.flows.publish("ship", flow("", first=TIMER), status="draft")
    await home.tab.open(f"{home.url}/flows/ship")
    await home.tab.until("document.querySelector('[data-path=first]')")
    await home.engine.flows.publish("ship", flow("", second=TIMER), version=1, status="draft")
    await home.tab.until("document.querySelector('[data-path=second]')")
    await home.engine.flows.publish("ship", flow("", third=TIMER))
    await home.tab.until("document.querySelector('[data-path=third]')")  # the latest published version
    await home.tab.click("The 1 node as a table")
    await home.tab.click("third", "table")
    await home.tab.until_text('kind: "timer"', ".json")


async def test_an_unknown_flow_says_so(home):
    await home.tab.open(f"{home.url}/flows/nothing")
    await home.tab.until_text("not found", ".error-text")


async def test_an_address_of_the_task_api_is_a_view_for_people_only(home):
    await home.engine.flows.publish("ship", SHIP)
    await home.tab.open(f"{home.url}/flows")
    await home.tab.until_text("ship", "table")
    assert await home.tab.run("fetch('/flows').then((found) => found.json()).then(({ total }) => total)") == 1


# The walk of a run.


async def test_a_run_is_drawn_as_it_walks_its_flow(home):
    await home.engine.flows.publish("ship", SHIP)
    ticket = await home.engine.flows.start("ship", params={"late": False})
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until(f"{tone('pick')}?.includes('succeeded')")
    await home.tab.until(f"{tone('pack/label')}?.includes('suspended')")
    assert (await home.tab.run(tone("late"))).split() == ["box"]
    whole = await home.tab.run(TRANSFORM)
    await home.tab.click("Show the current node")
    await home.tab.until(f"{TRANSFORM} !== {whole!r}")
    await home.engine.signal(ticket.id, "label", {"name": "blue"})
    await home.tab.until(f"{tone('pack/label')}?.includes('succeeded')")
    await home.tab.until(f"{tone('ask')}?.includes('suspended')")
    # check, pick, into pack, wrap, label, to the end of pack, out of it
    await home.tab.until("document.querySelectorAll('.edge.taken').length >= 6")


async def test_node_runs_show_what_they_were_given_and_what_they_gave(home):
    await home.engine.flows.publish("ship", SHIP)
    ticket = await home.engine.flows.start("ship", params={"late": False})
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until(f"{tone('pack/label')}?.includes('suspended')")
    await home.engine.signal(ticket.id, "label", {"name": "blue"})
    await home.tab.until("document.querySelectorAll('.node-runs li').length === 5")
    await home.tab.click("The 7 nodes as a table")
    await home.tab.click("pack/label", "table")
    await home.tab.until("document.querySelectorAll('.node-runs li').length === 1")
    await home.tab.run("document.querySelector('.node-runs summary').click()")
    await home.tab.until_text("blue", ".node-runs")
    await home.tab.click("Show all")
    await home.tab.until("document.querySelectorAll('.node-runs li').length === 5")


async def test_a_signal_is_sent_to_the_node_that_waits_for_it(home):
    await home.engine.flows.publish("ship", SHIP)
    ticket = await home.engine.flows.start("ship", params={"late": False})
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until_text("node pack/label waits until $shared.label has a value", ".signal")
    await home.tab.fill(".signal [name=value]", '{"name": ')
    await home.tab.until_text("not valid JSON", ".signal")
    await home.tab.click("Send signal")
    await home.tab.fill(".signal [name=value]", '{"name": "blue"}')
    await home.tab.until_text("is sent as JSON: object", ".signal")
    await home.tab.click("Send signal")
    await home.tab.until("!document.querySelector('.signal')")
    await home.tab.until(f"{tone('pack/label')}?.includes('succeeded')")
    [sent] = [one for one in await home.engine.history(ticket.id) if type(one).__name__ == "RunSignal"]
    assert (sent.key, sent.value) == ("$shared.label", {"name": "blue"})


async def test_the_key_of_a_signal_can_be_a_parameter_of_the_run(home):
    await home.engine.flows.publish("wait", flow("", wait={"kind": "wait_event"}))
    ticket = await home.engine.flows.start("wait", params={"signal_key": "paid"})
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until("document.querySelector('.signal [name=key]')?.value === 'paid'")
    await home.tab.fill(".signal [name=value]", "12345678901234567890")
    await home.tab.until_text("is sent as JSON: number", ".signal")
    await home.tab.fill(".signal [name=value]", "in cash")
    await home.tab.until_text("is sent as text", ".signal")
    await home.tab.click("Send signal")
    await ticket.wait(30)
    [sent] = [one for one in await home.engine.history(ticket.id) if type(one).__name__ == "RunSignal"]
    assert (sent.key, sent.value) == ("paid", "in cash")


async def test_a_node_that_failed_without_an_edge_shows_no_action(home):
    late = {"kind": "wait_event", "params": {"signal_key": "never", "timeout_ms": 10}}
    await home.engine.flows.publish("fail", flow("first late, late last", first=TIMER, late=late, last=TIMER))
    ticket = await home.engine.flows.start("fail", params={"delay_ms": 1})
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until_text("failed", ".title")
    await home.tab.until_text("→ default", ".node-runs li:last-child")
    assert "→" not in await home.tab.text(".node-runs li")


async def test_branches_show_their_workers_and_errors(home):
    mail = {"kind": "parallel", "exec_type": "queue", "parallel_mode": "concurrent"}
    mail |= {"parallel_services": ["letters", "parcels"], "failure_strategy": "collect_errors"}
    await home.engine.flows.publish("mail", flow("", mail=mail))
    ticket = await home.engine.flows.start("mail")
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until(f"({tone('mail')} ?? 'box').trim() !== 'box'")
    letters = await home.engine.workers.poll("ann", ["letters"])
    await home.engine.workers.complete(letters.id, {"sent": 7}, worker_id="ann")
    await home.tab.until("document.querySelector('.box .count')?.textContent.trim() === '1 ok'")
    await home.tab.until_text("worker ann", ".node-runs")
    await home.tab.run("document.querySelector('.node-runs summary').click()")
    await home.tab.until_text("sent: 7", ".node-runs")
    parcels = await home.engine.workers.poll("bob", ["parcels"])
    await home.engine.workers.complete(parcels.id, None, "no paper", worker_id="bob")
    await home.tab.until_text("no paper", ".node-runs")
    await home.tab.until("document.querySelector('.box .count')?.textContent.trim() === '1 ok, 1 failed'")


async def test_the_graph_moves_by_keyboard_mouse_and_touch(home):
    await home.engine.flows.publish("ship", SHIP)
    await home.tab.open(f"{home.url}/flows/ship")
    await home.tab.until(TRANSFORM)
    await home.tab.run("document.querySelector('.frame').focus()")
    await home.tab.press("0")
    whole = await home.tab.run(TRANSFORM)
    for key in ("+", "-", "ArrowLeft", "ArrowDown"):
        before = await home.tab.run(TRANSFORM)
        await home.tab.press(key)
        await home.tab.until(f"{TRANSFORM} !== {before!r}")
    await home.tab.press("0")
    await home.tab.until(f"{TRANSFORM} === {whole!r}")
    box = await home.tab.run(
        "(({ x, y }) => [x, y])(document.querySelector('.frame').getBoundingClientRect())"
    )
    x, y = box[0] + 60, box[1] + 60
    mouse: dict[str, Any] = {"button": "left", "buttons": 1, "clickCount": 1}
    await home.tab.call("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, **mouse)
    await home.tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + 40, y=y + 30, **mouse)
    await home.tab.call("Input.dispatchMouseEvent", type="mouseReleased", x=x + 40, y=y + 30, **mouse)
    dragged = await home.tab.until(f"{TRANSFORM} !== {whole!r} && {TRANSFORM}")
    await home.tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + 90, y=y + 90)
    await home.tab.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=-200)
    zoomed = await home.tab.until(f"{TRANSFORM} !== {dragged!r} && {TRANSFORM}")
    await home.tab.click("Show the whole graph")
    await home.tab.until(f"{TRANSFORM} === {whole!r}")
    assert zoomed.partition("scale")[2] != whole.partition("scale")[2]
    for kind, apart in (("touchStart", 20), ("touchMove", 60), ("touchMove", 90)):
        points = [{"x": x - apart / 2, "y": y, "id": 0}, {"x": x + apart / 2, "y": y, "id": 1}]
        await home.tab.call("Input.dispatchTouchEvent", type=kind, touchPoints=points)
    await home.tab.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    await home.tab.until(f"{TRANSFORM}.split('scale')[1] !== {whole!r}.split('scale')[1]")


@pytest.mark.parametrize("count", [1, 7])
async def test_a_graph_fills_its_frame_with_letters_that_can_be_read(count, home):
    chain = ",".join(f"n{number} n{number + 1}" for number in range(count - 1))
    await home.engine.flows.publish("ship", flow(chain, **{f"n{number}": TIMER for number in range(count)}))
    await home.tab.open(f"{home.url}/flows/ship")
    await home.tab.until(TRANSFORM)
    assert await home.tab.run(f"Number({TRANSFORM}.match(/scale\\((.*)\\)/)[1])") > 0.9
    height = "document.querySelector('.frame %s').getBoundingClientRect().height"
    assert await home.tab.run(f"{height % 'g'} / {height % 'svg'}") > 0.7


async def test_a_graph_of_500_nodes_moves_by_one_attribute(home):
    chain = ",".join(f"n{number} n{number + 1}" for number in range(499))
    back = ",".join(f"n{number}:retry n{number * 7 % 500}" for number in range(0, 499, 3))
    nodes = {f"n{number}": TIMER for number in range(500)}
    await home.engine.flows.publish("large", flow(f"{chain},{back}", **nodes))
    await home.tab.open(f"{home.url}/flows/large")
    await home.tab.until("document.querySelectorAll('.box').length === 500")
    changes = await home.tab.run(
        """(() => {
            const frame = document.querySelector(".frame");
            const observer = new MutationObserver(() => {});
            observer.observe(frame, { subtree: true, childList: true, attributes: true });
            for (const key of ["ArrowDown", "ArrowRight", "+", "-"]) {
                frame.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
            }
            return observer.takeRecords().map((one) => `${one.target.tagName} ${one.attributeName}`);
        })()"""
    )
    assert changes == ["g transform"] * 4


# The editor.


async def test_a_flow_is_written_checked_published_and_started(home):
    await home.tab.open(f"{home.url}/flows")
    await home.tab.click("New flow")
    await home.tab.fill(".edit input", "mail")
    await write(home, "start: a\nnodes:\n  a:\n    kind: time\n")
    await home.tab.until_text("error in line 4", ".mistakes")
    await home.tab.until(f"{EDITOR}.querySelector('.cm-lintRange-error')?.innerText.startsWith('kind')")
    assert await home.tab.run("document.querySelector('.edit .primary').disabled")
    await home.tab.click("error in line 4")
    assert await home.tab.run("document.activeElement.className") == "editor"
    await write(home, "start: a\nnodes:\n  a: {kind: timer, prep: {input_key: $params.to}}\n")
    await home.tab.until_text("warning in line 3", ".mistakes")  # delay_ms
    await home.tab.until_text("No errors.")
    await home.tab.click("Save as draft")
    await home.tab.until_text("draft", ".versions")
    await home.tab.click("Edit")
    await home.tab.click("Publish")
    await home.tab.until_text("published", ".versions")
    [version] = await home.engine.flows.versions("mail")
    assert (version.version, version.status) == (1, "published")
    await home.tab.fill('[name="parameter 0"]', "[1, 2,")
    await home.tab.until_text("not valid JSON", ".start-form")
    await home.tab.click("Start version 1")
    await home.tab.fill('[name="parameter 0"]', "ann")
    await home.tab.until_text("is sent as text", ".start-form")
    await home.tab.fill('[name="parameter 1"]', "5")
    await home.tab.fill('[name="others"]', "no object")
    await home.tab.click("Start version 1")
    await home.tab.until_text("the other parameters must be a JSON object", ".start-form")
    await home.tab.fill('[name="others"]', '{"copies": [1]}')
    await home.tab.fill('[name="handle"]', "alice")
    await home.tab.click("Start version 1")
    await home.tab.until_text("succeeded", ".title")
    [run] = await home.engine.list_runs(handle="alice")
    assert run.params["params"] == {"to": "ann", "delay_ms": 5, "copies": [1]}


async def test_an_edited_published_version_becomes_the_next_one(home):
    await home.engine.flows.publish("ship", SHIP)
    await home.tab.open(f"{home.url}/flows/ship?edit=1")
    await home.tab.until_text("A new version, from version 1")
    await home.tab.click("Publish")
    await home.tab.until_text("version 2", ".versions")
    [first, second] = await home.engine.flows.versions("ship")
    read = [json.loads((await home.engine.flows.version(one.id)).definition) for one in (first, second)]
    assert read[0] == read[1] == SHIP


async def test_a_new_flow_does_not_change_one_of_the_same_name(home):
    await home.engine.flows.publish("ship", SHIP)
    await home.tab.open(f"{home.url}/flows?edit=1")
    await home.tab.fill(".edit input", "ship")
    await home.tab.click("Publish")
    await home.tab.until_text("a flow of this name exists", ".toast.error")
    assert len(await home.engine.flows.versions("ship")) == 1


async def test_typing_over_a_selection_is_only_text(home):
    await home.tab.open(f"{home.url}/flows?edit=1")
    await select_all(home)
    for key in "a?/":
        await home.tab.press(key)
    await home.tab.until(f"{CONTENT}.innerText === 'a?/'")
    assert not await home.tab.run("document.querySelector('dialog[open]')")
    await home.tab.press("Escape")
    await home.tab.press("?")
    await home.tab.until_text("Keyboard shortcuts", "dialog")


async def test_the_editor_keeps_its_text_while_the_flow_changes(home):
    await home.engine.flows.publish("ship", flow("", first=TIMER), status="draft")
    await home.tab.open(f"{home.url}/flows/ship?edit=1")
    await write(home, "start: typed")
    await home.engine.flows.publish("ship", flow("", first=TIMER), version=1)
    await home.tab.until_text("A new version, from version 1")
    assert await home.tab.run(f"{CONTENT}.innerText") == "start: typed"


async def test_edits_of_a_flow_are_not_lost_without_a_question(home):
    await home.engine.flows.publish("ship", SHIP)
    await home.tab.open(f"{home.url}/flows/ship?edit=1")
    await write(home, "start: typed")
    await home.tab.run(RUNS)
    await home.tab.click("Back", "dialog")
    assert await home.tab.run(f"{CONTENT}.innerText") == "start: typed"
    await home.tab.run(RUNS)
    await home.tab.click("Leave, and lose the edits", "dialog")
    await home.tab.until("location.pathname === '/runs'")
    await home.tab.open(f"{home.url}/flows/ship?edit=1")
    await write(home, "start: typed")
    await home.tab.click("Discard")
    await home.tab.until("document.querySelector('.frame')")


async def test_two_versions_are_compared(home):
    await home.engine.flows.publish("ship", SHIP)
    await home.engine.flows.publish("ship", {**SHIP, "start": "late"})
    await home.tab.open(f"{home.url}/flows/ship")
    await home.tab.until("document.querySelector('select')")
    await home.tab.run(
        """(() => {
            const select = document.querySelector("select");
            select.value = "1";
            select.dispatchEvent(new Event("change", { bubbles: true }));
        })()"""
    )
    await home.tab.until(f"{EDITOR}.querySelectorAll('.cm-changedLine').length === 2")
    assert await home.path() == "/flows/ship?version=2&against=1"
    assert await home.tab.run("document.querySelector('.sides').innerText.split(/\\s*\\n/)") == [
        "Version 1",
        "Version 2",
    ]


# Roles, hostile text, appearance.


@pytest.mark.parametrize(("role", "offered"), [(Role.VIEWER, False), (Role.OPERATOR, True)])
async def test_only_what_a_role_permits_is_offered(role, offered, tmp_path: Path):
    token = add_token(tmp_path / "tokens", "eve", role)
    async with house(token_file=str(tmp_path / "tokens")) as home:
        await home.engine.flows.publish("ship", SHIP)
        await log_in(home, token, "flows/ship?edit=1")
        await home.tab.until_text("version 1", ".versions")
        await home.tab.until("!!document.querySelector('.editor, .frame')")
        assert await home.tab.run("!!document.querySelector('.editor')") is offered
        await home.tab.open(f"{home.url}/flows/ship")
        await home.tab.until("document.querySelector('.frame')")
        labels = "[...document.querySelectorAll('main :is(a, button)')].map((one) => one.innerText)"
        found = await home.tab.run(labels)
        assert ("Edit" in found, "Start version 1" in found) == (offered, offered)
        await home.tab.open(f"{home.url}/flows")
        await home.tab.until_text("ship", "table")
        assert ("New flow" in await home.tab.run(labels)) is offered
        await home.engine.flows.publish("wait", flow("", wait={"kind": "wait_event"}))
        ticket = await home.engine.flows.start("wait", params={"signal_key": "paid"})
        await home.tab.open(f"{home.url}/runs/{ticket.id}")
        await home.tab.until_text("node wait waits until paid has a value", ".signal")
        assert ("Send signal" in await home.tab.run(labels)) is offered


async def test_hostile_text_is_only_ever_text(home):
    key = PRINTABLE[:80]
    node = {"kind": "timer", "params": {"delay_ms": 1, HOSTILE: HOSTILE}}
    definition = {
        "start": key,
        "nodes": {key: node},
        "edges": [{"from": key, "action": PRINTABLE[:60], "to": key}],
    }
    await home.engine.flows.create(PRINTABLE, HOSTILE)
    await home.engine.flows.publish(PRINTABLE, definition)
    ticket = await home.engine.flows.start(PRINTABLE)
    address = f"flows/{quote(PRINTABLE, safe='')}"
    for view in ("flows", address, f"{address}?edit=1", f"runs/{ticket.id}"):
        await home.tab.open(f"{home.url}/{view}")
        await home.tab.until_text("<img src=x onerror=", "main")
        await home.tab.until("document.querySelector('table, .frame, .editor')")
        assert await home.tab.run("document.querySelectorAll('main img, main script').length") == 0
        assert await home.tab.run("document.title") != "owned"
        text = await home.tab.text("main")
        assert not any(letter in text for letter in "\u202e\u202c\u0007\u001b")
        assert await home.tab.run(SIDEWAYS) == 0


VIEWS = ("flows", "flows?edit=1", "flows/ship", "flows/ship?against=1", "flows/ship?edit=1", "runs/{id}")


async def visit(home: House) -> AsyncIterator[str]:
    """Each view, when it is there."""
    await home.engine.flows.publish("ship", SHIP)
    await home.engine.flows.publish("ship", {**SHIP, "start": "late"})
    ticket = await home.engine.flows.start("ship", version=1, params={"late": False})
    for view in VIEWS:
        await home.tab.open(f"{home.url}/{view.format(id=ticket.id)}")
        await home.tab.until(
            f"document.querySelector('table, .frame') || {EDITOR}.querySelector('.cm-editor')"
        )
        yield view


async def test_a_phone_shows_every_view_without_scrolling_sideways(home):
    await home.tab.resize(390, 800)
    async for view in visit(home):
        assert await home.tab.run("document.documentElement.scrollWidth") == 390, view


@needs_axe
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_axe_finds_nothing_serious(scheme, home):
    await home.tab.resize(1280, 800, scheme)
    async for view in visit(home):
        await home.tab.run(
            "document.querySelectorAll('.flow-graph details').forEach((one) => one.open = true)"
        )
        assert await serious(home.tab) == [], view


async def test_every_control_has_a_name_and_every_view_a_heading(home):
    async for view in visit(home):
        assert await unnamed(home.tab) == [], view
        assert await home.tab.run("document.querySelectorAll('h1').length") == 1
