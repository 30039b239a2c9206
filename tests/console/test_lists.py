"""What the lists of runs promise: which runs an action reaches, what they read again, and where a person returns to."""

from __future__ import annotations

from typing import Any

from greenroom import Ticket

from ..clients.browser import needs_browser
from ..clients.proxy import proxy
from .house import ADDED, House, without_failed_connections

pytestmark = needs_browser

CHECKED = "document.querySelectorAll('.virtual-rows input:checked').length"
ALL_CHECKED = "document.querySelector('[aria-label=\"Select all\"]').checked"


def rows(count: int) -> str:
    """Whether the list has this many rows."""
    return f"document.querySelectorAll('.virtual-rows .row').length === {count}"


async def queue(home: House, count: int, lane: str = "main") -> list[Ticket[Any]]:
    """Runs that wait for a slot, since there is none."""
    await home.engine.set_max_concurrent(0)
    runs = [
        {"job": "add", "handle": f"{lane} {number}", "lane": lane, "params": ADDED} for number in range(count)
    ]
    return await home.engine.submit_many(runs)


async def statuses(home: House, tickets: list[Ticket[Any]]) -> list[str]:
    return [str((await home.engine.get_run(ticket.id)).status) for ticket in tickets]


async def test_another_filter_begins_with_no_selection(home):
    first = await queue(home, 3, "a")
    second = await queue(home, 3, "b")
    await home.tab.open(f"{home.url}/runs?lane=a")
    await home.tab.until(rows(3))
    await home.tab.click("Select all")
    await home.tab.until_text("3 selected", ".bulk")
    await home.tab.fill(".field:nth-of-type(4) input", "b")
    await home.tab.until("location.search === '?lane=b'")
    await home.tab.until("!document.querySelector('.bulk')")
    assert await home.tab.run(CHECKED) == 0
    assert not await home.tab.run(ALL_CHECKED)
    await home.tab.click("Select all")
    await home.tab.click("Cancel 3", ".bulk")
    await home.tab.click("Cancel, keep files", "dialog")
    await home.tab.until_text("3 runs cancelled", ".toasts")
    assert await statuses(home, first) == ["queued"] * 3
    assert await statuses(home, second) == ["cancelled"] * 3


async def test_runs_that_leave_the_list_are_not_reached_by_an_action(home):
    tickets = [await home.engine.submit("wait", handle=f"h{number}") for number in range(3)]
    await home.tab.open(f"{home.url}/runs?status=running")
    await home.tab.until(rows(3))
    await home.tab.click("Select all")
    await home.engine.inject("h0", "go")
    await home.tab.until_text("2 of 3 selected are still in the list", ".bulk")
    assert await home.tab.run(ALL_CHECKED)
    await home.tab.click("Cancel 2", ".bulk")
    await home.tab.until_text(tickets[1].id[-8:], "dialog")
    assert tickets[0].id[-8:] not in await home.tab.text("dialog")
    await home.engine.inject("h1", "go")
    await home.tab.until_text("1 of 3 selected", ".bulk")
    await home.tab.click("Cancel, keep files", "dialog")
    await home.tab.until_text("1 run left the list meanwhile: nothing is sent for them", ".toast.error")
    await home.tab.until_text("1 run cancelled", ".toasts")
    await tickets[2].wait()
    assert await statuses(home, tickets) == ["succeeded", "succeeded", "cancelled"]


async def test_nothing_is_sent_for_selected_runs_after_the_connection_was_lost(home):
    tickets = await queue(home, 300)
    async with proxy(home.gateway.port) as between:
        await home.tab.open(f"http://127.0.0.1:{between.port}/runs?status=queued")
        await home.tab.until_text("300", ".title")
        await home.tab.click("Select all")
        await home.tab.click("Cancel 300", ".bulk")
        before = (await home.engine.snapshot()).seq
        between.drops_replies = True
        await home.tab.click("Cancel, keep files", "dialog")
        cancelled = 0
        async for event in home.engine.events(after=before):
            cancelled += event.type == "run_state_changed"
            if cancelled == 100:
                break
        between.cut()
        between.drops_replies = False
        said = "The connection was lost: 0 runs cancelled, 100 unknown, 200 not sent."
        await home.tab.until_text(said, ".toast.error")
        await home.tab.until_text("live", ".connection")
        await home.tab.until_text("200 of 300 selected are still in the list", ".bulk")
    found = await statuses(home, tickets)
    assert (found.count("cancelled"), found.count("queued")) == (100, 200)
    home.tab.problems = without_failed_connections(home.tab.problems)


async def test_nothing_more_is_submitted_again_after_the_connection_was_lost_and_is_back(home):
    """A rerun has a request id: what was sent is answered when the connection is back, but nothing follows."""
    tickets = await queue(home, 150)
    for ticket in tickets:
        await home.engine.cancel(ticket.id)
    async with proxy(home.gateway.port) as between:
        await home.tab.open(f"http://127.0.0.1:{between.port}/runs?status=cancelled")
        await home.tab.until_text("150", ".title")
        await home.tab.click("Select all")
        await home.tab.click("Rerun 150", ".bulk")
        before = (await home.engine.snapshot()).seq
        between.drops_replies = True
        await home.tab.click("Rerun", "dialog")
        async for _ in home.engine.events(after=before):
            break
        between.cut()
        between.drops_replies = False
        said = "The connection was lost: 100 runs submitted again, 0 unknown, 50 not sent."
        await home.tab.until_text(said, ".toasts")
        await home.tab.until_text("50 selected", ".bulk")
    assert len(await home.engine.list_runs(status="queued", limit=1000)) == 100
    home.tab.problems = without_failed_connections(home.tab.problems)
