"""The list of runs: filters, selection, keyboard, and older runs that are read from the store."""

from __future__ import annotations

import re
from typing import Any

import pytest

from greenroom.actors.engine import reads
from greenroom.protocol.errors import Unavailable

from ..clients.browser import needs_browser
from .chromium import Tab
from .house import flood

pytestmark = needs_browser


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


async def test_a_search_keeps_every_filter_of_the_list(home):
    await home.tab.open(f"{home.url}/runs?status=failed&status=cancelled&tag=a%3D1&tag=b%3D2")
    await home.tab.until_text("No run matches")
    await home.tab.fill("[name=text]", "alice")
    await home.tab.run("document.querySelector('.search').requestSubmit()")
    await home.tab.until("location.search.includes('alice')")
    found = await home.tab.run("[...new URLSearchParams(location.search)].map(String)")
    assert found == ["status,failed", "status,cancelled", "tag,a=1", "tag,b=2", "text,alice"]


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


async def scroll_to_the_end(tab: Tab, count: str) -> None:
    """Scroll to the end until the heading shows this number of runs."""
    await tab.until(
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
    await scroll_to_the_end(home.tab, "1,610")
    await flood(home, 300)
    await scroll_to_the_end(home.tab, "1,910")
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
    await scroll_to_the_end(home.tab, "1,000")
    await home.tab.until_text("Older runs could not be read.", ".rest")
    monkeypatch.undo()
    await home.tab.click("Read on", ".rest")
    await scroll_to_the_end(home.tab, "1,200")
