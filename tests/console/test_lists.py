"""The lists of runs: which runs an action reaches, what they read again, and where a person returns to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio

from greenroom import Ticket, connect, open_engine

from ..clients.browser import needs_browser
from ..clients.javascript import needs_node, run_node
from ..clients.proxy import proxy
from ..clients.test_killed_server import server
from .chromium import Tab, open_browser
from .house import ADDED, House, delete_store, flood, make_jobs, visited, without_failed_connections
from .judging import SIDEWAYS, needs_axe, serious
from .test_modules import load
from .test_runs import scroll_to_the_end

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
    assert await home.tab.run("document.activeElement.innerText") == "Back"
    await home.engine.inject("h1", "go")
    await home.tab.until_text("1 of 3 selected", ".bulk")
    await home.tab.click("Cancel, keep files", "dialog")
    await home.tab.until_text("1 run left the list meanwhile: nothing is sent for them", ".toast.error")
    await home.tab.until_text("1 run cancelled", ".toasts")
    await tickets[2].wait()
    assert await statuses(home, tickets) == ["succeeded", "succeeded", "cancelled"]


@needs_axe
async def test_a_question_about_many_runs_names_the_first_ones_and_can_be_read_by_all(home):
    tickets = await queue(home, 120)
    await home.tab.open(f"{home.url}/runs")
    await home.tab.until_text("120", ".title")
    await home.tab.click("Select all")
    for width in (1280, 360):
        await home.tab.resize(width, 800, "dark")
        await home.tab.click("Cancel 120", ".bulk")
        await home.tab.until_text("and 20 more", "dialog")
        assert tickets[-1].id[-8:] in await home.tab.text("dialog")
        assert await serious(home.tab) == []
        assert await home.tab.run(SIDEWAYS) == 0
        await home.tab.click("Back", "dialog")


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
    """What was sent is answered when the connection is back. Nothing follows."""
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


async def test_a_selected_run_stays_in_the_list_when_the_state_forgets_it(home):
    ticket = await home.engine.submit("fail", handle="alice", params="no")
    await ticket.wait()
    await home.tab.open(f"{home.url}/runs?status=failed")
    await home.tab.until(rows(1))
    await home.tab.click("Select all")
    await flood(home, 1100)
    await home.tab.until("document.querySelector('.title .number').innerText === '1+'")
    await home.tab.click("Retry 1", ".bulk")
    await home.tab.until_text("1 run submitted again", ".toasts")


async def check_after(tab: Tab, milliseconds: int) -> None:
    """Let the pages of a tab look for deleted runs at another time after events."""
    source = """(() => {
        const wait = window.setTimeout;
        window.setTimeout = (call, delay) => wait(call, delay === 30_000 ? MILLISECONDS : delay);
    })()"""
    await tab.call(
        "Page.addScriptToEvaluateOnNewDocument", source=source.replace("MILLISECONDS", str(milliseconds))
    )


async def test_lists_forget_what_they_read_from_a_store_that_was_replaced(tmp_path: Path):
    with server(tmp_path) as program:
        async with open_browser() as browser:
            list_, handle = await browser.tab(), await browser.tab()
            for tab in (list_, handle):
                await check_after(tab, 1_000_000)  # not within the test
            await program.listens()
            async with connect(program.url) as client:
                for part in range(0, 1100, 550):
                    runs = [
                        {"job": "count", "handle": f"h{number}", "params": {"to": 1}}
                        for number in range(part, part + 550)
                    ]
                    for ticket in await client.submit_many(runs):
                        await ticket.result()
                for _ in range(30):
                    await (await client.submit("count", handle="alice", params={"to": 1})).result()
            url = program.url.replace("ws", "http")
            await list_.open(f"{url}/runs")
            await scroll_to_the_end(list_, "1,130")
            await list_.click("Select all")
            await list_.until_text("1130 selected", ".bulk")
            await handle.open(f"{url}/handles/alice")
            await handle.click("Older runs")
            await handle.until("document.querySelectorAll('tbody tr').length === 30")
            program.kill()
            delete_store(tmp_path)
            program.start()
            await program.listens()
            await list_.until_text("There are no runs yet.")
            await list_.until("!document.querySelector('.bulk')")
            await handle.until_text("There are no runs yet.")
            await handle.until_text("Idle", ".title")
            async with connect(program.url) as client:
                ticket = await client.submit("count", handle="alice", params={"to": 1})
                await ticket.result()
            await list_.until("document.querySelectorAll('.virtual-rows .row').length === 1")
            await handle.until("document.querySelectorAll('tbody tr').length === 1")


async def test_runs_that_retention_deletes_leave_open_lists():
    jobs = make_jobs(trio.Event())
    async with (
        open_engine(jobs, "memory:", max_concurrent=4, keep_runs=20) as engine,
        visited(engine) as home,
    ):
        ticket = await engine.submit("add", handle="alice", params=ADDED)
        await ticket.result()
        await check_after(home.tab, 300)
        await home.tab.open(f"{home.url}/handles/alice")
        await home.tab.until_text(ticket.id[-8:], "tbody")
        other = await home.browser.tab()
        await other.open(f"{home.url}/runs?handle=alice")
        await other.click("Select all")
        await flood(home, 1100)
        await home.tab.until_text("There are no runs yet.")
        await other.until_text("1 selected", ".bulk")
        await other.run("document.dispatchEvent(new Event('visibilitychange'))")
        await other.until_text("0 of 1 selected are still in the list", ".bulk")
        assert other.problems == []


FIRST_ROW = """[...document.querySelectorAll('.virtual-rows .row')]
    .find((one) => parseInt(one.style.top) >= document.querySelector('.virtual').scrollTop)?.id"""


async def test_back_shows_rows_that_were_read_from_the_store(home):
    await flood(home, 2700)
    await home.tab.open(f"{home.url}/runs?job=add")
    await scroll_to_the_end(home.tab, "2,700")
    await home.tab.run("document.querySelector('.virtual').scrollTop = 2300 * 36 + 5")
    await home.tab.until("document.querySelector('[aria-rowindex=\"2303\"]')")
    left = await home.tab.run(FIRST_ROW)
    await home.tab.run(f"document.querySelector('#{left} .row-link').click()")
    await home.tab.until_text(left.removeprefix("row-"), ".about")
    await (await home.engine.submit("add", handle="new", params=ADDED)).result()
    await home.tab.run("history.back()")
    await home.tab.until(f"{FIRST_ROW} === '{left}'")
    assert await home.tab.run("document.querySelector('.virtual').scrollTop") == 2301 * 36 + 5
    await home.tab.until("!document.querySelector('.title').innerText.includes('Reading')")


async def test_a_person_who_scrolls_after_coming_back_is_not_moved(home):
    await flood(home, 2100)
    await home.tab.open(f"{home.url}/runs")
    await scroll_to_the_end(home.tab, "2,100")
    await home.tab.run("document.querySelector('.virtual').scrollTop = 1800 * 36")
    await home.tab.until("document.querySelector('[aria-rowindex=\"1803\"]')")
    await home.tab.run("document.querySelector('[aria-rowindex=\"1803\"] .row-link').click()")
    await home.tab.until("document.querySelector('.about')")
    await home.tab.run(
        """(() => {
            history.back();
            const scroll = () => {
                const list = document.querySelector(".virtual");
                if (list) list.scrollTop = 40 * 36;
                else requestAnimationFrame(scroll);
            };
            scroll();
        })()"""
    )
    await home.tab.until("document.querySelector('.title').innerText.includes('2,')")
    await home.tab.until("!document.querySelector('.title').innerText.includes('Reading')")
    assert await home.tab.run("document.querySelector('.virtual').scrollTop") == 40 * 36


async def test_the_keys_continue_from_where_the_active_row_was(home):
    tickets = (await queue(home, 6))[::-1]
    await home.tab.open(f"{home.url}/runs?status=queued")
    await home.tab.until(rows(6))
    active = "document.querySelector('.row.active')?.id"
    for row in range(4):
        await home.tab.press("j")
        await home.tab.until(f"{active} === 'row-{tickets[row].id}'")
    await home.engine.cancel(tickets[3].id)
    await home.tab.until_text("cancelled", ".row.active")
    await home.tab.press("j")
    await home.tab.until(f"{active} === 'row-{tickets[4].id}'")
    await home.engine.cancel(tickets[4].id)
    await home.tab.until_text("cancelled", ".row.active")
    await home.tab.press("k")
    await home.tab.until(f"{active} === 'row-{tickets[3].id}'")
    await home.tab.press("Escape")
    await home.tab.until(rows(4))


@needs_node
async def test_the_keys_find_their_place_in_every_list():
    program = (
        load("views/handles/names.js", "views/runs/rows.js")
        + """
        const names = new Names();
        names.update(["d", "b", "f"]);
        const rows = new Rows(() => true);
        rows.rebuild(new Map(["b", "d", "f"].map((id) => [id, { id }])));
        answer([names, rows].map((list) => ["a", "b", "c", "e", "f", "g"].map((key) => list.below(key))));
        """
    )
    assert await run_node(program) == [[0, 1, 1, 2, 3, 3], [3, 3, 2, 1, 1, 0]]


@needs_node
async def test_only_deleted_runs_of_the_range_that_was_read_leave_the_rows():
    program = (
        load("views/runs/rows.js")
        + """
        const run = (id) => ({ id: `${id}`, status: "succeeded" });
        const of = (...found) => {
            const rows = new Rows(() => true);
            const state = new Map([["9", run(9)]]);
            rows.rebuild(state);
            rows.add([run(9), run(8), run(6), run(5), run(3)]);
            rows.removeDeleted(...found, state);
            return Array.from({ length: rows.count }, (_, row) => rows.at(row)).join("");
        };
        answer([
            of([run(8)], undefined, "4"),
            of([], "8", "5"),
            of([run(3)], "6", undefined),
            of([], undefined, undefined),
        ]);
        """
    )
    assert await run_node(program) == ["983", "983", "9863", "9"]
