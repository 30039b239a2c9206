"""The console with many runs. `GREENROOM_CONSOLE=long` adds those that take long."""

from __future__ import annotations

import pytest
import trio

from ..clients.browser import needs_browser
from .chromium import Tab
from .house import pass_runs

pytestmark = needs_browser


@pytest.mark.long("GREENROOM_CONSOLE")
async def test_100_000_pending_runs_open_within_3_seconds(home):
    await home.engine.set_max_concurrent(0)
    for part in range(10):
        handles = [f"{part} {number}" for number in range(9_999)]
        await home.engine.submit_many([{"job": "add", "handle": handle, "params": {}} for handle in handles])
    with trio.fail_after(3):
        await home.tab.open(f"{home.url}/runs")
        await home.tab.until("document.querySelectorAll('.virtual-rows .row').length > 10")


RECORD_FRAMES = """(() => {
    window.frames_ = [];
    let last = performance.now();
    const next = () => {
        const at = performance.now();
        window.frames_.push(at - last);
        last = at;
        requestAnimationFrame(next);
    };
    requestAnimationFrame(next);
})()"""


async def longest_frame(tab: Tab) -> float:
    """The 95th percentile of the times between frames, in milliseconds."""
    frames = sorted(await tab.run("window.frames_"))
    return float(frames[int(0.95 * len(frames))])


async def test_many_events_render_few_times(home):
    await home.tab.open(f"{home.url}/runs")
    await home.tab.until_text("There are no runs yet.")
    await home.tab.run(RECORD_FRAMES)
    await pass_runs(home, 1000)
    await home.tab.until("document.querySelectorAll('.row .status.succeeded').length > 10")
    assert await longest_frame(home.tab) < 100
    counts = await home.tab.run("document.querySelector('.virtual').getAttribute('aria-rowcount')")
    assert counts == "1001"


@pytest.mark.long("GREENROOM_CONSOLE")
@pytest.mark.parametrize("view", ["", "runs", "events", "executors"])
async def test_10_000_runs_pass_while_a_view_is_open_in_bounded_memory(view, home):
    await home.tab.call("HeapProfiler.enable")
    await home.tab.open(f"{home.url}/{view}")
    await home.tab.until_text("live")
    await pass_runs(home, 5000)  # until then, what the page keeps grows
    before = await heap(home.tab)
    await home.tab.run(RECORD_FRAMES)
    await pass_runs(home, 10_000)
    assert await longest_frame(home.tab) < 100
    assert await heap(home.tab) - before < 20_000_000
    assert await home.tab.run("document.querySelectorAll('*').length") < 3000


async def heap(tab: Tab) -> int:
    """The bytes of the page's objects that are in use."""
    await tab.call("HeapProfiler.collectGarbage")
    return int((await tab.call("Runtime.getHeapUsage"))["usedSize"])
