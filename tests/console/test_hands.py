"""Nothing moves below a person's hand: interrupts, rows of lists, and the lanes stay while a person is at them."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom import Jobs, Run, open_engine

from ..clients.browser import needs_browser
from .house import House, visited

pytestmark = needs_browser

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
