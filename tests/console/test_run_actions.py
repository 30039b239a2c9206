"""A run in the console: what it shows, and what a person does with it."""

from __future__ import annotations

from ..clients.browser import needs_browser

pytestmark = needs_browser


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
    await home.tab.until_text('say: "hello"', ".events")
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
