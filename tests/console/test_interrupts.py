"""The inbox of the console: open interrupts, how they are answered, and their number in the navigation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from greenroom import Jobs, Run, open_engine

from ..clients.browser import needs_browser
from ..flow.definitions import flow
from .house import House, visited

pytestmark = needs_browser

jobs = Jobs()


@jobs.job("ask")
async def ask(run: Run, params: Any) -> Any:
    return dict(await run.interrupt(params))


@jobs.job("ask thrice")
async def ask_thrice(run: Run, params: Any) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(run.interrupt, {"question": f"Publish {number}?"})


@pytest.fixture
async def home() -> AsyncIterator[House]:
    async with (
        open_engine(jobs, "memory:", max_concurrent=100, shutdown_timeout=0) as engine,
        visited(engine) as home,
    ):
        yield home


async def test_interrupts_are_newest_first_and_counted_in_the_navigation(home):
    await home.tab.open(f"{home.url}/interrupts")
    await home.tab.until_text("Nobody waits for an answer.")
    for number in range(3):
        await home.engine.submit("ask", handle=f"h{number}", params={"question": f"Publish {number}?"})
        await home.tab.until(f"document.querySelector('.views .badge')?.innerText.startsWith('{number + 1}')")
    questions = "[...document.querySelectorAll('.question')].map((one) => one.innerText)"
    assert await home.tab.run(questions) == ["Publish 2?", "Publish 1?", "Publish 0?"]
    await home.tab.click("h1", ".interrupt")
    await home.tab.until("location.pathname === '/handles/h1'")
    await home.tab.until_text("Publish 1?", ".interrupt")


OPEN = "document.querySelectorAll('.interrupt:not(.closed)').length"
PLACES = """[...document.querySelectorAll(".interrupt")].map(
    (one) => [one.querySelector(".question").innerText, one.getBoundingClientRect().top])"""


async def test_the_keyboard_answers_the_focused_interrupt_and_keeps_its_place(home):
    tickets = [await home.engine.submit("ask", handle=f"h{number}", params=number) for number in range(3)]
    await home.tab.open(f"{home.url}/interrupts")
    await home.tab.until(f"{OPEN} === 3")
    await home.tab.press("a")  # none has the focus
    for key in "jjaa":  # the second `a` is for the same one
        await home.tab.press(key)
    assert await tickets[1].result() == {"approved": True}
    await home.tab.until(f"{OPEN} === 2")
    await home.tab.until_text("Approved by", ".interrupt.closed")
    for key in "jd":
        await home.tab.press(key)
    assert await tickets[0].result() == {"approved": False}
    await home.tab.until(f"{OPEN} === 1")
    for key in "kk":
        await home.tab.press(key)
    await home.tab.press("Enter")
    await home.tab.until(f"location.pathname === '/runs/{tickets[2].id}'")


async def point(home: House, selector: str, number: int = 0) -> dict[str, float]:
    """Move the pointer to an element; returns its place."""
    place = await home.tab.until(
        f"""(({{ x, y }} = {{}}) => x && {{ x: x + 20, y: y + 10 }})(
            document.querySelectorAll({selector!r})[{number}]?.getBoundingClientRect().toJSON())"""
    )
    await home.tab.call("Input.dispatchMouseEvent", type="mouseMoved", **place)
    return dict(place)


async def press(home: House, place: dict[str, float], times: int = 1) -> None:
    """Click so many times, as fast as a double click."""
    for count in range(1, times + 1):
        for kind in ("mousePressed", "mouseReleased"):
            await home.tab.call(
                "Input.dispatchMouseEvent", type=kind, button="left", clickCount=count, **place
            )
        await trio.sleep(0.15)


async def test_a_new_interrupt_does_not_move_the_others_below_the_pointer(home):
    await home.engine.submit("ask", handle="h0", params={"question": "First?"})
    await home.tab.open(f"{home.url}/interrupts")
    await point(home, ".interrupt")
    await home.engine.submit("ask", handle="h1", params={"question": "Second?"})
    await home.tab.until_text("2 open")
    assert await home.tab.run("document.querySelectorAll('.interrupt').length") == 1
    await home.tab.click("1 new interrupt")
    await home.tab.until("document.querySelector('.question')?.innerText === 'Second?'")


@pytest.mark.parametrize("view", ["", "interrupts", "handles/alice"])
async def test_a_double_click_answers_one_interrupt(view, home):
    await home.engine.submit("ask thrice", handle="alice")
    await home.tab.open(f"{home.url}/{view}")
    await home.tab.until(f"{OPEN} === 3")
    places = await home.tab.run(PLACES)
    await press(home, await point(home, ".interrupt button.primary"), times=2)
    await home.tab.until_text("Approved by", ".interrupt.closed")
    assert await home.tab.run(PLACES) == places
    assert len((await home.engine.snapshot()).interrupts) == 2
    await home.tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
    await home.tab.until("document.querySelectorAll('.interrupt').length === 2")


async def test_an_interrupt_that_another_person_answers_stays_below_the_pointer(home):
    await home.engine.submit("ask thrice", handle="alice")
    await home.tab.open(f"{home.url}/interrupts")
    await home.tab.until(f"{OPEN} === 3")
    places = await home.tab.run(PLACES)
    place = await point(home, ".interrupt button.primary", 1)
    known = (await home.engine.snapshot()).interrupts
    [first] = [id for id, one in known.items() if one.data["question"] == places[0][0]]
    await home.engine.answer(first, {"approved": False})
    await home.tab.until_text("Denied by", ".interrupt.closed")
    assert await home.tab.run(PLACES) == places
    await press(home, place)
    await home.tab.until(f"{OPEN} === 1")
    [left] = (await home.engine.snapshot()).interrupts.values()
    assert left.data["question"] == places[2][0]


async def test_choices_of_the_data_are_buttons(home):
    params = {"question": "Which size?", "choices": ["small", "large"]}
    ticket = await home.engine.submit("ask", handle="alice", params=params)
    await home.tab.open(f"{home.url}/interrupts")
    labels = "[...document.querySelectorAll('.interrupt .actions button')].map((one) => one.innerText)"
    await home.tab.until("document.querySelector('.interrupt')")
    assert (await home.tab.run(labels))[:3] == ["small", "large", "Deny"]
    await home.tab.until_text("ask of alice", ".interrupt-head")
    await home.tab.click("large", ".interrupt")
    await home.tab.until_text("answered: large", ".toasts")
    assert await ticket.result() == {"approved": True, "choice": "large"}


@pytest.mark.parametrize("params", [None, 5, "text", [], {"question": 5, "choices": [1]}, {"choices": "no"}])
async def test_any_data_has_a_form(params, home):
    ticket = await home.engine.submit("ask", handle="alice", params=[params])
    await home.engine.submit("ask", handle="bob", params=params)
    await home.tab.open(f"{home.url}/interrupts")
    await home.tab.until("document.querySelectorAll('.interrupt').length === 2")
    await home.tab.run("document.querySelectorAll('.interrupt button.danger')[1].click()")
    assert await ticket.result() == {"approved": False}


async def test_a_long_inbox_is_shown_part_by_part(home):
    runs = [{"job": "ask", "handle": f"h{number}", "params": number} for number in range(60)]
    await home.engine.submit_many(runs)
    await home.tab.open(f"{home.url}/interrupts")
    await home.tab.until_text("60 open")
    await home.tab.until("document.querySelectorAll('.interrupt').length === 50")
    await home.tab.click("10 more")
    await home.tab.until("document.querySelectorAll('.interrupt').length === 60")


async def test_an_approval_of_a_flow_names_flow_node_and_question(home):
    approve = {"kind": "approval", "params": {"approval_key": "$shared.ok", "question": "Ship it?"}}
    await home.engine.flows.publish("ship", flow("", approve=approve))
    ticket = await home.engine.flows.start("ship")
    await home.tab.open(f"{home.url}/interrupts")
    await home.tab.until_text("flow ship, node approve", ".interrupt-head")
    assert await home.tab.text(".question") == "Ship it?"
    assert "approval_key" not in await home.tab.text(".interrupt")
    await home.tab.click("Approve", ".interrupt")
    await home.tab.until_text("answered: approved", ".toasts")
    assert await ticket.wait(30)
