"""A run in the console: the end of a long history first, its events by type, and its parent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from greenroom import Jobs, Run, open_engine
from greenroom.gateway import GatewayConfig, open_gateway

from ..clients.browser import needs_browser
from .chromium import open_browser
from .test_pages import House

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


async def test_a_child_links_to_its_parent(home):
    ticket = await home.engine.submit("parent", handle="alice")
    await home.tab.open(f"{home.url}/handles/child")
    await home.tab.until("document.querySelector('.active-run a')")
    await home.tab.run("document.querySelector('.active-run a').click()")
    await home.tab.click(ticket.id, ".about")
    await home.tab.until(f"location.pathname === '/runs/{ticket.id}'")
    await home.tab.until_text("parent", "h1")
