"""The console in a real Chromium, in front of a real server: each view, actions, roles, lost connections, and
hostile text. No test leaves an error on the console, or a violation of the Content-Security-Policy."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from greenroom import Engine, Jobs, Run, connect, open_engine
from greenroom.actors.engine import reads
from greenroom.gateway import Gateway, GatewayConfig, Role, add_token, open_gateway
from greenroom.protocol.errors import Unavailable

from ..clients.browser import needs_browser
from ..clients.javascript import ROOT
from ..clients.proxy import proxy
from ..clients.test_killed_server import server
from ..clients.test_prefix import REFUSALS, behind_proxy
from ..support import until
from .chromium import Browser, Tab, open_browser

pytestmark = needs_browser

AXE = ROOT / ".venv" / "node_modules" / "axe-core" / "axe.min.js"
"""The package `axe-core`, which `python3 -m tests` fetches."""
needs_axe = pytest.mark.skipif(not AXE.exists(), reason="there is no axe-core")

PRINTABLE = "<img src=x onerror=\"document.title='owned'\"> \u05e9\u05dc\u05d5\u05dd " + "w" * 60
HOSTILE = (
    "<img src=x onerror=\"document.title='owned'\">"
    "</script><script>document.title='owned'</script>"
    "\u202eevil\u202c \u05e9\u05dc\u05d5\u05dd \u0007\u001b[31m" + "w" * 300
)


def make_jobs(over: trio.Event) -> Jobs:
    """The jobs of a test. A stubborn body ignores its cancellation until the test is `over`."""
    jobs = Jobs()

    @jobs.job("add")
    async def add(run: Run, params: Any) -> Any:
        await run.log("adding")
        return {"sum": params["a"] + params["b"]}

    @jobs.job("wait")
    async def wait(run: Run, params: Any) -> Any:
        await run.progress(1, 4, speed="slow")
        return await run.next_message()

    @jobs.job("ask")
    async def ask(run: Run, params: Any) -> Any:
        return dict(await run.interrupt({"question": "Publish?"}))

    @jobs.job("fail")
    async def fail(run: Run, params: Any) -> Any:
        raise ValueError(params)

    @jobs.job("stubborn", grace=0.05)
    async def stubborn(run: Run) -> None:
        with trio.CancelScope(shield=True):
            await over.wait()

    @jobs.job("hostile")
    async def hostile(run: Run, params: Any) -> Any:
        await run.log(HOSTILE)
        await run.progress(1, 2, note=HOSTILE)
        await run.interrupt({HOSTILE: HOSTILE}, key=PRINTABLE)

    return jobs


class House:
    """An engine with its gateway, and a tab that shows the console."""

    def __init__(self, engine: Engine, gateway: Gateway, browser: Browser, tab: Tab) -> None:
        self.engine = engine
        self.gateway = gateway
        self.url = gateway.url
        self.browser = browser
        self.tab = tab

    async def path(self) -> str:
        """The address of the page without its origin."""
        return str(await self.tab.run("location.pathname + location.search"))


@asynccontextmanager
async def house(**config: Any) -> AsyncIterator[House]:
    settings = GatewayConfig(port=0, **config)
    over = trio.Event()
    async with (
        open_engine(
            make_jobs(over), "memory:", max_concurrent=4, lanes={"images": 2}, shutdown_timeout=0
        ) as engine,
        open_gateway(engine, settings) as gateway,
        open_browser() as browser,
    ):
        tab = await browser.tab()
        try:
            yield House(engine, gateway, browser, tab)
        finally:
            over.set()
        assert tab.problems == []


@pytest.fixture
async def home() -> AsyncIterator[House]:
    async with house() as home:
        yield home


# The overview.


async def test_the_overview_shows_numbers_that_move(home):
    await home.tab.open(home.url)
    await home.tab.until_text("0 of 4")
    ticket = await home.engine.submit("wait", handle="alice")
    await home.tab.until_text("1 of 4")
    await home.engine.inject("alice", "go")
    await ticket.result()
    await home.tab.until_text("0 of 4")
    await home.engine.submit("fail", handle="bob", params="no")
    await home.tab.until("document.querySelector('.tile.failed strong')?.innerText === '1'")


async def test_a_limit_is_moved_with_a_slider(home):
    await home.tab.open(home.url)
    await home.tab.until("document.querySelector('[aria-label=\"Change the limit of lane images\"]')")
    await home.tab.run(
        """(() => {
            const slider = document.querySelector('[aria-label="Change the limit of lane images"]');
            slider.value = 5;
            slider.dispatchEvent(new Event("input", { bubbles: true }));
            slider.dispatchEvent(new Event("change", { bubbles: true }));
        })()"""
    )
    await home.tab.until("document.querySelector('[aria-label=\"the limit of lane images\"]')?.value === '5'")
    limit = "fetch('/api/lanes/images').then((found) => found.json()).then(({ limit }) => limit === 5)"
    await home.tab.until(limit)


async def test_a_limit_that_is_being_written_is_kept_while_runs_start_and_end(home):
    field = '[aria-label="the limit of lane images"]'
    await home.tab.open(home.url)
    await home.tab.until(f"document.querySelector('{field}')?.value === '2'")
    await home.tab.run(f"document.querySelector('{field}').select()")
    await home.tab.call("Input.insertText", text="7")
    ticket = await home.engine.submit("wait", handle="alice", lane="images")
    await home.tab.until_text("1 of 4")
    assert await home.tab.run(f"document.querySelector('{field}').value") == "7"
    await home.engine.inject("alice", "go")
    await ticket.result()
    await home.tab.until_text("0 of 4")
    await home.tab.run(f"document.querySelector('{field}').blur()")
    await home.tab.until(f"document.querySelector('{field}').value === '7'")
    await until(home.engine, lambda snapshot: snapshot.lanes["images"].limit == 7)


async def test_what_is_wrong_comes_first(home):
    await home.engine.set_concurrency("images", 0)
    await home.engine.submit("add", handle="alice", lane="images", params={"a": 1, "b": 2})
    await home.tab.open(home.url)
    await home.tab.until_text("Lane images has the limit 0; 1 queued.", ".problems")
    await home.engine.drain()
    await home.tab.until_text("The engine is draining", ".problems")
    await home.engine.resume()
    await home.engine.set_concurrency("images", 1)
    await home.tab.until("!document.querySelector('.problems')")


async def test_a_body_that_ignores_its_cancellation_is_named_until_its_handle_is_free(home):
    ticket = await home.engine.submit("stubborn", handle="alice")
    await home.tab.open(home.url)
    await home.tab.until_text("1 of 4")
    await ticket.cancel()
    await home.tab.until_text("A body did not end when told to", ".problems")
    assert ticket.id[-8:] in await home.tab.text(".problems")
    await home.engine.release_handle("alice")
    await home.tab.until("!document.querySelector('.problems')")


async def test_numbers_cover_only_what_the_page_knows(home):
    await pass_runs(home, 1000)
    await home.engine.submit("fail", handle="bob", params="no")
    await home.tab.open(home.url)
    await home.tab.until_text("failed since ", ".tile.failed")
    await home.tab.until_text("These are known since ", ".charts")
    assert "&since=20" in await home.tab.run("document.querySelector('.tile.failed').href")
    await home.tab.open(f"{home.url}/handles")
    await home.tab.until_text("1,000+", ".title")
    await home.tab.open(f"{home.url}/runs?job=add")
    await home.tab.until_text("999+", ".title")
    scroll = "document.querySelector('.virtual').scrollTop = 1e9"
    await home.tab.until(f"{scroll}, document.querySelector('.title .number').innerText === '1,000'")


async def test_the_queued_runs_of_the_lanes_add_up(home):
    await home.engine.submit("wait", handle="alice")
    await home.engine.submit("wait", handle="alice", on_conflict="queue")
    await home.engine.submit("wait", handle="bob", delay=3600)
    await home.engine.submit("wait", handle="carol", delay=3600)
    await home.tab.open(home.url)
    await home.tab.until_text("delayed until their time", ".lanes")
    rows = await home.tab.run(
        "[...document.querySelectorAll('.lanes .lane')].map((row) => [row.children[0], row.children[2]])"
        ".map((cells) => cells.map((cell) => cell.innerText))"
    )
    numbers = dict(rows[1:])
    assert numbers["all lanes"] == numbers["main"] == "0"
    assert numbers["delayed until their time"] == "2"
    assert numbers["waiting for their handles"] == "1"


async def test_the_longest_wait_is_that_of_a_run_that_waits(home):
    await home.engine.set_max_concurrent(0)
    await home.engine.submit("wait", handle="alice")
    await home.tab.open(home.url)
    wait = "document.querySelector('.chart:last-of-type strong')?.innerText"
    await home.tab.until(f"parseFloat({wait}) > 1")
    await home.engine.set_max_concurrent(4)
    await home.tab.until(f"{wait} === '0 ms'")


async def test_an_interrupt_is_answered_in_the_overview(home):
    ticket = await home.engine.submit("ask", handle="alice")
    await home.tab.open(home.url)
    await home.tab.until_text("Publish?", ".interrupt")
    await home.tab.click("Approve", ".interrupt")
    assert await ticket.result() == {"approved": True}
    await home.tab.until_text("Approved by", ".interrupt.closed")


# The list of runs.


async def test_the_list_follows_runs_and_its_filter_is_in_the_address(home):
    await home.tab.open(f"{home.url}/runs?status=failed")
    await home.tab.until_text("No run matches the filter.")
    failed = await home.engine.submit("fail", handle="alice", params="no")
    await home.engine.submit("wait", handle="bob")
    await home.tab.until(f"document.getElementById('row-{failed.id}')")
    assert await home.tab.run("document.querySelectorAll('.virtual-rows .row').length") == 1
    await home.tab.click("running")
    await home.tab.until("document.querySelectorAll('.virtual-rows .row').length === 2")
    assert await home.path() == "/runs?status=failed&status=running"
    await home.tab.fill(".field input", "wait")
    await home.tab.until("document.querySelectorAll('.virtual-rows .row').length === 1")
    assert await home.path() == "/runs?status=failed&status=running&job=wait"


@pytest.mark.parametrize("query", ["status=bogus", "staus=running"])
async def test_an_unknown_filter_lists_no_run(query, home):
    await home.engine.submit("wait", handle="alice")
    await home.tab.open(f"{home.url}/runs?{query}")
    await home.tab.until_text("No run is listed, because the filter is unknown", ".error-text")
    assert await home.tab.run("document.querySelectorAll('.virtual-rows .row').length") == 0


async def test_selected_runs_are_cancelled_together(home):
    tickets = [await home.engine.submit("wait", handle=f"handle {number}") for number in range(6)]
    await home.tab.open(f"{home.url}/runs?job=wait")
    await home.tab.until("document.querySelectorAll('.virtual-rows .row').length === 6")
    await home.tab.click("Select all")
    await home.tab.click("Cancel 6", ".bulk")
    await home.tab.click("Cancel, keep files", "dialog")
    await home.tab.until_text("6 runs cancelled", ".toasts")
    for ticket in tickets:
        await ticket.wait()
        assert (await home.engine.get_run(ticket.id)).status == "cancelled"
    await home.tab.click("Select all")
    await home.tab.click("Rerun 6", ".bulk")
    await home.tab.click("Rerun", "dialog")
    await home.tab.until("document.querySelectorAll('.virtual-rows .row').length === 12")


async def test_the_keyboard_moves_in_the_list_and_opens_a_run(home):
    tickets = [await home.engine.submit("wait", handle=f"handle {number}") for number in range(3)]
    await home.tab.open(f"{home.url}/runs")
    await home.tab.until("document.querySelectorAll('.virtual-rows .row').length === 3")
    for key in "jjk":
        await home.tab.press(key)
    await home.tab.until(f"document.querySelector('.row.active')?.id === 'row-{tickets[2].id}'")
    await home.tab.press("j")
    await home.tab.press("Enter")
    await home.tab.until_text(tickets[1].id, ".about")
    await home.tab.press("/")
    await home.tab.call("Input.insertText", text="handle 0")
    await home.tab.press("Enter")
    await home.tab.until("document.querySelectorAll('.virtual-rows .row').length === 1")
    assert await home.path() == "/runs?text=handle+0"
    await home.tab.press("?")
    await home.tab.until_text("Next run", "dialog")


FOCUSED = "document.activeElement?.%s"


async def test_the_focus_is_in_the_list_and_then_at_the_heading_of_the_run(home):
    tickets = [await home.engine.submit("wait", handle=f"handle {number}") for number in range(3)]
    await home.tab.open(f"{home.url}/runs")
    await home.tab.until("document.querySelectorAll('.virtual-rows .row').length === 3")
    await home.tab.press("j")
    await home.tab.until(FOCUSED % f"getAttribute('aria-activedescendant') === 'row-{tickets[2].id}'")
    await home.tab.press("Enter")
    await home.tab.until_text(tickets[2].id, ".about")
    await home.tab.until(FOCUSED % "tagName === 'H1'")
    assert await home.tab.run(FOCUSED % "innerText") == "wait of handle 2"
    await home.tab.run("history.back()")
    await home.tab.until(
        "document.activeElement.tagName === 'H1' && document.activeElement.innerText === 'Runs'"
    )


async def test_the_focus_moves_to_the_heading_when_an_answered_interrupt_disappears(home):
    await home.engine.submit("ask", handle="alice")
    await home.tab.open(f"{home.url}/interrupts")
    await home.tab.until_text("Publish?", ".interrupt")
    await home.tab.press("j")
    await home.tab.press("a")
    await home.tab.until_text("Approved by", ".interrupt")
    assert await home.tab.run(FOCUSED % "className.includes('interrupt')")
    await home.tab.run("document.activeElement.blur()")
    await home.tab.until_text("Nobody waits for an answer.")
    await home.tab.until(FOCUSED % "innerText === 'Interrupts'")


async def test_each_row_is_one_link_to_its_run_and_its_checkbox_names_the_run(home):
    ticket = await home.engine.submit("wait", handle="alice", tags={"user": "u1"})
    await home.tab.open(f"{home.url}/runs")
    row = f"document.getElementById('row-{ticket.id}')"
    await home.tab.until(row)
    stops = f"[...{row}.querySelectorAll('a, input, button')].filter((one) => one.tabIndex >= 0)"
    assert await home.tab.run(f"{stops}.map((one) => one.pathname)") == [f"/runs/{ticket.id}"]
    name = f"Select run …{ticket.id[-8:]}: wait"
    assert await home.tab.run(f"{row}.querySelector('input').ariaLabel") == name
    await home.tab.click(name)
    await home.tab.until_text("1 selected", ".bulk")
    await home.tab.run(f"{row}.querySelector('.row-link').focus()")
    await home.tab.press("Enter")
    await home.tab.until_text(ticket.id, ".about")


async def test_the_title_of_the_tab_names_what_it_shows(home):
    ticket = await home.engine.submit("wait", handle="alice")
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until("document.title === 'wait · alice · running · Runs · Greenroom'")
    await home.engine.inject("alice", "go")
    await home.tab.until("document.title === 'wait · alice · succeeded · Runs · Greenroom'")
    await home.tab.run("document.querySelector('.about a[href$=\"/handles/alice\"]').click()")
    await home.tab.until("document.title === 'alice · Handles · Greenroom'")
    await home.tab.run("document.querySelector('.views a').click()")
    await home.tab.until("document.title === 'Overview · Greenroom'")


async def test_a_long_list_has_few_rows_in_the_page(home):
    await home.engine.set_max_concurrent(0)
    runs = [{"job": "add", "handle": f"h{number}", "params": {"a": 1, "b": 2}} for number in range(5000)]
    await home.engine.submit_many(runs)
    await home.tab.open(f"{home.url}/runs")
    await home.tab.until_text("5,000", ".title")
    await home.tab.until("document.querySelector('.virtual-rows')?.clientHeight === 5000 * 36")
    assert await home.tab.run("document.querySelectorAll('.virtual-rows .row').length") < 80
    await home.tab.run("document.querySelector('.virtual').scrollTop = 1e9")
    await home.tab.until("[...document.querySelectorAll('[href$=\"handle=h0\"]')].length === 1")
    shown = "document.querySelector('[aria-rowindex=\"4000\"]')?.id"
    await home.tab.run("document.querySelector('.virtual').scrollTop = 3990 * 36")
    before = await home.tab.until(shown)
    await home.engine.submit("add", handle="new", params={"a": 1, "b": 2})
    await home.tab.until_text("5,001", ".title")
    assert await home.tab.run(f"document.getElementById('{before}').getAttribute('aria-rowindex')") == "4001"
    assert await home.tab.run("document.querySelector('.virtual').scrollTop") == 3991 * 36  # it did not move


async def test_runs_that_the_state_has_no_more_are_read_from_the_store(home):
    for _ in range(3):
        runs = [{"job": "fail", "handle": "x", "params": "no", "on_conflict": "queue"} for _ in range(500)]
        tickets = await home.engine.submit_many(runs)
        await tickets[-1].wait(60)
    await home.tab.open(f"{home.url}/runs?job=fail")
    await home.tab.until_text("1,000", ".title")
    await home.tab.run("document.querySelector('.virtual').scrollTop = 1e9")
    await home.tab.until_text("1,500", ".title")


def columns(row: str) -> str:
    """The widths of the cells of a row, by their names."""
    return f"""Object.fromEntries([...{row}.querySelectorAll('[class^="cell-"]')]
        .map((one) => [one.className.slice(5), one.clientWidth]))"""


async def test_the_error_has_the_most_room_in_the_list_and_progress_needs_no_column(home):
    failed = await home.engine.submit("fail", handle="alice", params="no")
    waits = await home.engine.submit("wait", handle="bob")
    await home.tab.open(f"{home.url}/runs")
    row = f"document.getElementById('row-{failed.id}')"
    await home.tab.until(f"{row}?.querySelector('.status.failed')")
    widths = await home.tab.run(columns(row))
    assert widths["reason"] > 270
    assert widths["reason"] == max(widths.values())
    await home.tab.until(f"document.getElementById('row-{waits.id}').querySelector('.cell-reason progress')")


async def test_the_handle_of_a_run_opens_it_and_can_filter_the_list(home):
    await home.engine.submit("wait", handle="alice")
    await home.engine.submit("wait", handle="bob")
    await home.tab.open(f"{home.url}/runs")
    await home.tab.click("Only runs of alice")
    await home.tab.until("document.querySelectorAll('.virtual-rows .row').length === 1")
    assert await home.path() == "/runs?handle=alice"
    await home.tab.click("alice", ".virtual-rows")
    await home.tab.until("location.pathname === '/handles/alice'")


async def test_quick_times_limit_the_list(home):
    ticket = await home.engine.submit("wait", handle="alice")
    await home.tab.open(f"{home.url}/runs")
    await home.tab.click("Time")
    for name in ("last hour", "today"):
        await home.tab.click(name)
        await home.tab.until("location.search.startsWith('?since=')")
        assert await home.tab.run("document.querySelector('[type=datetime-local]').value")
        await home.tab.until(f"document.getElementById('row-{ticket.id}')")


async def test_back_shows_the_same_rows_of_the_list(home):
    await home.engine.set_max_concurrent(0)
    runs = [{"job": "add", "handle": f"h{number}", "params": {"a": 1, "b": 2}} for number in range(500)]
    tickets = await home.engine.submit_many(runs)
    await home.tab.open(f"{home.url}/runs")
    await home.tab.until_text("500", ".title")
    await home.tab.run("document.querySelector('.virtual').scrollTop = 200 * 36 + 5")
    row = f"document.getElementById('row-{tickets[290].id}')"
    await home.tab.until(row)
    await home.tab.run(f"{row}.querySelector('.row-link').click()")
    await home.tab.until_text(tickets[290].id, ".about")
    await home.engine.submit("add", handle="new", params={"a": 1, "b": 2})
    await home.tab.run("history.back()")
    await home.tab.until(row)
    assert await home.tab.run("document.querySelector('.virtual').scrollTop") == 201 * 36 + 5
    await home.tab.click("Runs", ".views")
    await home.tab.run("document.querySelector('.views [href$=\"/handles\"]').click()")
    await home.tab.until_text("Handles", "h1")
    await home.tab.run("document.querySelector('.views [href$=\"/runs\"]').click()")
    await home.tab.until("document.querySelector('.virtual')?.scrollTop === 0")


async def test_an_empty_list_says_so_at_its_top(home):
    for view in ("runs", "handles", "events"):
        await home.tab.open(f"{home.url}/{view}")
        await home.tab.until("document.querySelector('.nothing')")
        assert await home.tab.run("document.querySelector('.nothing').getBoundingClientRect().top") < 300


async def test_the_page_uses_no_characters_that_fonts_can_lack(home):
    ticket = await home.engine.submit("ask", handle="alice")
    for view in ("runs", "handles", f"runs/{ticket.id}", "executors"):
        await home.tab.open(f"{home.url}/{view}")
        await home.tab.until("document.querySelector('main .icon') || location.pathname === '/executors'")
        assert not re.search(r"[\u2190\u2191\u2193-\u2bff]", await home.tab.text())


async def test_a_text_in_a_row_can_be_selected(home):
    await (await home.engine.submit("fail", handle="alice", params="no space left")).wait(30)
    await home.tab.open(f"{home.url}/runs")
    text = "document.querySelector('.cell-reason .text')"
    await home.tab.until(text)
    x, y = await home.tab.run(
        f"(({{ x, y, height }}) => [x + 2, y + height / 2])({text}.getBoundingClientRect())"
    )
    mouse = {"button": "left", "y": y}
    await home.tab.call("Input.dispatchMouseEvent", type="mousePressed", x=x, clickCount=1, **mouse)
    for further in (20, 40, 60):
        await home.tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + further, buttons=1, **mouse)
    await home.tab.call("Input.dispatchMouseEvent", type="mouseReleased", x=x + 60, clickCount=1, **mouse)
    assert await home.tab.run("String(getSelection())")
    assert await home.path() == "/runs"
    for kind in ("mousePressed", "mouseReleased"):
        await home.tab.call("Input.dispatchMouseEvent", type=kind, x=x - 60, clickCount=1, **mouse)
    await home.tab.until("location.pathname !== '/runs'")


def delete_store(folder: Path) -> None:
    """Let the server begin with an empty store."""
    for file in folder.glob("runs.db*"):
        file.unlink()


async def flood(home: House, count: int) -> None:
    """Let so many runs of other handles end that the state has only them."""
    for first in range(0, count, 1000):
        runs = [
            {"job": "add", "handle": f"other {number}", "params": {"a": number, "b": 1}}
            for number in range(first, min(count, first + 1000))
        ]
        for ticket in await home.engine.submit_many(runs):
            await ticket.result()


async def scroll_to_the_end(home: House, count: str) -> None:
    """Scroll to the end until the heading shows this number of runs."""
    await home.tab.until(
        f"""(() => {{
            (document.querySelector(".virtual") ?? {{}}).scrollTop = 1e9;
            return document.querySelector(".title .number")?.innerText.startsWith({count!r});
        }})()"""
    )


async def test_runs_that_the_state_forgets_are_read_again(home):
    for number in range(10):
        await (await home.engine.submit("add", handle="alice", params={"a": number, "b": 1})).result()
    await home.tab.open(f"{home.url}/runs")
    await home.tab.until_text("10", ".title")
    alice = await home.browser.tab()
    await alice.open(f"{home.url}/runs?handle=alice")
    await alice.until("document.querySelectorAll('.virtual-rows .row').length === 10")
    await flood(home, 1600)
    await alice.until("document.querySelectorAll('.virtual-rows .row').length === 10")
    await scroll_to_the_end(home, "1,610")
    await flood(home, 300)
    await scroll_to_the_end(home, "1,910")
    assert alice.problems == []


async def test_a_search_for_a_text_goes_on_until_the_end_when_asked(home, monkeypatch):
    ticket = await home.engine.submit("add", handle="needle", params={"a": 1, "b": 1})
    await ticket.result()
    await flood(home, 5500)
    await home.tab.open(f"{home.url}/runs?text=needle")
    await home.tab.until_text("None so far. Read back to", ".rest")
    await home.tab.click("Read on", ".rest")
    await home.tab.until(f"document.getElementById('row-{ticket.id}')")
    await home.tab.open(f"{home.url}/runs?text=nothing")
    await home.tab.click("Read on", ".rest")
    await home.tab.until_text("No run matches the filter.")
    monkeypatch.setattr(reads, "_PORTION", 300)
    monkeypatch.setattr(reads, "_MOST_PORTIONS", 1)
    await home.tab.open(f"{home.url}/runs?job=add&text=needle")
    await home.tab.click("Read on", ".rest")
    await home.tab.until(f"document.getElementById('row-{ticket.id}')")


async def test_a_failed_reading_of_older_runs_can_be_repeated(home, monkeypatch):
    await flood(home, 1200)

    async def fail(*args: Any, **options: Any) -> Any:
        raise Unavailable("the store is down")

    monkeypatch.setattr(type(home.engine), "list_runs", fail)
    await home.tab.open(f"{home.url}/runs")
    await scroll_to_the_end(home, "1,000")
    await home.tab.until_text("Older runs could not be read.", ".rest")
    monkeypatch.undo()
    await home.tab.click("Read on", ".rest")
    await scroll_to_the_end(home, "1,200")


# One run.


async def test_a_run_shows_what_happened_and_its_result(home):
    ticket = await home.engine.submit("add", handle="alice", params={"a": 1, "b": 2}, tags={"user": "u1"})
    await ticket.result()
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until_text("adding", ".log")
    text = await home.tab.text("main")
    for expected in ("succeeded", "alice", "user=u1", "sum: 3", "attempt 1"):
        assert expected in text
    await home.tab.click("Rerun")
    await home.tab.until(f"!location.pathname.endsWith('{ticket.id}')")
    await home.tab.until_text("succeeded", ".title")


async def test_a_run_is_followed_while_it_executes(home):
    ticket = await home.engine.submit("wait", handle="alice")
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until_text("1 / 4")
    await home.tab.fill("[name=message]", '{"go": true}')
    await home.tab.click("Send", ".message")
    await home.tab.until_text("succeeded", ".title")
    assert await ticket.result() == {"go": True}
    await home.tab.until_text("go: true")


async def test_a_run_is_cancelled_and_its_files_are_kept_or_deleted(home):
    for files in ("keep", "delete"):
        ticket = await home.engine.submit("wait", handle="alice")
        await home.tab.open(f"{home.url}/runs/{ticket.id}")
        await home.tab.click("Cancel", ".title")
        await home.tab.click(f"Cancel, {files} files", "dialog")
        await home.tab.until_text("cancelled", ".title")


async def test_an_interrupt_is_answered_with_any_json(home):
    ticket = await home.engine.submit("ask", handle="alice")
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.click("Another answer")
    await home.tab.fill(".interrupt textarea", "{not json")
    await home.tab.click("Send", ".interrupt")
    await home.tab.until_text("the answer is not valid JSON", ".interrupt")
    await home.tab.fill(".interrupt textarea", '{"pages": [1, 2]}')
    await home.tab.click("Send", ".interrupt")
    assert await ticket.result() == {"pages": [1, 2]}


async def test_a_question_closes_when_the_page_shows_something_else(home):
    ticket = await home.engine.submit("wait", handle="alice")
    await home.tab.open(f"{home.url}/runs")
    await home.tab.until(f"document.getElementById('row-{ticket.id}')")
    await home.tab.run(f"document.querySelector('#row-{ticket.id} .cells').click()")
    await home.tab.click("Cancel", ".title")
    await home.tab.until_text("It executes wait for the handle alice.", "dialog")
    await home.tab.run("history.back()")
    await home.tab.until("!document.querySelector('dialog')")
    assert await home.path() == "/runs"
    assert (await home.engine.get_run(ticket.id)).status == "running"


async def test_a_refused_command_says_why(home):
    ticket = await home.engine.submit("wait", handle="alice")
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until_text("running", ".title")
    await home.engine.drain()
    await home.engine.inject("alice", "go")
    await home.tab.click("Rerun")
    await home.tab.until_text("draining: ", ".toast.error")


async def test_json_shows_the_beginning_of_what_is_folded_and_opens_what_is_small(home):
    params = {"flow": {"order": 7}, "deep": {"deeper": {"deepest": 1}}, "long": ["w" * 400]}
    ticket = await home.engine.submit("wait", handle="alice", params=params)
    await home.engine.inject("alice", {"say": "hello", "to": ["bob"]})
    await ticket.result()
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until_text('{message: {say: "hello", to: ["bob"]}', ".events")
    text = await home.tab.text("main")
    assert "order: 7" in text
    assert "deeper: {deepest: 1}" in text
    assert "w…" in text
    scrolls = "[...document.querySelectorAll('.json')].some((one) => one.offsetHeight > one.clientHeight)"
    assert not await home.tab.run(scrolls)
    assert not await home.tab.run(
        "[...document.querySelectorAll('.json')].some((one) => getComputedStyle(one).overflowY !== 'hidden')"
    )


async def test_an_unknown_run_and_an_unknown_address_say_so(home):
    await home.tab.open(f"{home.url}/runs/nothing")
    await home.tab.until_text("not found", ".error-text")
    await home.tab.open(f"{home.url}/runs/nothing/else")
    await home.tab.until_text("No view has this address.")


# Hostile text.


@pytest.mark.parametrize("view", ["", "runs?status=running", "runs/{id}"])
async def test_hostile_text_is_only_ever_text(view, home):
    ticket = await home.engine.submit(
        "hostile",
        handle=PRINTABLE,
        lane=PRINTABLE[:60],
        params={HOSTILE: [HOSTILE]},
        tags={"user": PRINTABLE[:60]},
        key=PRINTABLE[:60],
    )
    await home.tab.open(home.url)
    await home.tab.until("document.querySelector('.tile.asks strong')?.innerText === '1'")
    await home.tab.run("localStorage.setItem('greenroom.columns', 'id status job handle lane tags reason')")
    await home.tab.open(f"{home.url}/{view.format(id=ticket.id)}")
    await home.tab.until_text("<img src=x onerror=")
    assert await home.tab.run("document.querySelectorAll('main img, main script').length") == 0
    assert await home.tab.run("document.title") != "owned"
    text = await home.tab.text("main")
    assert not any(letter in text for letter in "\u202e\u202c\u0007\u001b")
    width = await home.tab.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert width == 0  # a long word does not widen the page


# Login and roles.


async def test_a_token_is_asked_for_and_can_be_forgotten(tmp_path: Path):
    token = add_token(tmp_path / "tokens", "eve", Role.OPERATOR)
    async with house(token_file=str(tmp_path / "tokens")) as home:
        await home.tab.open(f"{home.url}/runs?job=add")
        await home.tab.fill("#token", "gr_wrong")
        await home.tab.click("Log in")
        await home.tab.until_text("invalid or revoked token", ".alone")
        await home.tab.fill("#token", token)
        await home.tab.click("Log in")
        await home.tab.until_text("operator", "header")
        assert "eve" in await home.tab.text("header")
        assert await home.path() == "/runs?job=add"
        await home.tab.open(f"{home.url}/runs")  # the token is kept for this tab
        await home.tab.until_text("operator", "header")
        assert token not in await home.tab.run("document.documentElement.outerHTML")
        await home.tab.click("Log out")
        await home.tab.until("document.querySelector('#token')")
        await home.tab.open(home.url)
        await home.tab.until("document.querySelector('#token')")


@pytest.mark.parametrize(
    ("role", "offered"),
    [
        (Role.VIEWER, {"cancel": False, "answer": False, "limit": False}),
        (Role.OPERATOR, {"cancel": True, "answer": True, "limit": False}),
        (Role.ADMIN, {"cancel": True, "answer": True, "limit": True}),
    ],
)
async def test_only_what_a_role_permits_is_offered(role, offered, tmp_path: Path):
    token = add_token(tmp_path / "tokens", "eve", role)
    async with house(token_file=str(tmp_path / "tokens")) as home:
        ticket = await home.engine.submit("ask", handle="alice")
        await home.tab.open(home.url)
        await home.tab.fill("#token", token)
        await home.tab.click("Log in")
        await home.tab.until_text("Publish?")
        found = {"limit": await home.tab.run("!!document.querySelector('.limit input')")}
        await home.tab.open(f"{home.url}/runs/{ticket.id}")
        await home.tab.until_text("Publish?")
        buttons = "[...document.querySelectorAll('main button')].some((one) => one.innerText === %r)"
        found["cancel"] = await home.tab.run(buttons % "Cancel")
        found["answer"] = await home.tab.run(buttons % "Approve")
        assert found == offered


async def test_a_limited_token_is_told_what_it_may_not_see(tmp_path: Path):
    file = tmp_path / "tokens"
    token = add_token(file, "eve", Role.OPERATOR, handles=["alice", "a/*"])
    async with house(token_file=str(file)) as home:
        await home.engine.submit("wait", handle="bob")
        await home.tab.open(f"{home.url}/handles/bob")
        await home.tab.fill("#token", token)
        await home.tab.click("Log in")
        await home.tab.until_text("Your token may not see this handle: it is limited to handles alice, a/*.")
        assert "free" not in await home.tab.text("main")
        assert not await home.tab.run("document.querySelector('main button')")
        for view in ("executors", "workers", "webhooks"):
            await home.tab.open(f"{home.url}/{view}")
            await home.tab.until_text("Your token may not see this: it is limited to handles alice, a/*.")
            assert not await home.tab.run(f"document.querySelector('.views a[href$=\"/{view}\"]')")
        await home.tab.open(f"{home.url}/settings")
        await home.tab.until_text("It is limited to handles alice, a/*.")
        for handle in ("alice", "a/b"):
            await home.tab.open(f"{home.url}/handles/{handle.replace('/', '%2F')}")
            await home.tab.until_text("The handle is free.")


async def test_a_token_for_a_job_is_not_told_that_a_handle_is_free(tmp_path: Path):
    token = add_token(tmp_path / "tokens", "eve", Role.OPERATOR, jobs=["add"])
    async with house(token_file=str(tmp_path / "tokens")) as home:
        await home.engine.submit("wait", handle="bob")
        await home.tab.open(f"{home.url}/handles/bob")
        await home.tab.fill("#token", token)
        await home.tab.click("Log in")
        await home.tab.until_text("None that your token may see.")
        assert await home.tab.run("document.querySelector('#draft').readOnly")


async def test_a_viewer_reads_in_plain_words_who_sees_webhooks(tmp_path: Path):
    token = add_token(tmp_path / "tokens", "eve", Role.VIEWER)
    async with house(token_file=str(tmp_path / "tokens")) as home:
        await home.tab.open(f"{home.url}/webhooks")
        await home.tab.fill("#token", token)
        await home.tab.click("Log in")
        await home.tab.until_text("Webhooks are only for the role operator and above. Your role is viewer.")
        await home.tab.open(f"{home.url}/settings")
        await home.tab.until_text("reads everything except webhooks")
        for part in ("flows", "drafts", "messages"):
            assert part in await home.tab.text("[aria-labelledby=session-title]")


async def test_the_login_and_the_page_of_a_wrong_address_fit_in_the_window(tmp_path: Path):
    add_token(tmp_path / "tokens", "eve", Role.VIEWER)
    async with house(token_file=str(tmp_path / "tokens")) as home:
        for path in ("", "nonsense/address"):
            await home.tab.open(f"{home.url}/{path}")
            page = "document.documentElement"
            assert await home.tab.run(f"{page}.scrollHeight <= {page}.clientHeight")
        await home.tab.until_text("Not found")
        home.tab.problems = [one for one in home.tab.problems if "404" not in one]
        await home.tab.click("Go to the overview.")
        await home.tab.until("document.querySelector('#token')")


async def test_the_badge_of_the_navigation_stays_inside(home):
    await home.engine.set_max_concurrent(40)
    for number in range(31):
        await home.engine.submit("ask", handle=f"h{number}")
    await home.tab.open(home.url)
    await home.tab.until_text("31", ".badge")
    right = "document.querySelector('%s').getBoundingClientRect().right"
    assert await home.tab.run(f"{right % '.badge'} <= {right % '.views a[aria-current]'} - 5")


async def test_a_revoked_token_ends_the_session(tmp_path: Path):
    file = tmp_path / "tokens"
    token = add_token(file, "eve", Role.VIEWER)
    async with house(token_file=str(file)) as home:
        await home.tab.open(home.url)
        await home.tab.fill("#token", token)
        await home.tab.click("Log in")
        await home.tab.until_text("viewer", "header")
        file.write_text("", encoding="utf-8")
        home.gateway.reconfigure(GatewayConfig(port=0, token_file=str(file)))
        await home.tab.until("document.querySelector('#token')")


# Connections.


async def test_a_lost_connection_is_shown_and_the_page_converges_when_it_is_back(home):
    async with proxy(home.gateway.port) as between:
        await home.tab.open(f"http://127.0.0.1:{between.port}/runs")
        await home.tab.until_text("There are no runs yet.")
        ticket = await home.engine.submit("wait", handle="alice")
        await home.tab.until(f"document.getElementById('row-{ticket.id}')")
        between.refuses = True
        between.cut()
        await home.tab.until_text("reconnecting", ".connection")
        await home.engine.inject("alice", "go")
        await ticket.result()
        between.refuses = False
        await home.tab.until_text("succeeded", ".virtual-rows")
        await home.tab.until_text("live", ".connection")
    home.tab.problems = without_failed_connections(home.tab.problems)


def without_failed_connections(problems: list[str]) -> list[str]:
    """The problems of a tab whose connection a test has cut."""
    return [one for one in problems if "WebSocket connection" not in one]


async def test_without_a_connection_actions_are_refused_and_times_stand_still(home):
    ticket = await home.engine.submit("wait", handle="alice")
    async with proxy(home.gateway.port) as between:
        await home.tab.open(f"http://127.0.0.1:{between.port}/runs/{ticket.id}")
        await home.tab.until_text("running", ".title")
        between.refuses = True
        between.cut()
        await home.tab.until_text("The connection is lost. This page shows the state of", ".lost-bar")
        seen = await home.tab.text(".about")
        await home.tab.click("Cancel")
        await home.tab.until_text("nothing was sent", ".toast.error")
        assert await home.tab.run("document.querySelector('dialog')") is None
        await home.tab.click("Dismiss")
        await home.tab.fill("[name=message]", "go")
        await home.tab.click("Send", ".message")
        await home.tab.until_text("nothing was sent", ".toast.error")
        await trio.sleep(1.1)
        assert await home.tab.text(".about") == seen
        between.refuses = False
        await home.tab.until("!document.querySelector('.lost-bar')")
        assert (await home.engine.get_run(ticket.id)).status == "running"
        await home.tab.until(f"document.querySelector('.about').innerText !== {json.dumps(seen)}")
    home.tab.problems = without_failed_connections(home.tab.problems)


async def test_an_action_whose_answer_was_lost_says_that_its_effect_is_unknown(home):
    ended = await home.engine.submit("add", handle="alice", params={"a": 1, "b": 2})
    waits = await home.engine.submit("wait", handle="bob")
    async with proxy(home.gateway.port) as between:
        for id, button, said in (
            (ended.id, "Rerun", "it is unknown whether the action was carried out"),
            (waits.id, "Cancel", "it may or may not have been carried out"),
        ):
            await home.tab.open(f"http://127.0.0.1:{between.port}/runs/{id}")
            await home.tab.until_text("live", ".connection")
            before = (await home.engine.snapshot()).seq
            between.drops_replies = True
            await home.tab.click(button, ".title")
            if button == "Cancel":
                await home.tab.click("Cancel, keep files", "dialog")
            async for _ in home.engine.events(after=before):
                break  # it is carried out, and the reply is on its way
            between.cut()
            between.drops_replies = False
            await home.tab.until_text(said, ".toasts")
            await home.tab.until_text("live", ".connection")
        await home.tab.until_text("cancelled", ".title")
    assert len(await home.engine.list_runs(job="add")) == 2
    home.tab.problems = without_failed_connections(home.tab.problems)


async def test_a_lost_answer_for_selected_runs_is_not_called_a_refusal(home):
    await home.engine.submit("wait", handle="bob")
    async with proxy(home.gateway.port) as between:
        await home.tab.open(f"http://127.0.0.1:{between.port}/runs?job=wait")
        await home.tab.click("Select all")
        before = (await home.engine.snapshot()).seq
        between.drops_replies = True
        await home.tab.click("Cancel 1", ".bulk")
        await home.tab.click("Cancel, keep files", "dialog")
        async for _ in home.engine.events(after=before):
            break
        between.cut()
        between.drops_replies = False
        await home.tab.until_text("1 unknown: ", ".toast.error")
    home.tab.problems = without_failed_connections(home.tab.problems)


async def test_clicks_in_a_row_send_one_command(home):
    ended = await home.engine.submit("add", handle="alice", params={"a": 1, "b": 2})
    await ended.wait()
    await home.tab.open(f"{home.url}/runs/{ended.id}")
    find = "[...document.querySelectorAll('main button')].find((one) => one.innerText === %r)"
    rerun = find % "Rerun"
    await home.tab.until(rerun)
    await home.tab.run(f"(() => {{ const it = {rerun}; it.click(); it.click(); it.click(); }})()")
    await home.tab.until(f"!location.pathname.endsWith('{ended.id}')")
    await home.engine.schedules.put("nightly", job="add", every=86_400, params={"a": 1, "b": 2})
    await home.tab.open(f"{home.url}/schedules")
    trigger = find % "Trigger"
    await home.tab.until(trigger)
    await home.tab.run(f"(() => {{ const it = {trigger}; it.click(); setTimeout(() => it.click(), 80); }})()")
    await home.tab.until_text("is submitted", ".toasts")
    await home.tab.until(f"({trigger}).ariaDisabled !== 'true'")
    assert len(await home.engine.list_runs()) == 3
    await home.tab.click("Trigger nightly")
    await home.tab.until("document.querySelectorAll('.toast').length === 2")
    assert len(await home.engine.list_runs()) == 4


async def test_the_console_works_behind_a_proxy_that_removes_a_prefix():
    async with behind_proxy(REFUSALS["nginx"]) as (url, _), open_browser() as browser:
        tab = await browser.tab()
        for path in ("runs?job=add", "runs/nothing", "flows", ""):
            await tab.open(f"{url.replace('ws', 'http')}/green/room/{path}")
            await tab.until_text("live")
        await tab.run("document.querySelector('.views a[href$=\"/runs\"]').click()")
        await tab.until_text("There are no runs yet.")
        assert await tab.run("location.pathname") == "/green/room/runs"
        assert tab.problems == []


async def test_the_page_converges_after_the_server_was_killed(tmp_path: Path):
    with server(tmp_path) as program:
        async with open_browser() as browser:
            tab = await browser.tab()
            await program.listens()
            async with connect(program.url) as client:
                await client.submit("count", handle="alice", params={"to": 100_000})
                await tab.open(f"{program.url.replace('ws', 'http')}/runs")
                await tab.until("document.querySelector('.status.running')")
            program.kill()
            await tab.until_text("reconnecting", ".connection")
            program.start()
            await program.listens()
            await tab.until_text("live", ".connection")
            await tab.until("document.querySelector('.status.running')")
            [row] = await tab.run("[...document.querySelectorAll('.virtual-rows .row')].map((one) => one.id)")
            async with connect(program.url) as client:
                await client.cancel(row.removeprefix("row-"))
            await tab.until("document.querySelector('.status.cancelled')")


async def test_the_events_show_where_some_are_missing(home):
    rows = "[...document.querySelectorAll('.virtual-rows .row')].map((one) => one.innerText)"
    async with proxy(home.gateway.port) as between:
        await home.tab.open(f"http://127.0.0.1:{between.port}/events?handle=alice")
        await home.tab.until_text("live", ".connection")
        await home.engine.submit("wait", handle="alice")
        await home.tab.until_text("run_progress", ".virtual-rows")
        before = (await home.engine.snapshot()).seq
        between.refuses = True
        between.cut()
        await flood(home, 3000)
        missed = (await home.engine.snapshot()).seq - before
        between.refuses = False
        await home.tab.until_text("were not received here", ".virtual-rows")
        assert f"{missed:,} events were not received here." in await home.tab.run(rows)
        await home.engine.inject("alice", "go")
        await home.tab.until_text("succeeded", ".virtual-rows")
    home.tab.problems = [one for one in home.tab.problems if "WebSocket connection" not in one]


async def test_the_events_show_where_the_engine_began_anew(tmp_path: Path):
    active = "document.querySelector('.row.active')?.getAttribute('aria-rowindex')"
    with server(tmp_path) as program:
        async with open_browser() as browser:
            tab = await browser.tab()
            await program.listens()
            await tab.open(f"{program.url.replace('ws', 'http')}/events")
            async with connect(program.url) as client:
                await (await client.submit("count", handle="alice", params={"to": 1})).result()
            await tab.until_text("succeeded", ".virtual-rows")
            program.kill()
            delete_store(tmp_path)
            program.start()
            await program.listens()
            async with connect(program.url) as client:
                await (await client.submit("count", handle="alice", params={"to": 1})).result()
            await tab.until_text("The engine began anew: its events are numbered from 1 again.")
            count = await tab.run("document.querySelectorAll('.virtual-rows .row').length")
            for number in range(count):
                await tab.press("j")
                await tab.until(f"{active} === '{number + 2}'")


# What a browser lacks.


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_wrong_clock_of_the_browser_changes_no_span(hours, home):
    await home.engine.set_max_concurrent(0)
    await home.engine.submit("add", handle="alice", params={"a": 1, "b": 2})
    clock = f"""{{
        const real = Date.now.bind(Date);
        Date.now = () => real() + {hours} * 3_600_000;
    }}"""
    await home.tab.call("Page.addScriptToEvaluateOnNewDocument", source=clock)
    await home.tab.open(home.url)
    await home.tab.until_text("has waited", "[aria-labelledby=queues-title]")
    await home.tab.until("/has waited (\\d\\.)?\\d+ s/.test(document.body.innerText)")
    assert "1 h" not in await home.tab.text("main")


async def test_a_value_is_selected_where_pages_cannot_copy(home):
    ticket = await home.engine.submit("add", handle="alice", params={"a": 1, "b": 2})
    await ticket.result()
    absent = "Object.defineProperty(navigator, 'clipboard', { value: undefined })"
    await home.tab.call("Page.addScriptToEvaluateOnNewDocument", source=absent)
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.click("copy", "main")
    await home.tab.until("String(getSelection()).includes('\"b\": 2')")


async def test_the_times_of_a_filter_are_local_in_the_form_and_not_in_the_address(home):
    await home.tab.call("Emulation.setTimezoneOverride", timezoneId="America/Los_Angeles")
    await home.tab.open(f"{home.url}/runs?since=1795161600")
    await home.tab.until("document.querySelector('[type=datetime-local]')?.value === '2026-11-20T00:00'")
    await home.tab.run(
        """(() => {
            const field = document.querySelector("[type=datetime-local]");
            field.value = "2026-11-20T01:30";
            field.dispatchEvent(new Event("change", { bubbles: true }));
        })()"""
    )
    await home.tab.until("location.search === '?since=2026-11-20T09%3A30Z'")
    assert await home.tab.run("document.querySelector('[type=datetime-local]').value") == "2026-11-20T01:30"


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


async def pass_runs(home: House, count: int) -> None:
    """Let so many runs be submitted and end."""
    runs = [{"job": "add", "handle": f"h{number}", "params": {"a": 1, "b": 2}} for number in range(count)]
    for ticket in await home.engine.submit_many(runs):
        await ticket.wait(60)


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


# Appearance.


async def test_the_theme_follows_the_system_unless_one_is_chosen(home):
    color = "getComputedStyle(document.documentElement).backgroundColor"
    await home.tab.open(home.url)
    light = await home.tab.run(color)
    await home.tab.resize(1280, 800, "dark")
    dark = await home.tab.until(f"{color} !== {light!r} && {color}")
    await home.tab.click("Theme: system")
    await home.tab.until(f"{color} === {light!r}")
    await home.tab.click("Theme: light")
    await home.tab.until(f"{color} === {dark!r}")
    await home.tab.open(home.url)
    assert await home.tab.run(color) == dark


@pytest.mark.parametrize("view", ["", "runs", "runs/{id}"])
async def test_a_phone_shows_every_view_without_scrolling_sideways(view, home):
    ticket = await home.engine.submit("ask", handle="alice", params={"a": [1, {"b": 2}]})
    await home.tab.resize(390, 800)
    await home.tab.open(f"{home.url}/{view.format(id=ticket.id)}")
    await home.tab.until_text("live")
    assert await home.tab.run("document.documentElement.scrollWidth") == 390


def inside(selector: str) -> str:
    """Whether the window of a phone shows all of each of these elements."""
    return f"""(() => {{
        const found = [...document.querySelectorAll({selector!r})];
        const edges = found.map((one) => one.getBoundingClientRect());
        const seen = ({{ left, right, width }}) => width > 0 && left >= 0 && right <= 390;
        return found.length > 0 && edges.every(seen);
    }})()"""


async def test_a_phone_shows_rows_as_cards_and_the_filter_when_asked(home):
    await home.engine.submit("fail", handle="alice", params="no")
    await home.engine.submit("ask", handle="bob")
    await home.tab.resize(390, 800)
    await home.tab.open(f"{home.url}/runs")
    await home.tab.until_text("ValueError: no", ".virtual-rows")
    assert await home.tab.run(inside(".virtual-rows .cell-reason"))
    assert await home.tab.run(inside(".virtual-rows .cell-handle"))
    assert await home.tab.run("document.querySelector('.virtual').getBoundingClientRect().top") < 320
    assert not await home.tab.run(inside(".filters .chips"))
    await home.tab.click("Filter")
    await home.tab.until(inside(".filters .chips"))
    await home.tab.click("failed")
    await home.tab.until_text("Filter (1)", ".fold")
    assert await home.tab.run(inside(".views .badge"))
    for view in ("handles", "events"):
        await home.tab.open(f"{home.url}/{view}")
        await home.tab.until_text("live")
        await home.engine.submit("add", handle="carol", params={"a": 1, "b": 2}, on_conflict="queue")
        await home.tab.until(inside(".virtual-rows .cells > span:not(:empty)"))


async def test_the_overview_shows_the_three_newest_interrupts_before_charts(home):
    for number in range(4):
        await home.engine.submit("ask", handle=f"h{number}")
    await home.tab.open(home.url)
    await home.tab.until_text("All 4 open interrupts")
    await home.tab.until("document.querySelectorAll('.interrupt').length === 3")
    handles = (
        "[...document.querySelectorAll('.interrupt-head a[href*=\"/handles/\"]')].map((one) => one.innerText)"
    )
    assert await home.tab.run(handles) == ["h3", "h2", "h1"]
    top = "document.querySelector('%s').getBoundingClientRect().top"
    assert await home.tab.run(f"{top % '.interrupt'} < {top % '.charts'}")


@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_serious(scheme, home):
    asks = await home.engine.submit("ask", handle="alice", params={"a": [1]}, tags={"user": "u1"})
    fails = await home.engine.submit("fail", handle="bob", params="no")
    waits = await home.engine.submit("wait", handle="carol")
    await home.tab.resize(1280, 800, scheme)
    axe = await trio.Path(AXE).read_text(encoding="utf-8")
    for view in ("", "runs", *(f"runs/{ticket.id}" for ticket in (asks, fails, waits))):
        await home.tab.open(f"{home.url}/{view}")
        await home.tab.until_text("live")
        await home.tab.call("Runtime.evaluate", expression=axe)
        found = await home.tab.run(
            """axe.run().then(({ violations }) => violations
                .filter(({ impact }) => ["serious", "critical"].includes(impact))
                .flatMap(({ id, nodes }) => nodes.map((node) => [id, node.html, node.failureSummary])))"""
        )
        assert found == [], view


async def test_every_control_has_a_name_and_every_view_a_heading(home):
    ticket = await home.engine.submit("ask", handle="alice")
    for view in ("", "runs", f"runs/{ticket.id}"):
        await home.tab.open(f"{home.url}/{view}")
        await home.tab.until_text("live")
        tree = (await home.tab.call("Accessibility.getFullAXTree"))["nodes"]
        controls = ("button", "link", "textbox", "searchbox", "checkbox", "slider", "spinbutton")
        found = [(one["role"]["value"], one.get("name", {}).get("value")) for one in tree if "role" in one]
        assert [role for role, name in found if role in controls and not name] == []
        assert [name for role, name in found if role == "main"]
        assert await home.tab.run("document.querySelectorAll('h1').length") == 1
