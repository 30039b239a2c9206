"""Nothing moves below a person's hand: interrupts, rows and lanes stay while a person is at them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from greenroom import Jobs, Run, open_engine
from greenroom.gateway import Role, add_token

from ..clients.browser import needs_browser
from ..clients.javascript import needs_node, run_node
from ..flow.definitions import flow
from .house import House, log_in, visited
from .judging import SCHEMES, SIDEWAYS, needs_axe, serious
from .test_modules import load

jobs = Jobs()


@jobs.job("ask")
async def ask(run: Run, params: Any) -> Any:
    return dict(await run.interrupt(params))


@jobs.job("wait")
async def wait(run: Run, params: Any) -> Any:
    return await run.next_message()


@jobs.job("ask twice")
async def ask_twice(run: Run, params: Any) -> None:
    await run.interrupt({"question": "Which size?", "choices": ["small", "large"]})
    await run.interrupt({"question": "Sure?"})


@pytest.fixture
async def home() -> Any:
    async with (
        open_engine(jobs, "memory:", max_concurrent=100, lanes={"images": 2}, shutdown_timeout=0) as engine,
        visited(engine) as home,
    ):
        yield home


async def point(home: House, selector: str) -> dict[str, float]:
    """Move the pointer to the middle of an element; returns its place."""
    place = await home.tab.until(
        f"""(({{ x, y, width, height }} = {{}}) => x && {{ x: x + width / 2, y: y + height / 2 }})(
            document.querySelector({selector!r})?.getBoundingClientRect().toJSON())"""
    )
    await home.tab.call("Input.dispatchMouseEvent", type="mouseMoved", **place)
    return dict(place)


async def press(home: House, place: dict[str, float]) -> None:
    """Click at a place, where the pointer stays."""
    for kind in ("mousePressed", "mouseReleased"):
        await home.tab.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)


async def leave(home: House) -> None:
    """Move the pointer away from everything."""
    await home.tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)


@needs_browser
@pytest.mark.parametrize("view", ["runs/{id}", "handles/alice"])
async def test_the_next_interrupt_of_a_run_appears_below_the_one_that_has_the_pointer(view, home):
    ticket = await home.engine.submit("ask twice", handle="alice")
    await home.tab.open(f"{home.url}/{view.format(id=ticket.id)}")
    place = await point(home, ".interrupt .actions button")
    before = await home.tab.run("document.querySelector('.interrupt').getBoundingClientRect().top")
    await press(home, place)
    await home.tab.until_text("Sure?", ".interrupt:not(.closed) .question")
    await home.tab.until_text("1 new interrupt", "[aria-label=Interrupts] > [role=status]")
    assert "Approved “small” by" in await home.tab.text(".interrupt.closed")
    assert "since" not in await home.tab.text(".interrupt.closed .interrupt-head")
    assert await home.tab.run("document.querySelector('.interrupt').getBoundingClientRect().top") == before
    await leave(home)
    await home.tab.until("document.querySelectorAll('.interrupt').length === 1")
    await home.tab.click("Approve", ".interrupt")
    assert await ticket.wait(30)


ROWS = """[...document.querySelectorAll(".virtual-rows .row")].map(
    (one) => [one.id, one.getBoundingClientRect().top])"""


async def shown_rows(home: House) -> list[Any]:
    """The rows with their places, from the top."""
    rows = await home.tab.run(ROWS)
    return sorted(rows, key=lambda row: float(row[1]))


@needs_browser
async def test_new_runs_are_counted_while_the_pointer_is_on_the_rows_and_states_go_on_changing(home):
    tickets = [await home.engine.submit("wait", handle=f"h{number}") for number in range(3)]
    await home.tab.open(f"{home.url}/runs")
    await home.tab.until("document.querySelectorAll('.row .status.running').length === 3")
    rows = await shown_rows(home)
    await point(home, f"[id='row-{tickets[1].id}']")
    for number in range(3):
        await home.engine.submit("wait", handle=f"new {number}")
    await home.tab.until_text("3 new runs", ".title")
    await home.engine.inject("h1", "go")
    await home.tab.until(f"document.querySelector('[id=\"row-{tickets[1].id}\"] .status.succeeded')")
    assert await shown_rows(home) == rows
    await leave(home)
    await home.tab.until("document.querySelectorAll('.virtual-rows .row').length === 6")
    assert "new run" not in await home.tab.text(".title")


@needs_browser
async def test_a_run_that_leaves_a_filtered_list_stays_below_the_pointer(home):
    await home.engine.submit("wait", handle="first")
    ticket = await home.engine.submit("wait", handle="second")
    await home.tab.open(f"{home.url}/runs?status=running")
    await home.tab.until("document.querySelectorAll('.virtual-rows .row').length === 2")
    rows = await shown_rows(home)
    await point(home, f"[id='row-{ticket.id}']")
    await home.engine.inject("second", "go")
    await home.tab.until("document.querySelector('.row .status.succeeded')")
    assert await shown_rows(home) == rows
    await leave(home)
    await home.tab.until("document.querySelectorAll('.virtual-rows .row').length === 1")


@needs_browser
@pytest.mark.parametrize(("view", "what"), [("runs", "run"), ("handles", "handle"), ("events", "event")])
async def test_rows_stay_while_the_keyboard_is_in_the_list_until_the_new_ones_are_shown(view, what, home):
    await home.tab.open(f"{home.url}/{view}")
    await home.tab.until_text("live")
    for number in range(3):
        await home.engine.submit("wait", handle=f"m{number}")
    await home.tab.until("document.querySelectorAll('.virtual-rows .row').length >= 3")
    await home.tab.press("j")
    await home.tab.until("document.querySelector('.row.active')")
    rows = await shown_rows(home)
    for number in range(2):
        await home.engine.submit("wait", handle=f"a{number}")
    await home.tab.until_text(f"new {what}s", ".title")
    assert await shown_rows(home) == rows
    await home.tab.press("Escape")
    await home.tab.until(f"document.querySelectorAll('.virtual-rows .row').length >= {len(rows) + 2}")
    for key in "jj":
        await home.tab.press(key)
    await home.engine.submit("wait", handle="a3")
    await home.tab.until("document.querySelector('.news')")
    await home.tab.run("document.querySelector('.news').click()")
    await home.tab.until("!document.querySelector('.news') && !document.querySelector('.row.active')")


@needs_browser
async def test_selected_runs_stay_where_they_are_until_the_new_ones_are_shown(home):
    await home.engine.submit("wait", handle="first")
    await home.tab.open(f"{home.url}/runs")
    await home.tab.until("document.querySelector('.virtual-rows .row')")
    rows = await shown_rows(home)
    await home.tab.click("Select all")
    await home.tab.until_text("1 selected", ".bulk")
    assert await shown_rows(home) == rows
    await home.engine.submit("wait", handle="second")
    await home.tab.until_text("1 new run", ".title")
    assert await home.tab.run("document.querySelectorAll('.virtual-rows .row').length") == 1
    await home.tab.click("1 new run")
    await home.tab.until("document.querySelectorAll('.virtual-rows .row').length === 2")
    await home.tab.until_text("1 selected", ".bulk")


TOP = "document.querySelector('.lanes').getBoundingClientRect().top"


@needs_browser
async def test_nothing_moves_the_lanes_while_the_pointer_is_on_them(home):
    await home.tab.open(home.url)
    await home.tab.until("document.querySelector('.lane')")
    await point(home, ".lane.all")
    top = await home.tab.run(TOP)
    lanes = "[...document.querySelectorAll('.lanes .lane a')].map((one) => one.innerText)"
    names = await home.tab.run(lanes)
    ticket = await home.engine.submit("ask", handle="alice", params={"question": "Sure?"}, lane="aaa")
    await home.tab.until_text("1 new interrupt", ".title")
    await home.engine.set_concurrency("images", 0)
    await home.engine.submit("wait", handle="bob", lane="images")
    await home.tab.until_text("1 new problem", ".title")
    assert abs(await home.tab.run(TOP) - top) < 1
    assert (await home.tab.run(lanes))[: len(names)] == names
    await leave(home)
    await home.tab.until("document.querySelector('.interrupt') && document.querySelector('.problems')")
    await point(home, ".lane.all")
    top = await home.tab.run(TOP)
    await home.engine.answer(next(iter((await home.engine.snapshot()).interrupts)), {"approved": True})
    await home.engine.set_concurrency("images", 1)
    await home.tab.until(
        "document.querySelector('.interrupt.closed') && document.querySelector('.problems .gone')"
    )
    assert abs(await home.tab.run(TOP) - top) < 1
    await leave(home)
    await home.tab.until("!document.querySelector('.interrupt') && !document.querySelector('.problems')")
    assert await ticket.wait(30)


KEYS = st.integers(0, 12)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("list"), st.sets(KEYS).map(sorted)),
        st.tuples(st.just("hold"), st.booleans()),
    ),
    max_size=12,
)


@needs_node
async def test_held_rows_never_move_and_those_that_are_not_shown_are_counted():
    cases: list[Any] = []

    @settings(max_examples=150)
    @given(STEPS)
    def collect(steps: Any) -> None:
        cases.append(steps)

    collect()
    program = (
        load("state/heldlist.js")
        + """
        answer(argument.map((steps) => {
            let all = [];
            const source = {
                get count() { return all.length; },
                at: (index) => all[index],
                indexOf: (key) => all.indexOf(key),
            };
            const list = new HeldList(source, (key) => (all.includes(key) ? `shows ${key}` : undefined));
            return steps.map(([kind, what]) => {
                if (kind === "list") all = what.map(String);
                list.hold(kind === "hold" ? what : list.held);
                const keys = Array.from({ length: list.count }, (_, index) => list.at(index));
                const same = keys.every((key, index) => list.indexOf(key) === index);
                const told = keys.every((key) => list.value(key) === `shows ${key}`);
                const { held, added } = list;
                return { all, keys, held, added, same: same && told && list.indexOf("none") === -1 };
            });
        }));
        """
    )
    for states in await run_node(program, cases):
        before: Any = {"held": False, "keys": []}
        for state in states:
            assert state["same"], states
            assert len(set(state["keys"])) == len(state["keys"])
            if state["held"]:
                assert state["added"] == len(set(state["all"]) - set(state["keys"]))
            else:
                assert (state["keys"], state["added"]) == (state["all"], 0)
            if state["held"] and before["held"]:
                assert state["keys"][: len(before["keys"])] == before["keys"]
            before = state


OPEN_MENUS = "[...document.querySelectorAll('.menu[open] summary')].map((one) => one.innerText).join()"


@needs_browser
async def test_menus_close_with_escape_a_click_outside_and_when_another_opens(home):
    await home.tab.open(f"{home.url}/runs")
    await home.tab.click("Columns")
    await home.tab.until(f"{OPEN_MENUS} === 'Columns'")
    await home.tab.run("document.querySelector('.menu[open] input').focus()")
    await home.tab.press("Escape")
    await home.tab.until(f"{OPEN_MENUS} === '' && document.activeElement.innerText === 'Columns'")
    await home.tab.press("Enter")
    await home.tab.until(f"{OPEN_MENUS} === 'Columns'")
    await press(home, await point(home, ".menu:not([open]) summary"))
    await home.tab.until(f"{OPEN_MENUS} === 'Time'")
    await press(home, await point(home, ".menu[open] .menu-body"))
    assert await home.tab.run(OPEN_MENUS) == "Time"
    await press(home, await point(home, "h1"))
    await home.tab.until(f"{OPEN_MENUS} === ''")


def smaller(selector: str) -> str:
    """The sizes of the elements that are smaller than a finger needs."""
    return f"""[...document.querySelectorAll({selector!r})]
        .map((one) => [one.outerHTML.slice(0, 80), one.getBoundingClientRect()])
        .filter(([, {{ width, height }}]) => width < 24 || height < 24)
        .map(([what, {{ width, height }}]) => `${{what}} ${{width}} ${{height}}`)"""


OUTSIDE = """[...document.querySelectorAll('.lanes :is(a, button, input, meter)')].filter((one) => {
    const { left, right } = one.getBoundingClientRect();
    return left < 0 || right > 360;
}).length"""


@needs_browser
async def test_a_phone_shows_the_lanes_as_cards_with_limit_and_pause(home):
    await home.engine.set_concurrency("mail", 3)
    await home.tab.resize(360, 800)
    await home.tab.open(home.url)
    await home.tab.until("document.querySelectorAll('.lanes button').length >= 2")
    await home.tab.until("document.querySelector('[aria-label=\"Change the limit of lane images\"]')")
    assert await home.tab.run(OUTSIDE) == 0
    assert await home.tab.run("document.querySelector('.lanes').scrollWidth <= 360")
    assert await home.tab.run(smaller(".lanes :is(a, button, input)")) == []
    assert await home.tab.run(SIDEWAYS) == 0


CUT = """(() => {
    const all = [...document.querySelectorAll(".views a")];
    const pinned = all.find((one) => one.matches(":has(.badge)"));
    const edge = pinned.getBoundingClientRect().right;
    const places = all.filter((one) => one !== pinned).map((one) => one.getBoundingClientRect());
    return places.filter(({ left, right }) => left < edge - 1 && right > edge + 1).length;
})()"""


@needs_browser
@pytest.mark.parametrize("view", ["runs", "flows", "events", "settings"])
async def test_the_pinned_view_does_not_cut_its_neighbours_on_a_phone(view, home):
    await home.engine.submit("ask", handle="alice")
    await home.tab.resize(360, 800)
    await home.tab.open(f"{home.url}/{view}")
    await home.tab.until("document.querySelector('.views .badge')")
    place = "document.querySelector('.views [aria-current]').getBoundingClientRect()"
    await home.tab.until(f"{place}.right <= 360 && {place}.left >= 60")
    assert await home.tab.run(CUT) == 0


@needs_browser
async def test_a_phone_has_cards_that_name_their_parts_and_targets_for_fingers(home):
    for _ in range(2):
        ticket = await home.engine.submit("wait", handle="alice", lane="images")
        await home.engine.inject("alice", "go")
        await ticket.result()
    await home.tab.resize(360, 800)
    await home.tab.open(f"{home.url}/runs")
    await home.tab.until("document.querySelectorAll('.virtual-rows .row').length === 2")
    label = "getComputedStyle(document.querySelector('.row .cell-%s'), '::before').content"
    for column, name in (("job", "job"), ("lane", "lane"), ("created", "created"), ("took", "for")):
        assert await home.tab.run(label % column) == f'"{name} "'
    assert await home.tab.run(smaller(".virtual-rows :is(a, input)")) == []
    assert await home.tab.run(SIDEWAYS) == 0
    await home.tab.open(f"{home.url}/handles/alice")
    await home.tab.until("document.querySelectorAll('.cards li').length === 2")
    assert not await home.tab.run("document.querySelector('table')")
    right = "Math.max(...[...document.querySelectorAll('.cards span')]"
    right += ".map((one) => one.getBoundingClientRect().right))"
    assert await home.tab.run(f"{right} <= 360")
    assert await home.tab.run(smaller(".cards a")) == []


@needs_browser
async def test_a_phone_shows_compared_versions_below_each_other(home):
    for delay in (1, 2):
        node = {"kind": "timer", "params": {"delay_ms": delay}}
        await home.engine.flows.publish("order", flow("", first=node))
    await home.tab.resize(360, 800)
    await home.tab.open(f"{home.url}/flows/order?version=2&against=1")
    editors = "[...(document.querySelector('.editor')?.shadowRoot?.querySelectorAll('.cm-editor') ?? [])]"
    places = f"{editors}.map((one) => one.getBoundingClientRect())"
    await home.tab.until(f"{editors}.length === 2 && {places}[0].height > 50")
    first, second = await home.tab.run(f"{places}.map(({{ top, bottom, width }}) => [top, bottom, width])")
    assert first[1] <= second[0]
    assert min(first[2], second[2]) > 250
    names = f"{editors}.map((one) => getComputedStyle(one, '::before').content)"
    assert await home.tab.run(names) == ['"Version 1"', '"Version 2"']


@needs_axe
@needs_browser
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_axe_finds_nothing_serious_on_a_phone(scheme, home):
    await home.engine.submit("ask", handle="alice", params={"question": "Sure?", "pages": 120})
    await home.engine.submit("wait", handle="bob", lane="images")
    await home.tab.resize(360, 800, scheme)
    for view in ("", "runs", "handles", "handles/bob"):
        await home.tab.open(f"{home.url}/{view}")
        await home.tab.until_text("live")
        assert await serious(home.tab) == [], view


@needs_browser
async def test_a_wall_shows_charts_queues_and_lanes_below_three_interrupts(home):
    params = {"question": "Which size?", "choices": ["small", "large"], "context": {"user": "alice"}}
    for number in range(3):
        await home.engine.submit("ask", handle=f"h{number}", params=params)
    for number in range(3):
        await home.engine.submit("wait", handle=f"w{number}", lane="images")
    await home.tab.resize(1920, 1080)
    await home.tab.open(home.url)
    await home.tab.until("document.querySelectorAll('.interrupt').length === 3")
    await home.tab.until_text("images", "[aria-labelledby=queues-title]")
    for selector in (".charts", "[aria-labelledby=queues-title]", ".lanes"):
        bottom = f"document.querySelector({selector!r}).getBoundingClientRect().bottom"
        assert 0 < await home.tab.run(bottom) <= 1080, selector
    card = await home.tab.text(".interrupt")
    assert "Which size?" in card
    assert "of h" in card
    assert "context" not in card  # it is folded
    assert not await home.tab.run("document.querySelector('.interrupt .tag')")  # nobody has chosen the key
    await home.tab.click("Its data", ".interrupt")
    await home.tab.until_text("context", ".interrupt")


ERRORS = "document.querySelectorAll('.toast.error').length"


@needs_browser
async def test_messages_name_the_action_and_go_when_it_succeeds_or_another_view_opens(home):
    await home.tab.open(f"{home.url}/handles/alice")
    await home.tab.fill("#draft", '{"a": 1}')
    await home.tab.click("Save draft")
    await home.tab.until_text("the draft is saved", ".toasts[aria-live]")
    await home.tab.fill("#job", "no such job")
    await home.tab.click("Start", ".draft")
    await home.tab.until_text("Start: ", ".toast.error")
    await home.tab.until_text("no such job", ".draft [role=alert]")
    await trio.sleep(2.1)  # an error that has just appeared outlasts a change of the view
    await home.tab.click("Runs", ".views")
    await home.tab.until_text("Runs", "h1")
    await home.tab.until(f"{ERRORS} === 0")
    await home.tab.open(f"{home.url}/handles/alice")
    await home.tab.fill("#job", "no such job")
    await home.tab.click("Start", ".draft")
    await home.tab.until(f"{ERRORS} === 1")
    await home.tab.fill("#draft", '{"a": 2}')
    await home.tab.click("Save draft")
    await home.tab.until_text("the draft is saved", ".toasts")
    assert await home.tab.run(ERRORS) == 1  # that was another action
    await home.tab.until("document.querySelector('.draft .primary').ariaDisabled !== 'true'")
    await home.tab.fill("#job", "wait")
    await home.tab.click("Start", ".draft")
    await home.tab.until("location.pathname.startsWith('/runs/')")
    await home.tab.until(f"{ERRORS} === 0")


@needs_browser
async def test_the_title_of_the_tab_begins_with_the_number_of_open_interrupts(home):
    await home.tab.open(home.url)
    await home.tab.until("document.title === 'Overview · Greenroom'")
    for number in (1, 2):
        await home.engine.submit("ask", handle=f"h{number}", params={"question": "Sure?"})
        await home.tab.until(f"document.title === '({number}) Overview · Greenroom'")


@needs_browser
async def test_a_viewer_has_no_number_of_interrupts_in_the_title(tmp_path: Path):
    token = add_token(tmp_path / "tokens", "eve", Role.VIEWER)
    async with (
        open_engine(jobs, "memory:", shutdown_timeout=0) as engine,
        visited(engine, token_file=str(tmp_path / "tokens")) as home,
    ):
        await engine.submit("ask", handle="alice", params={"question": "Sure?"})
        await log_in(home, token, "interrupts")
        await home.tab.until_text("Sure?")
        assert await home.tab.run("document.title") == "Interrupts · Greenroom"
