"""A run in the console: the end of a long history first, its events by type, and its family."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from greenroom import Jobs, Run, connect, open_engine
from greenroom.gateway import GatewayConfig, open_gateway

from ..clients.browser import needs_browser
from ..clients.proxy import proxy
from ..clients.test_killed_server import server
from .chromium import open_browser
from .test_pages import House, delete_store

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


@jobs.job("parent")
async def parent(run: Run, params: Any) -> Any:
    return await run.call("follow", handle="child")


@jobs.job("parent of many")
async def parent_of_many(run: Run, params: Any) -> None:
    for number in range(params):
        await run.call("log", handle=f"child {number}", params=0)


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[House]:
    async with (
        open_engine(jobs, "memory:", max_concurrent=9, shutdown_timeout=0) as engine,
        open_gateway(engine, GatewayConfig(port=0)) as gateway,
        open_browser(tmp_path) as browser,
    ):
        home = House(engine, gateway, browser, await browser.tab())
        yield home
        assert home.tab.problems == []


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
    await home.tab.click(f"children of …{ticket.id[-8:]} ✕")
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


async def flood(home: House, count: int) -> None:
    """Let so many other runs end that the state forgets older ones, and clients need a new snapshot."""
    for first in range(0, count, 1000):
        runs = [{"job": "log", "handle": f"other {first + number}", "params": 0} for number in range(1000)]
        for ticket in await home.engine.submit_many(runs):
            await ticket.result()


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
        await flood(home, 3000)
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
        async with open_browser(tmp_path) as browser:
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
