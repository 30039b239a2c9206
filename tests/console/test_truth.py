"""Lists and pages that say the whole truth: what is not read is shown as unknown, never as something else."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from greenroom import Jobs, Run, open_engine
from greenroom.gateway import Role, add_token

from ..clients.browser import needs_browser
from ..flow.definitions import TIMER, flow
from .house import House, flood, house, log_in, visited
from .test_run import home as talking

pytestmark = needs_browser

__all__ = ["talking"]

jobs = Jobs()


@jobs.job("flaky", max_attempts=3, backoff=lambda attempt: 90.0)
async def flaky(run: Run) -> None:
    raise ValueError(f"no luck in attempt {run.attempt}")


@jobs.job("chat")
async def chat(run: Run) -> None:
    while True:
        await run.next_message()


@pytest.fixture
async def restless() -> AsyncIterator[House]:
    async with open_engine(jobs, "memory:", shutdown_timeout=0) as engine, visited(engine) as home:
        yield home


ROWS = "document.querySelectorAll('.virtual-rows .row').length"

TOPS = """[...document.querySelectorAll("tbody tr:first-child td")].map((cell) => {
    const text = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT).nextNode();
    const range = document.createRange();
    range.selectNodeContents(text);
    return range.getBoundingClientRect().top;
})"""
PHASES = """[...document.querySelectorAll('.timeline li')]
    .map((one) => one.innerText)
    .map((text) => text.match(/queued|running|not read yet|cancelling/)?.[0])
    .filter((status) => status)
    .join(", ")"""


@pytest.mark.parametrize("ends", [False, True])
async def test_the_time_line_of_a_long_history_claims_nothing_about_what_is_not_read(talking, ends):
    home = talking
    ticket = await home.engine.submit("talk", handle="alice")
    logs = home.engine.events(filter={"types": ["run_log"]})
    await home.engine.inject("alice", 1600)
    async for log in logs:
        if log.text == "line 1599":
            break
    if ends:
        await home.engine.cancel(ticket.id)
        await ticket.wait(30)
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until_text("line 1599", ".log")
    expected = "queued, running, not read yet, running" + (", cancelling" if ends else "")
    await home.tab.until(f"{PHASES} === {expected!r}")
    read = "document.querySelector('details.card > summary .number').innerText"
    for count in (1000, 1500):
        await home.tab.click("Read earlier events")
        await home.tab.until(f"{read} === '{count}'")
    await home.tab.click("Read earlier events")
    await home.tab.until(f"!{PHASES}.includes('not read yet')")


async def test_a_search_for_handles_goes_on_in_the_store(home):
    for name in ("alice", "bert"):
        await (await home.engine.submit("fail", handle=name, params="no")).wait(30)
    await (await home.engine.submit("add", handle="bert", params={"a": 1, "b": 1})).result()
    await flood(home, 1500)
    await home.tab.open(f"{home.url}/handles?status=Failed")
    await home.tab.until_text("Failed", "#row-alice")
    await home.tab.until("!document.querySelector('.rest')")  # all runs are read
    assert await home.tab.run(ROWS) == 1  # the last outcome of bert is another one
    await home.tab.open(f"{home.url}/handles?text=ALI&status=Failed")
    await home.tab.until_text("Failed", "#row-alice")
    await home.engine.submit("add", handle="alice", params={"a": 1, "b": 1})
    await home.tab.until_text("No handle matches the filter.")
    await home.tab.fill(".filters input", "bert")
    await home.tab.click("Failed")
    await home.tab.until_text("Done", "#row-bert")


async def test_the_list_of_handles_says_how_far_it_has_looked(home):
    await (await home.engine.submit("fail", handle="alice", params="no")).wait(30)
    await flood(home, 5300)
    await home.tab.open(f"{home.url}/handles")
    await home.tab.until_text("one of the 1,000 runs that ended last", ".rest")
    await home.tab.open(f"{home.url}/handles?status=Failed")
    await home.tab.until_text("None so far.")
    await home.tab.until_text("those of all runs back to", ".rest")
    assert "No handle matches" not in await home.tab.text()
    await home.tab.click("Read on", ".rest")
    await home.tab.until_text("Failed", "#row-alice")


async def test_an_unknown_filter_of_handles_is_named(home):
    await home.engine.set_params("alice", 1)
    await home.tab.open(f"{home.url}/handles?status=bogus&color=red")
    await home.tab.until_text("color is not a filter; bogus is not a status of a handle")
    assert await home.tab.run(ROWS) == 0


async def test_a_run_of_a_flow_is_shown_with_the_name_of_the_flow(home):
    approval = {"kind": "approval", "params": {"approval_key": "$shared.ask"}}
    ask = flow("ask:approved -, ask:denied -", ask=approval)
    await home.engine.flows.publish("order", ask)
    await home.engine.set_concurrency("flow", 1)
    ticket = await home.engine.flows.start("order", handle="alice")
    second = await home.engine.flows.start("order", handle="alice", on_conflict="queue")
    for path, place in {
        "runs": f"#row-{ticket.id} .cell-job",
        f"runs/{ticket.id}": ".about",
        "handles/alice": ".active-run",
        "": ".interrupt-head",
    }.items():
        await home.tab.open(f"{home.url}/{path}")
        await home.tab.until_text("flow order", place)
    await home.tab.open(f"{home.url}/handles/alice")
    await home.tab.until_text(f"…{second.id[-8:]} flow order", ".waiting")
    name = f"document.querySelector('#row-{ticket.id} .row-link')?.ariaLabel"
    await home.tab.open(f"{home.url}/runs")
    await home.tab.until(f"{name} === 'run …{ticket.id[-8:]}: flow order'")


async def test_a_run_between_attempts_says_when_the_next_one_follows(restless):
    ticket = await restless.engine.submit("flaky", handle="alice")
    await restless.tab.open(f"{restless.url}/runs/{ticket.id}")
    card = "[aria-labelledby=waits-title]"
    await restless.tab.until_text("Attempt 1 failed. Attempt 2 enters its lane at", card)
    shown = await restless.tab.text(card)
    assert "in 1 min 2" in shown
    assert "no luck in attempt 1" in shown
    await ticket.cancel()
    await restless.tab.until(f"!document.querySelector('{card}')")


async def test_a_version_that_a_flow_does_not_have_is_named(home):
    for _ in range(2):
        await home.engine.flows.publish("order", flow("a -", a=TIMER))
    await home.tab.open(f"{home.url}/flows/order?version=99")
    await home.tab.until_text("The flow has no version 99.")
    assert "version 2" in await home.tab.text(".versions")
    assert not await home.tab.run("document.querySelector('.flow-graph, .start-form')")
    await home.tab.open(f"{home.url}/flows/order?version=2&against=x")
    await home.tab.until_text("The flow has no version x.")
    await home.tab.until("document.querySelector('.flow-graph')")
    await home.tab.open(f"{home.url}/flows/order")
    await home.tab.until_text("Version 2")
    assert "has no version" not in await home.tab.text()


async def test_a_filter_of_a_tag_without_a_value_is_named(home):
    await home.engine.submit("wait", handle="alice", tags={"user": "alice"})
    await home.tab.open(f"{home.url}/runs?tag=novalue")
    await home.tab.until_text("novalue is not a tag with its value: write tag=name=value", ".error-text")
    await home.tab.open(f"{home.url}/runs?tag=user%3Dalice")
    await home.tab.until(f"{ROWS} === 1")


async def test_a_limited_token_is_not_offered_to_change_flows(tmp_path: Path):
    token = add_token(tmp_path / "tokens", "eve", Role.OPERATOR, handles=["alice"])
    async with house(token_file=str(tmp_path / "tokens")) as home:
        await home.engine.flows.publish("order", flow("a -", a=TIMER))
        await log_in(home, token, "flows")
        await home.tab.until_text("order", "table")
        assert "New flow" not in await home.tab.text()
        await home.tab.open(f"{home.url}/flows/order")
        await home.tab.until_text("Version 1")
        assert "Edit" not in await home.tab.text("main")
        for path in ("flows", "flows/order"):
            await home.tab.open(f"{home.url}/{path}?edit=1")
            await home.tab.until_text("Your token may not change flows: it is limited to handles alice.")
            assert not await home.tab.run("document.querySelector('.editor')")


async def test_an_action_for_all_runs_that_match_counts_them_first(home):
    await home.engine.set_concurrency("images", 0)
    runs = [{"job": "wait", "handle": f"h{number}", "lane": "images"} for number in range(1_020)]
    await home.engine.submit_many(runs)
    await home.tab.open(f"{home.url}/runs?lane=images")
    await home.tab.click("All that match…")
    await home.tab.click("Cancel 1,020", "dialog")
    await home.tab.until_text("Cancel 1,020 runs?", "dialog")
    await home.tab.click("Cancel, keep files", "dialog")
    await home.tab.until_text("1,020 runs cancelled", ".toasts")
    assert not await home.engine.list_runs(lane="images", status="queued")


async def test_runs_that_the_list_has_not_loaded_are_retried_once(home):
    for number in range(3):
        await (await home.engine.submit("fail", handle=f"f{number}", params="no")).wait(30)
    await home.engine.submit("wait", handle="f3")
    await flood(home, 1_100)
    await home.tab.open(f"{home.url}/runs?job=fail")
    await home.tab.click("All that match…")
    await home.tab.until_text("Rerun 3", "dialog .actions")
    assert "Cancel" not in await home.tab.text("dialog .actions")
    await home.tab.click("Retry 3", "dialog")
    await home.tab.until_text("3 runs submitted again", ".toasts")
    assert len(await home.engine.list_runs(job="fail")) == 6
    await home.tab.open(f"{home.url}/runs?job=nothing")
    await home.tab.click("All that match…")
    await home.tab.until_text("No run that matches can be cancelled or submitted again.", ".toasts")


async def test_a_refusal_of_too_many_runs_names_the_remedy(home):
    await home.engine.submit("wait", handle="alice")
    await home.tab.open(f"{home.url}/runs?job=wait")
    await home.tab.click("All that match…")
    await home.tab.click("Cancel 1", "dialog")
    await home.engine.set_concurrency("images", 0)
    runs = [{"job": "wait", "handle": f"h{number}", "lane": "images"} for number in range(1_000)]
    await home.engine.submit_many(runs)
    await home.tab.click("Cancel, keep files", "dialog")
    await home.tab.until_text("more than 1,000 runs match: add filters", ".toasts")
    assert not await home.engine.list_runs(status="cancelled")


async def test_only_filters_of_the_server_are_offered_for_all_that_match(tmp_path: Path):
    token = add_token(tmp_path / "tokens", "eve", Role.VIEWER)
    operator = add_token(tmp_path / "tokens", "ada", Role.OPERATOR)
    offered = "!!document.querySelector('.title')?.innerText.includes('All that match')"
    async with house(token_file=str(tmp_path / "tokens")) as home:
        await home.engine.submit("wait", handle="alice")
        await log_in(home, token, "runs?job=wait")
        await home.tab.until(f"{ROWS} === 1")
        assert not await home.tab.run(offered)
        await home.tab.click("Log out")
        await log_in(home, operator, "runs?job=wait")
        await home.tab.until(offered)
        for query in ("", "?job=wait&text=wait", "?job=wait&status=bogus"):
            await home.tab.open(f"{home.url}/runs{query}")
            await home.tab.until_text("Runs", "h1")
            assert not await home.tab.run(offered)


async def test_messages_and_signals_are_a_list_with_their_content(restless):
    ticket = await restless.engine.submit("chat", handle="alice")
    await restless.engine.inject(ticket.id, {"n": 9007199254740993, "deep": {"a": [1, 2]}})
    await restless.engine.inject(ticket.id, "hello")
    await restless.tab.open(f"{restless.url}/runs/{ticket.id}")
    await restless.tab.until_text('"hello"', ".events")
    shown = await restless.tab.text(".events")
    assert "run_message" not in shown
    assert "message by app" in shown.replace("\n", " ")
    assert "9007199254740993" in shown
    assert await restless.tab.run("document.querySelectorAll('.events details[open]').length") >= 1


async def test_a_signal_is_listed_with_its_key(home):
    waits = flow("wait -", wait={"kind": "wait_event", "params": {"signal_key": "$shared.never"}})
    await home.engine.flows.publish("order", waits)
    ticket = await home.engine.flows.start("order")
    await home.engine.signal(ticket.id, "color", {"name": "blue"})
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    await home.tab.until_text("signal color", ".events")
    assert '"blue"' in await home.tab.text(".events")
    await home.tab.until_text("Flow order, version 1")


async def test_a_graph_that_can_be_read_is_shown_as_a_whole_at_first(home):
    names = [f"n{number}" for number in range(10)]
    edges = ", ".join(f"{one} {other}" for one, other in itertools.pairwise(names))
    await home.engine.flows.publish("long", flow(f"{edges}, n9 -", **dict.fromkeys(names, TIMER)))
    await home.tab.resize(1280, 640)
    await home.tab.open(f"{home.url}/flows/long")
    await home.tab.until("document.querySelector('.frame .point.end')")
    bottom = "document.querySelector('%s').getBoundingClientRect().bottom"
    assert await home.tab.run(f"{bottom % '.frame .point.end'} <= {bottom % '.frame'}")
    await home.tab.click("The 10 nodes as a table")
    tops = await home.tab.run(TOPS)
    assert max(tops) - min(tops) < 2


async def test_removed_and_added_lines_differ_by_color_and_sign(home):
    for delay in (100, 5000):
        node = {"kind": "timer", "params": {"delay_ms": delay}}
        await home.engine.flows.publish("order", flow("a -", a=node))
    await home.tab.open(f"{home.url}/flows/order?version=2&against=1")
    side = "document.querySelector('.editor')?.shadowRoot?.querySelector('.cm-merge-%s %s')"
    await home.tab.until(side % ("b", ".cm-changedLine"))
    color = f"getComputedStyle({side}).backgroundColor"
    removed, added = [await home.tab.run(color % (one, ".cm-changedLine")) for one in "ab"]
    assert removed != added
    sign = f"getComputedStyle({side}, '::before').content"
    signs = [await home.tab.run(sign % (one, ".cm-changedLineGutter")) for one in "ab"]
    assert signs == ['"-"', '"+"']


async def test_a_version_that_was_just_published_is_not_called_missing(home):
    await home.engine.flows.publish("order", flow("a -", a=TIMER))
    await home.tab.open(f"{home.url}/flows/order?edit=1")
    await home.tab.until_text("No errors.")
    await home.tab.run(
        """window.alerts = [];
        new MutationObserver(() => {
            alerts.push(...[...document.querySelectorAll("main .error-text")].map((one) => one.innerText));
        }).observe(document.querySelector("main"), { subtree: true, childList: true }), null"""
    )
    await home.tab.click("Publish")
    await home.tab.until("[...document.querySelectorAll('h2')].some((one) => one.innerText === 'Version 2')")
    assert await home.path() == "/flows/order?version=2"
    assert await home.tab.run("alerts") == []
