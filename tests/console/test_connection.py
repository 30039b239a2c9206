"""The console while its connection is lost, behind proxies, and after a restart of the server."""

from __future__ import annotations

import json
from pathlib import Path

import trio

from greenroom import connect

from ..clients.browser import needs_browser
from ..clients.proxy import proxy
from ..clients.test_killed_server import server
from ..clients.test_prefix import REFUSALS, behind_proxy
from .chromium import open_browser
from .house import delete_store, flood, without_failed_connections

pytestmark = needs_browser


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
            assert "reply to" not in await home.tab.text(".toasts")  # not the name of a command
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
        await home.tab.until_text("1 unknown, 0 not sent", ".toast.error")
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
            await tab.until_text("live", ".connection")
            await tab.run("new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 100)))")
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
