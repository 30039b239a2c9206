"""The time line of a run with very many phases shows few elements."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenroom import Jobs, Run, open_engine

from ..clients.browser import needs_browser
from ..clients.javascript import needs_node, run_node
from .house import House, visited
from .judging import AXE, serious
from .test_modules import load

PARTS = 300
SPANS = st.sampled_from([0.0, 0.001, 0.3, 7.0, 500.0])

jobs = Jobs()


@jobs.job("child")
async def child(run: Run) -> None:
    pass


@jobs.job("parent")
async def parent(run: Run, params: Any) -> None:
    for number in range(params):
        await run.call("child", handle=f"child {number}")
    while await run.next_message() == "log":
        await run.log("a line")
    await run.call("child", handle="last child")
    await run.next_message()


@pytest.fixture
async def home() -> AsyncIterator[House]:
    async with (
        open_engine(jobs, "memory:", max_concurrent=9, shutdown_timeout=0) as engine,
        visited(engine) as home,
    ):
        yield home


def phases_of(spans: list[float], lasts: bool) -> tuple[list[dict[str, Any]], float]:
    """Phases of these lengths in turn, of which the last one may still last, and their end."""
    at = 1_000.0
    made: list[dict[str, Any]] = []
    for number, span in enumerate(spans):
        status = "suspended" if number % 2 else "running"
        made.append({"status": status, "from": at, "to": at + span, "attempt": 1, "why": ""})
        at += span
    if made and lasts:
        made[-1]["to"] = None
    return made, at


async def bars_of(*cases: tuple[list[dict[str, Any]], float]) -> list[Any]:
    program = load("views/run/bars.js") + "answer(argument.map(([phases, end]) => barsOf(phases, end)));"
    return list(await run_node(program, cases))


@needs_node
@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(st.lists(SPANS, max_size=50), st.integers(1, 40), st.booleans()), max_size=20))
async def test_the_bars_show_all_phases_and_are_few(drawn):
    cases = [phases_of(spans * times, lasts) for spans, times, lasts in drawn]
    for (phases, end), bars in zip(cases, await bars_of(*cases), strict=True):
        assert len(bars) <= 2 * PARTS + 1
        assert sum(bar["count"] for bar in bars) == len(phases)
        assert [bar["from"] for bar in bars] == [bar["from"] for bar in bars[:1]] + [
            bar["to"] for bar in bars[:-1]
        ]
        if phases:
            assert (bars[0]["from"], bars[-1]["to"]) == (phases[0]["from"], end)
        for bar in bars:
            lengths = [length for _, length in bar["times"]]
            assert lengths == sorted(lengths, reverse=True)
            assert sum(lengths) == pytest.approx(bar["to"] - bar["from"], abs=1e-6)


@needs_node
async def test_wide_phases_are_bars_of_their_own_and_narrow_neighbours_are_one():
    phases, end = phases_of([100, 200, 0.1, 0.1, 0.1, 50, 0.1], lasts=True)
    [bars] = await bars_of((phases, end))
    assert [bar["count"] for bar in bars] == [1, 1, 3, 1, 1]
    assert [status for status, _ in bars[2]["times"]] == ["running", "suspended"]


LINES = "document.querySelectorAll('.timeline li').length"
BARS = "document.querySelectorAll('.timeline .bars:not(.called) .bar').length"


@needs_browser
async def test_the_first_and_the_last_phases_are_listed_and_the_others_after_a_click(home):
    ticket = await home.engine.submit("parent", handle="alice", params=200)
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until_text("352 more phases", ".timeline")  # of 2 + 200 * 2
    assert await home.tab.run(LINES) == 51
    assert await home.tab.run(BARS) <= 2 * PARTS + 1
    lines = (await home.tab.text(".timeline ol")).split("\n")
    assert "queued" in lines[:3]
    assert "running" in lines[-4:]
    if AXE.exists():
        assert await serious(home.tab) == []
    await home.tab.click("352 more phases")
    await home.tab.until(f"{LINES} === 301")
    await home.engine.inject("alice", "go on")
    await home.tab.until_text("104 more phases", ".timeline")
    await home.tab.click("104 more phases")
    await home.tab.until(f"{LINES} === 404")


COUNT_TIMES = """((times) => {
    window.written = times.map(() => 0);
    const { toISOString } = Date.prototype;
    Date.prototype.toISOString = function () {
        const place = times.indexOf(this.getTime());
        if (place >= 0) window.written[place] += 1;
        return toISOString.call(this);
    };
})"""


@needs_browser
async def test_the_phases_are_rendered_again_only_after_a_change_of_them(home):
    ticket = await home.engine.submit("parent", handle="alice", params=40)
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until_text("32 more phases", ".timeline")
    record = await home.engine.get_run(ticket.id)
    changes = [one for one in await home.engine.history(ticket.id) if type(one).__name__ == "RunStateChanged"]
    times = [int(at * 1000) for at in (record.created_at, changes[20].at)]
    await home.tab.run(f"{COUNT_TIMES}({times})")
    for number in range(5):
        await (await home.engine.submit("child", handle=f"other {number}")).result()
        await home.tab.until(f"window.written[0] > {number}")  # of "Created"
        await home.engine.inject("alice", "log")
        await home.tab.until(f"document.querySelectorAll('.log li').length === {number + 1}")
    assert await home.tab.run("window.written[1]") == 0
