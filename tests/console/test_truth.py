"""Lists and pages that say the whole truth: what is not read is said to be unknown, and never shown as something else."""

from __future__ import annotations

import pytest

from ..clients.browser import needs_browser
from ..flow.definitions import flow
from .house import flood
from .test_run import home as talking

pytestmark = needs_browser

__all__ = ["talking"]

ROWS = "document.querySelectorAll('.virtual-rows .row').length"

STATUSES = "[...document.querySelectorAll('.timeline .bar')].map((one) => one.classList[1])"


@pytest.mark.parametrize("ends", [False, True])
async def test_the_time_line_of_a_long_history_claims_nothing_about_what_is_not_read(talking, ends):
    home = talking
    ticket = await home.engine.submit("talk", handle="alice")
    logs = home.engine.events(filter={"types": ["run_log"]})
    await home.engine.inject("alice", 1600)
    async for log in logs:
        if log.text == "line 1599":
            break
    if ends:
        await home.engine.cancel(ticket.id)
        await ticket.wait(30)
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until_text("line 1599", ".log")
    expected = ["queued", "running", "unread", "running", *(["cancelling"] if ends else [])]
    await home.tab.until(f"JSON.stringify({STATUSES}) === {str(expected).replace(chr(39), chr(34))!r}.replaceAll(' ', '')")
    assert "not read yet" in await home.tab.text(".timeline")
    read = "document.querySelector('details.card > summary .number').innerText"
    for count in (1000, 1500):
        await home.tab.click("Read earlier events")
        await home.tab.until(f"{read} === '{count}'")
    await home.tab.click("Read earlier events")
    await home.tab.until("!document.querySelector('.timeline .unread')")
    assert "not read yet" not in await home.tab.text(".timeline")


async def test_a_search_for_handles_goes_on_in_the_store(home):
    for name in ("alice", "bert"):
        await (await home.engine.submit("fail", handle=name, params="no")).wait(30)
    await (await home.engine.submit("add", handle="bert", params={"a": 1, "b": 1})).result()
    await flood(home, 1500)
    await home.tab.open(f"{home.url}/handles?status=Failed")
    await home.tab.until_text("Failed", "#row-alice")
    await home.tab.until("!document.querySelector('.rest')")  # all runs are read
    assert await home.tab.run(ROWS) == 1  # the last outcome of bert is another one
    await home.tab.open(f"{home.url}/handles?text=ALI&status=Failed")
    await home.tab.until_text("Failed", "#row-alice")
    await home.engine.submit("add", handle="alice", params={"a": 1, "b": 1})
    await home.tab.until_text("No handle matches the filter.")
    await home.tab.fill(".filters input", "bert")
    await home.tab.click("Failed")
    await home.tab.until_text("Done", "#row-bert")


async def test_the_list_of_handles_says_how_far_it_has_looked(home):
    await (await home.engine.submit("fail", handle="alice", params="no")).wait(30)
    await flood(home, 5300)
    await home.tab.open(f"{home.url}/handles")
    await home.tab.until_text("one of the 1,000 runs that ended last", ".rest")
    await home.tab.open(f"{home.url}/handles?status=Failed")
    await home.tab.until_text("None so far.")
    await home.tab.until_text("those of all runs back to", ".rest")
    assert "No handle matches" not in await home.tab.text()
    await home.tab.click("Read on", ".rest")
    await home.tab.until_text("Failed", "#row-alice")


async def test_an_unknown_filter_of_handles_is_named(home):
    await home.engine.set_params("alice", 1)
    await home.tab.open(f"{home.url}/handles?status=bogus&color=red")
    await home.tab.until_text("color is not a filter; bogus is not a status of a handle: these are Idle, Queued,")
    assert await home.tab.run(ROWS) == 0


async def test_a_run_of_a_flow_is_shown_with_the_name_of_the_flow(home):
    ask = flow("ask:approved -, ask:denied -", ask={"kind": "approval", "params": {"approval_key": "$shared.ask"}})
    await home.engine.flows.publish("order", ask)
    await home.engine.set_concurrency("flow", 1)
    ticket = await home.engine.flows.start("order", handle="alice")
    second = await home.engine.flows.start("order", handle="alice", on_conflict="queue")
    for path, place in {
        "runs": f"#row-{ticket.id} .cell-job",
        f"runs/{ticket.id}": ".about",
        "handles/alice": ".active-run",
        "": ".interrupt-head",
    }.items():
        await home.tab.open(f"{home.url}/{path}")
        await home.tab.until_text("flow order", place)
    await home.tab.open(f"{home.url}/handles/alice")
    await home.tab.until_text(f"…{second.id[-8:]} flow order", ".waiting")
    name = f"document.querySelector('#row-{ticket.id} .row-link').ariaLabel"
    await home.tab.open(f"{home.url}/runs")
    await home.tab.until(f"{name} === 'run …{ticket.id[-8:]}: flow order'")
