"""The overview of the console: numbers, problems, limits and open interrupts."""

from __future__ import annotations

from ..clients.browser import needs_browser
from ..support import until
from .house import pass_runs

pytestmark = needs_browser


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
