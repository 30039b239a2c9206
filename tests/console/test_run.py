"""A run in the console: the end of a long history first, its events by type, and its family."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from greenroom import Jobs, Run, connect, open_engine

from ..clients.browser import needs_browser
from ..clients.proxy import proxy
from ..clients.test_killed_server import server
from ..cluster.world import until
from .chromium import open_browser
from .house import House, delete_store, flood, visited

pytestmark = needs_browser

jobs = Jobs()


@jobs.job("log")
async def log(run: Run, params: Any) -> None:
    for number in range(params):
        await run.log(f"line {number}")


@jobs.job("follow")
async def follow(run: Run, params: Any) -> None:
    await run.log(await run.next_message())
    await run.next_message()


@jobs.job("talk")
async def talk(run: Run, params: Any) -> None:
    while True:
        message = await run.next_message()
        if message == "warn":
            await run.log("careful", level="warning")
        else:
            for number in range(message):
                await run.log(f"line {number}")


@jobs.job("report")
async def report(run: Run, params: Any) -> None:
    await run.progress(*params)
    await run.next_message()


@jobs.job("parent")
async def parent(run: Run, params: Any) -> Any:
    return await run.call("follow", handle="child")


@jobs.job("parent of many")
async def parent_of_many(run: Run, params: Any) -> None:
    for number in range(params):
        await run.call("log", handle=f"child {number}", params=0)


@pytest.fixture
async def home() -> AsyncIterator[House]:
    async with (
        open_engine(jobs, "memory:", max_concurrent=9, shutdown_timeout=0) as engine,
        visited(engine) as home,
    ):
        yield home


async def test_the_end_of_a_long_history_is_read_first(home):
    ticket = await home.engine.submit("log", handle="alice", params=1100)
    await ticket.result()
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until_text("line 1099", ".log")
    await home.tab.until_text("299 earlier lines")  # of 500 events, of which the last is no line
    await home.tab.click("Read earlier events")
    await home.tab.until_text("799 earlier lines")
    await home.tab.click("Read earlier events")
    await home.tab.until_text("900 earlier lines")
    await home.tab.until("document.querySelectorAll('.timeline li').length === 3")
    assert "Read earlier events" not in await home.tab.text()


async def test_the_time_line_of_a_long_history_begins_and_ends_with_the_run(home):
    ticket = await home.engine.submit("talk", handle="alice")
    logs = home.engine.events(filter={"types": ["run_log"]})
    await home.engine.inject("alice", 600)
    async for log in logs:
        if log.text == "line 599":
            break
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until_text("line 599", ".log")
    bars = "[...document.querySelectorAll('.timeline .bar')].map((one) => one.className)"
    await home.tab.until(f"JSON.stringify({bars}).includes('bar running')")
    assert "queued" in await home.tab.text(".timeline")
    await home.engine.cancel(ticket.id)
    await ticket.wait(30)
    record = await home.engine.get_run(ticket.id)
    took = record.ended_at - record.created_at
    shown = f"after {took * 1000:.0f} ms" if took < 1 else "after "
    await home.tab.until_text(shown, ".timeline")
    await home.tab.click("Read earlier events")
    await home.tab.until("!document.querySelector('.timeline .unread')")


async def test_what_happens_is_added_to_the_end(home):
    ticket = await home.engine.submit("follow", handle="alice")
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until_text("running", ".title")
    await home.engine.inject("alice", "said")
    await home.tab.until_text("said", ".log")
    await home.engine.inject("alice", "go")
    await ticket.result()
    await home.tab.until("document.querySelectorAll('.timeline li').length === 3")


async def test_events_are_filtered_by_type(home):
    ticket = await home.engine.submit("log", handle="alice", params=3)
    await ticket.result()
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until_text("line 2", ".log")
    await home.tab.run("document.querySelector('details.card').open = true")
    count = "document.querySelectorAll('details.card .events > li').length"
    await home.tab.until(f"{count} === 6")
    await home.tab.click("run_log", "details.card")
    await home.tab.until(f"{count} === 3")
    await home.tab.click("run_log", "details.card")
    await home.tab.until(f"{count} === 6")


async def test_a_run_shows_its_children_and_they_link_to_their_parent(home):
    ticket = await home.engine.submit("parent", handle="alice")
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until_text("follow", "[aria-labelledby=children-title]")
    await home.tab.until("document.querySelector('.timeline .bars.called .bar')")
    [child] = await home.engine.list_runs(parent=ticket.id)
    await home.tab.click(f"…{child.id[-8:]}", "[aria-labelledby=children-title]")
    await home.tab.until_text("follow", "h1")
    assert await home.path() == f"/runs/{child.id}"
    assert not await home.tab.run("document.querySelector('[aria-labelledby=children-title]')")
    await home.tab.click(ticket.id, ".about")
    await home.tab.until_text("parent", "h1")
    await home.engine.inject("child", "said")
    await home.engine.inject("child", "go")
    await home.tab.until_text("succeeded", "[aria-labelledby=children-title]")
    await home.tab.click("All children of this run")
    await home.tab.until(f"document.getElementById('row-{child.id}')")
    assert await home.path() == f"/runs?parent={ticket.id}"
    assert await home.tab.run("document.querySelectorAll('.virtual-rows .row').length") == 1
    await home.tab.click(f"children of …{ticket.id[-8:]}")
    await home.tab.until("document.querySelectorAll('.virtual-rows .row').length === 2")


async def test_older_children_are_read_page_by_page(home):
    ticket = await home.engine.submit("parent of many", handle="alice", params=30)
    await ticket.result()
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    rows = "document.querySelectorAll('[aria-labelledby=children-title] tbody tr').length"
    await home.tab.until(f"{rows} === 25")
    await home.tab.click("Older runs")
    await home.tab.until(f"{rows} === 30")
    await home.tab.until(
        "![...document.querySelectorAll('button')].some((one) => one.innerText === 'Older runs')"
    )


LOG = "document.querySelector('.log')"
GAP = f"({LOG}.scrollHeight - {LOG}.scrollTop - {LOG}.clientHeight)"


async def test_the_log_follows_its_end_until_one_scrolls_up(home):
    ticket = await home.engine.submit("talk", handle="alice")
    await home.engine.inject("alice", 300)
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until_text("line 299", ".log")
    await home.tab.until(f"{LOG}.scrollTop > 0 && {GAP} < 5")
    await home.engine.inject("alice", 50)
    await home.tab.until_text("line 49", ".log")
    await home.tab.until(f"{GAP} < 5")
    await home.tab.run(f"{LOG}.scrollTop = 500")
    await home.tab.click("Follow")
    await home.tab.until(f"{GAP} < 5")
    await home.tab.run(f"{LOG}.scrollTop = 500")
    await home.tab.until_text("Follow", ".log-tools")
    top = await home.tab.run(f"{LOG}.querySelector('li').innerText")
    await home.engine.inject("alice", 30)
    await home.tab.until_text("Follow: 30 new", ".log-tools")
    assert await home.tab.run(f"[{LOG}.scrollTop, {LOG}.querySelector('li').innerText]") == [500, top]
    await home.tab.run(f"{LOG}.scrollTop = {LOG}.scrollHeight")
    await home.tab.until("!document.querySelector('.log-tools').innerText.includes('Follow')")
    await home.tab.until(f"{GAP} < 5")
    assert "line 29\n" in await home.tab.text(".log") + "\n"


async def test_earlier_lines_do_not_move_the_shown_ones(home):
    ticket = await home.engine.submit("log", handle="alice", params=450)
    await ticket.result()
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until_text("line 449", ".log")
    await home.tab.run(f"{LOG}.scrollTop = 100")
    await home.tab.until_text("Follow", ".log-tools")
    gap = await home.tab.run(GAP)
    await home.tab.click("250 earlier lines")
    await home.tab.until_text("line 0\n", ".log")
    assert await home.tab.run(GAP) == gap


async def test_the_log_is_filtered_by_text_and_level(home):
    ticket = await home.engine.submit("talk", handle="alice")
    await home.engine.inject("alice", 12)
    await home.engine.inject("alice", "warn")
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    lines = "document.querySelectorAll('.log li').length"
    await home.tab.until(f"{lines} === 13")
    await home.tab.fill(".log-tools input", "LINE 1")
    await home.tab.until(f"{lines} === 3")
    await home.tab.fill(".log-tools input", "")
    await home.tab.click("warning", ".log-tools")
    await home.tab.until(f"{lines} === 1")
    await home.tab.fill(".log-tools input", "nothing")
    await home.tab.until_text("No line matches.")


async def test_the_whole_log_is_downloaded_as_text(home, tmp_path: Path):
    ticket = await home.engine.submit("log", handle="alice", params=1100)
    await ticket.result()
    await home.tab.save_downloads(tmp_path)
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.click("Download log")
    await until(lambda: [*tmp_path.glob("log-*.txt")])  # Chromium renames it at the end
    lines = (tmp_path / f"log-{ticket.id}.txt").read_text(encoding="utf-8").splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == [f"info line {number}" for number in range(1100)]


@pytest.mark.parametrize(
    ("done", "total", "shown"),
    [
        (30, 200, "30 / 200"),
        (123_456, 9_999_999, "1%"),
        (0.1234567891234567, 1, "12%"),
        (12345678901234567, None, "T"),
    ],
)
async def test_the_progress_in_the_list_is_never_cut_off(done, total, shown, home):
    await home.engine.submit("report", handle="alice", params=[done, total])
    await home.tab.open(f"{home.url}/runs")
    for cell in (".cell-reason", ".cell-progress"):
        await home.tab.until_text(shown, cell)
        assert await home.tab.run(
            f"""(() => {{
                const cell = document.querySelector("{cell}").getBoundingClientRect();
                const number = document.querySelector("{cell} .number").getBoundingClientRect();
                return number.right <= cell.right;
            }})()"""
        )
        await home.tab.run(
            """[...document.querySelectorAll(".menu.last label")]
                .find((one) => one.textContent.trim() === "Progress").click()"""
        )


async def test_a_run_says_why_it_waits(home):
    await home.engine.set_concurrency("narrow", 1)
    first = await home.engine.submit("follow", handle="a", lane="narrow")
    await home.engine.submit("follow", handle="b", lane="narrow")
    third = await home.engine.submit("follow", handle="c", lane="narrow")
    behind = await home.engine.submit("follow", handle="a", lane="narrow", on_conflict="queue")
    later = await home.engine.submit("follow", handle="d", delay=3600)
    await home.tab.open(f"{home.url}/runs/{third.id}")
    await home.tab.until_text("lane narrow: 1 of 1 slots of the lane are in use", ".waits")
    await home.tab.until_text("1 run of the lane comes before it.", ".waits")
    await home.tab.until_text(f"The slots are used by …{first.id[-8:]} follow of a.", ".waits")
    await home.engine.submit("follow", handle="first", lane="narrow", priority=10)
    await home.tab.until_text("2 runs of the lane come before it.", ".waits")
    await home.engine.pause_lane("narrow")
    await home.tab.until_text("the lane is paused", ".waits")
    await home.tab.open(f"{home.url}/runs/{behind.id}")
    await home.tab.until_text(
        f"The handle a is busy with run …{first.id[-8:]} follow of a. This run is the next one.", ".waits"
    )
    await home.tab.open(f"{home.url}/runs/{later.id}")
    await home.tab.until_text("It does not start before", ".waits")
    await home.tab.open(f"{home.url}/runs/{first.id}")
    await home.tab.until_text("running", ".title")
    assert not await home.tab.run("document.querySelector('.waits')")


async def test_a_run_names_its_handle_and_who_submitted_it_also_in_the_question_to_cancel(home):
    ticket = await home.engine.submit("follow", handle="alice")
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until_text("follow of alice", "h1")
    await home.tab.until_text("Submitted by", ".about")
    await home.tab.click("Cancel")
    await home.tab.until_text(f"Cancel run …{ticket.id[-8:]}?", "dialog")
    await home.tab.until_text("It executes follow for the handle alice.", "dialog")
    await home.tab.until_text("Keep files: those that it has finished stay", "dialog")


async def test_many_runs_are_submitted_again_only_after_a_question(home):
    tickets = [await home.engine.submit("log", handle=f"h{number}", params=0) for number in range(3)]
    for ticket in tickets:
        await ticket.wait(30)
    await home.tab.open(f"{home.url}/runs")
    await home.tab.until("document.querySelectorAll('.virtual-rows .row').length === 3")
    await home.tab.click("Select all")
    await home.tab.click("Rerun 3", ".bulk")
    await home.tab.until_text("Rerun 3 runs?", "dialog")
    await home.tab.until_text("a new run with the same job", "dialog")
    await home.tab.click("Back", "dialog")
    assert len(await home.engine.list_runs()) == 3
    await home.tab.click("Rerun 3", ".bulk")
    await home.tab.click("Rerun", "dialog")
    await home.tab.until_text("3 runs submitted again", ".toasts")
    assert len(await home.engine.list_runs()) == 6


async def test_a_run_that_ended_and_was_forgotten_while_the_page_was_disconnected_is_read_again(home):
    ticket = await home.engine.submit("follow", handle="alice")
    async with proxy(home.gateway.port) as between:
        await home.tab.open(f"http://127.0.0.1:{between.port}/runs/{ticket.id}")
        await home.tab.until_text("running", ".title")
        between.refuses = True
        between.cut()
        for message in ("one", "two"):
            await home.engine.inject("alice", message)
        await ticket.result()
        await flood(home, 3000, job="log", params=0)
        between.refuses = False
        await home.tab.until_text("succeeded", ".title")
        assert "Cancel" not in await home.tab.text(".title")
    home.tab.problems = [one for one in home.tab.problems if "WebSocket connection" not in one]


async def test_the_address_of_a_handle_opens_its_active_run_and_follows_it(home):
    ticket = await home.engine.submit("follow", handle="alice")
    await home.tab.open(f"{home.url}/runs/alice")
    await home.tab.until(f"location.pathname === '/runs/{ticket.id}'")
    await home.tab.until_text("running", ".title")
    for message in ("one", "two"):
        await home.engine.inject("alice", message)
    await home.tab.until_text("succeeded", ".title")


async def test_a_run_that_a_new_store_does_not_have_is_not_shown(tmp_path):
    with server(tmp_path) as program:
        async with open_browser() as browser:
            tab = await browser.tab()
            await program.listens()
            async with connect(program.url) as client:
                ticket = await client.submit("count", handle="alice", params={"to": 100_000})
                await tab.open(f"{program.url.replace('ws', 'http')}/runs/{ticket.id}")
                await tab.until_text("running", ".title")
            program.kill()
            await tab.until_text("reconnecting", ".connection")
            delete_store(tmp_path)
            program.start()
            await program.listens()
            await tab.until_text("not found", ".error-text")
