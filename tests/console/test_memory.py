"""The console forgets what it showed earlier."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from greenroom import Jobs, Run, open_engine

from ..clients.browser import needs_browser
from .chromium import Tab
from .house import House, visited
from .judging import long

pytestmark = needs_browser

jobs = Jobs()


@jobs.job("talk")
async def talk(run: Run, params: Any) -> None:
    while True:
        first = await run.next_message()
        for number in range(first, first + 100):
            await run.log(f"line {number}")
        await run.progress(first)


@pytest.fixture
async def home() -> AsyncIterator[House]:
    async with (
        open_engine(jobs, "memory:", max_concurrent=9, shutdown_timeout=0) as engine,
        visited(engine) as home,
    ):
        yield home


async def used(tab: Tab) -> tuple[int, int]:
    """The bytes of the page's objects, and the number of nodes in and out of the document."""
    await tab.call("HeapProfiler.collectGarbage")
    metrics = {one["name"]: one["value"] for one in (await tab.call("Performance.getMetrics"))["metrics"]}
    return int(metrics["JSHeapUsedSize"]), int(metrics["Nodes"])


EVENTS = "document.querySelectorAll('details .events li').length"


async def test_folded_events_are_not_rendered(home):
    ticket = await home.engine.submit("talk", handle="alice")
    await home.engine.inject("alice", 0)
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until_text("line 99", ".log")
    assert await home.tab.run(EVENTS) == 0
    await home.tab.run("document.querySelector('details.card').open = true")
    await home.tab.until(f"{EVENTS} > 100")
    await home.tab.run("document.querySelector('details.card').open = false")
    await home.tab.until(f"{EVENTS} === 0")


@long
async def test_6000_lines_pass_the_page_of_a_run_in_bounded_memory(home):
    ticket = await home.engine.submit("talk", handle="alice")
    await home.tab.call("Performance.enable")
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until_text("The body has logged nothing.")
    await home.tab.run("document.querySelector('details.card').open = true")
    before, _ = await used(home.tab)
    for number in range(0, 6000, 100):
        await home.engine.inject("alice", number)
        await home.tab.until(
            f"document.querySelector('.log li:last-child')?.textContent.endsWith('line {number + 99}')"
        )
    after, nodes = await used(home.tab)
    assert after - before < 60_000_000
    assert nodes < 60_000
    assert await home.tab.run(EVENTS) == 200


async def test_nodes_of_earlier_renderings_are_forgotten(home):
    await home.tab.open(home.url)
    await home.tab.run("""(async () => {
        const loaded = performance.getEntriesByType("resource").map(({ name }) => name);
        const ui = await import(loaded.find((name) => name.endsWith("/vendor/ui.js")));
        const { html, render, signal, useSignal } = ui;
        const marks = (window.marks = []);
        const mark = () => {
            const made = {};
            marks.push(new WeakRef(made));
            return made;
        };
        const [one, other] = [signal(0), signal(0)];
        const Part = ({ value }) => html`<b>${value}${useSignal("").value}</b>`;
        const Whole = () => html`<p ref=${mark()}>
            <i>without values</i> <${Part} value=${one.value} /> <${Part} value=${other.value} />
        </p>`;
        const place = document.createElement("div");
        window.remove_ = () => render(null, place);
        render(html`<main><${Whole} /></main>`, place);
        for (let round = 0; round < 100; round++) {
            for (const changed of [one, other]) {
                changed.value += 1;
                await new Promise((resolve) => setTimeout(resolve));
            }
        }
    })()""")
    remembered = "marks.filter((mark) => mark.deref()).length"
    assert await home.tab.run("marks.length") == 201
    await home.tab.call("HeapProfiler.collectGarbage")
    assert await home.tab.run(remembered) <= 3
    await home.tab.run("remove_()")
    await home.tab.call("HeapProfiler.collectGarbage")
    assert await home.tab.run(remembered) == 0
