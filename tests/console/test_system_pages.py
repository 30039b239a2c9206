"""The views of the console for schedules, executors, nodes, workers, webhooks, events and settings, in a real
Chromium in front of a real server."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import trio

from greenroom import Engine, Run, Schedule, connect, open_engine
from greenroom.actors.journal.change import Change
from greenroom.gateway import GatewayConfig, Role, add_token, open_gateway
from greenroom.persistence.failures import StoreDown
from greenroom.persistence.webhooks import WebhookAdded, WebhookFailed
from greenroom.protocol.errors import Unavailable
from greenroom.protocol.webhooks import Webhook, receiver_of, webhook_id

from ..clients.browser import needs_browser
from ..clients.javascript import needs_node
from ..clients.proxy import proxy
from ..clients.test_executor_in_javascript import executing, serving
from ..gateway.clustered import cluster
from .chromium import PATIENCE, Tab, open_browser
from .house import HOSTILE, PRINTABLE, House, house, log_in, make_jobs
from .judging import SCHEMES, needs_axe, serious

pytestmark = needs_browser

VIEWS = ("schedules", "schedules/nightly", "executors", "workers", "webhooks", "events", "settings")
URL = "https://hooks.example.org/"


def choose(field: str, value: str) -> str:
    """A person chooses a value in a field."""
    return f"""(() => {{
        const field = document.querySelector({field!r});
        field.value = {value!r};
        for (const kind of ["input", "change"]) field.dispatchEvent(new Event(kind, {{ bubbles: true }}));
    }})()"""


async def fill(home: House) -> None:
    """Let there be something in each view."""
    schedules = home.engine.schedules
    await schedules.put(
        "nightly", job="add", cron="0 3 * * *", timezone="Asia/Tokyo", params={"a": 1, "b": 2}
    )
    await schedules.put(PRINTABLE[:100], job="hostile", every=3600, params={HOSTILE: HOSTILE})
    await home.engine.workers.register("worker-1", "http://127.0.0.1:9/", ["translate"])
    await home.engine.workers.register("worker-2", "", ["print"], kind="queue")
    await home.engine.set_lane("images", rate="100/min", fair_by="tenant")
    await home.engine.submit("wait", handle=PRINTABLE)


async def open_details(tab: Tab) -> None:
    """Unfold everything, and wait until it is rendered."""
    await tab.run(
        """new Promise((resolve) => {
            for (const one of document.querySelectorAll("main details")) one.open = true;
            setTimeout(() => requestAnimationFrame(resolve), 100);
        })"""
    )


# Schedules.


async def test_a_schedule_is_put_changed_paused_triggered_and_deleted(home):
    await home.tab.open(f"{home.url}/schedules")
    await home.tab.until_text("There are no schedules yet.")
    await home.tab.click("New schedule")
    await home.tab.fill("[name=name]", "nightly")
    await home.tab.fill("[name=job]", "add")
    await home.tab.fill("[name=cron]", "0 3 * * *")
    await home.tab.fill("[name=timezone]", "Asia/Tokyo")
    await home.tab.fill("[name=params]", '{"a": 1, "b": ')
    await home.tab.click("Create")
    await home.tab.until_text("the parameters are not valid JSON")
    await home.tab.fill("[name=params]", '{"a": 1, "b": 2}')
    await home.tab.click("Create")
    await home.tab.until_text("3:00 AM in Asia/Tokyo", ".times")
    assert await home.path() == "/schedules/nightly"
    assert (await home.engine.schedules.get("nightly")).params == {"a": 1, "b": 2}

    await home.tab.click("Pause nightly")
    await home.tab.until_text("The schedule is paused")
    await home.tab.click("Resume nightly")
    await home.tab.until_text("3:00 AM")
    await home.tab.click("Trigger nightly")
    await home.tab.until_text("is submitted", ".toasts")
    assert [run.handle for run in await home.engine.list_runs()] == ["schedule:nightly"]

    await home.tab.click("Change")
    await home.tab.run(choose("[name=missed]", "skip"))
    await home.tab.fill("[name=cron]", "0 4 * * *")
    await home.tab.click("Save")
    await home.tab.until_text("4:00 AM", ".times")
    assert (await home.engine.schedules.get("nightly")).missed == "skip"

    await home.tab.click("Delete nightly")
    await home.tab.click("Delete", "dialog")
    await home.tab.until_text("There are no schedules yet.")
    assert await home.engine.schedules.list() == []


async def test_a_change_of_a_schedule_keeps_the_options_that_the_form_does_not_show(home):
    await home.engine.schedules.put(
        "nightly", job="add", every=60, params={}, tags={"team": "web"}, run_timeout=9
    )
    await home.tab.open(f"{home.url}/schedules/nightly")
    await home.tab.click("Change")
    await home.tab.fill("[name=every]", "120")
    await home.tab.click("Save")
    await home.tab.until_text("every 2 min")
    changed = await home.engine.schedules.get("nightly")
    assert (changed.every, changed.options) == (120, {"tags": {"team": "web"}, "run_timeout": 9})


async def test_a_schedule_that_is_declared_elsewhere_is_only_paused_and_triggered():
    jobs = make_jobs(trio.Event())

    @jobs.job("declared", schedule=Schedule(cron="0 3 * * *"))
    async def declared(run: Run, params: Any) -> None:
        pass

    async with (
        open_engine(jobs, "memory:", shutdown_timeout=0) as engine,
        open_gateway(engine, GatewayConfig(port=0)) as gateway,
        open_browser() as browser,
    ):
        tab = await browser.tab()
        [schedule] = await engine.schedules.list()
        for path in ("schedules", f"schedules/{schedule.name}"):
            await tab.open(f"{gateway.url}/{path}")
            await tab.until_text("declared in code", "main")
            buttons = "[...document.querySelectorAll('main .actions button')].map((one) => one.innerText)"
            assert await tab.run(buttons) == ["Pause", "Trigger"]
        assert "Change" not in await tab.text("main")
        assert tab.problems == []


async def test_a_refused_schedule_says_why(home):
    await home.tab.open(f"{home.url}/schedules")
    await home.tab.click("New schedule")
    await home.tab.fill("[name=name]", "nightly")
    await home.tab.fill("[name=job]", "add")
    await home.tab.fill("[name=cron]", "99 * * * *")
    await home.tab.click("Create")
    await home.tab.until_text("invalid: ", ".toast.error")


async def test_the_next_times_appear_while_a_schedule_is_written(home):
    await home.tab.open(f"{home.url}/schedules")
    await home.tab.click("New schedule")
    await home.tab.fill("[name=cron]", "0 3 * *")
    await home.tab.until_text("cron", ".preview .error-text")
    await home.tab.fill("[name=cron]", "0 3 * * *")
    await home.tab.fill("[name=timezone]", "Asia/Tokyo")
    await home.tab.until_text("3:00 AM in Asia/Tokyo", ".preview")
    assert await home.tab.run("document.querySelectorAll('.preview li').length") == 3
    assert await home.tab.run("document.querySelector('.preview .error-text')") is None
    assert await home.engine.schedules.list() == []


async def test_a_new_schedule_does_not_replace_one_of_the_same_name(home):
    before = await home.engine.schedules.put("nightly", job="add", every=60, params={})
    await home.tab.open(f"{home.url}/schedules")
    await home.tab.click("New schedule")
    await home.tab.fill("[name=name]", "nightly")
    await home.tab.fill("[name=job]", "fail")
    await home.tab.fill("[name=cron]", "0 3 * * *")
    await home.tab.click("Create")
    await home.tab.until_text("schedule nightly exists already")
    assert await home.engine.schedules.get("nightly") == before


async def test_a_firing_is_shown_with_its_outcome(home):
    await home.engine.schedules.put("often", job="wait", every=1)
    await home.tab.open(f"{home.url}/schedules")
    await home.tab.until_text("running", ".grid .status")
    await home.tab.until_text('refused handle "schedule:often" is taken', ".grid")
    await home.tab.open(f"{home.url}/schedules")
    await home.tab.until_text('refused handle "schedule:often" is taken', ".grid")
    await home.engine.inject("schedule:often", "go")
    await home.tab.until_text("running", ".grid .status")


# Executors and nodes.


@needs_node
async def test_an_executor_is_shown_with_what_it_executes_and_is_drained():
    async with serving() as (engine, gateway), open_browser() as browser:
        tab = await browser.tab()
        await tab.open(f"{gateway.url}/executors")
        await tab.until_text("No executor is attached.")
        async with executing(gateway.url):
            await tab.until_text("js-1\nattached", ".grid")
            ticket = await engine.submit("deploy", handle="alice", params={})
            await tab.until_text(ticket.id[-8:], ".grid")
            await tab.until("document.querySelector('.grid .use .number').innerText === '1 of 8'")
            await tab.open(gateway.url)
            await tab.until_text("executor js-1", "[aria-labelledby=machines-title]")
            await tab.open(f"{gateway.url}/executors")
            await tab.click("Drain", ".grid")
            await tab.click("Drain", "dialog")
            await tab.until_text("js-1\ndraining", ".grid")
        assert tab.problems == []


async def test_the_nodes_of_a_cluster_are_shown_and_the_leader_steps_down(tmp_path: Path):
    async with cluster(tmp_path) as nodes, open_browser() as browser:
        tab = await browser.tab()
        await tab.open(f"{nodes[1].gateway.url}/executors")
        await tab.until_text("n1\nleader", "[aria-labelledby=nodes-title]")
        await tab.click("Let the leader step down")
        await tab.click("Step down", "dialog")
        await tab.until_text("n2\nleader", "[aria-labelledby=nodes-title]")


# Workers.


async def test_workers_appear_with_their_loads(home):
    await home.tab.open(f"{home.url}/workers")
    await home.tab.until_text("No worker is registered.")
    await fill(home)
    await home.tab.until_text("worker-1\nonline")
    await home.tab.until_text("polls for its work")
    await home.engine.workers.heartbeat("worker-1", 7)
    await home.tab.click("Read loads again")
    await home.tab.until("[...document.querySelectorAll('main dd')].some((one) => one.innerText === '7')")


async def test_a_worker_that_is_offline_is_a_problem(home, monkeypatch):
    monkeypatch.setattr("greenroom.actors.workers.registry.OFFLINE_AFTER", 1)
    await home.tab.open(home.url)
    await home.engine.workers.register("worker-1", "http://127.0.0.1:9/", ["translate"])
    await home.tab.until_text("1 of 1 online", "[aria-labelledby=machines-title]")
    await home.tab.until_text("A worker is offline: worker-1", ".problems")
    await home.engine.workers.heartbeat("worker-1")
    await home.tab.until("!document.querySelector('.problems')")


async def test_the_list_of_workers_converges_after_a_lost_connection(home):
    async with proxy(home.gateway.port) as between:
        await home.tab.open(f"http://127.0.0.1:{between.port}/workers")
        await home.engine.workers.register("worker-1", "http://127.0.0.1:9/", ["translate"])
        await home.tab.until_text("worker-1\nonline")
        between.refuses = True
        between.cut()
        await home.tab.until_text("reconnecting", ".connection")
        await home.engine.workers.register("worker-2", "http://127.0.0.1:10/", ["print"])
        assert "worker-1" in await home.tab.text("main")
        between.refuses = False
        await home.tab.until_text("worker-2\nonline")
    home.tab.problems = [one for one in home.tab.problems if "WebSocket connection" not in one]


# Webhooks.


async def webhook(home: House, handle: str, next_at: float | None = None) -> str:
    """A webhook whose deliveries have failed, dead or with a next attempt; returns its id. The engine has no
    secret, so it delivers nothing and changes no webhook meanwhile."""
    run = (await home.engine.submit("wait", handle=handle)).id
    new = Webhook(id=webhook_id(run, URL), run=run, url=URL, types=("run_log",))
    failed = WebhookFailed(new.id, 9, 1.0, next_at, HOSTILE, 2.0)
    await home.engine._journal.ask(Change((), memos=(WebhookAdded(new, receiver_of(URL), 0.0), failed)))
    return new.id


async def test_dead_webhooks_are_delivered_again_or_dropped(home):
    for handle in ("alice", "bob"):
        await webhook(home, handle)
    await home.tab.open(home.url)
    await home.tab.until_text("2 dead webhooks: events could not be delivered.", ".problems")
    await home.tab.click("2 dead webhooks")
    await home.tab.until_text(URL, ".grid")
    await home.tab.click("Deliver now")
    await home.tab.until("document.querySelectorAll('.grid > li').length === 1")
    await home.tab.click("Drop", ".grid")
    await home.tab.click("Drop", "dialog")
    await home.tab.until_text("All events are delivered")
    assert await home.engine.webhooks.dead() == []


async def test_failing_webhooks_are_problems_and_only_their_error_is_red(home):
    await webhook(home, "alice", 9e9)
    await home.tab.open(home.url)
    await home.tab.until_text("1 failing webhook at ", ".problems")
    await home.tab.click("1 failing webhook")
    await home.tab.until_text("run_log", ".grid .tag")
    color = "getComputedStyle(document.querySelector('.grid %s')).color"
    assert await home.tab.run(f"{color % '.tag .text'} === {color % '.card-head'}")
    middles = """[...document.querySelectorAll('[aria-labelledby=failing-title] > .title > *')]
        .map((one) => one.getBoundingClientRect()).map(({ top, bottom }) => Math.round((top + bottom) / 2))"""
    found = await home.tab.run(middles)
    assert max(found) - min(found) <= 1


async def test_failing_webhooks_are_listed_and_delivered_now_or_dropped(home):
    await home.tab.open(f"{home.url}/webhooks")
    await home.tab.until_text("No delivery is being retried.")
    for handle in ("alice", "bob"):
        await webhook(home, handle, 9e9)
    await home.tab.click("Read again")
    failing = "[aria-labelledby=failing-title]"
    await home.tab.until(f"document.querySelectorAll('{failing} .grid > li').length === 2")
    assert "next attempt" in await home.tab.text(failing)
    await home.tab.click("Deliver now", failing)
    await home.tab.until_text("delivered now", ".toasts")
    for left in (1, 0):
        await home.tab.click("Drop", failing)
        await home.tab.click("Drop", "dialog")
        await home.tab.until(f"document.querySelectorAll('{failing} .grid > li').length === {left}")
    assert await home.engine.webhooks.failing() == []


# Events.


async def test_events_appear_with_a_filter_in_the_address_and_can_be_paused(home):
    await home.tab.open(f"{home.url}/events")
    await home.tab.until_text("Events appear here as they happen.")
    first = await home.engine.submit("add", handle="alice", params={"a": 1, "b": 2})
    await first.result()
    await home.tab.until_text("text=adding", ".virtual-rows")
    await home.tab.fill(".field input", "run_log")
    await home.tab.until_text("the latest 0")
    assert await home.path() == "/events?type=run_log"
    second = await home.engine.submit("add", handle="alice", params={"a": 1, "b": 2})
    await second.result()
    await home.tab.until_text("the latest 1")
    await home.tab.press("p")
    third = await home.engine.submit("add", handle="alice", params={"a": 1, "b": 2})
    await third.result()
    await home.tab.until_text("1 since then")
    await home.tab.until_text("the latest 1")
    await home.tab.press("j")
    await home.tab.until_text('text: "adding"', ".event-detail")
    await home.tab.press("p")
    await home.tab.until_text("the latest 2")


async def test_an_unknown_type_of_events_lists_none(home):
    await home.tab.open(f"{home.url}/events?type=bogus&type=run_log")
    await home.tab.until_text("No event is listed, because the filter is unknown", ".error-text")
    await (await home.engine.submit("add", handle="alice", params={"a": 1, "b": 2})).result()
    last = (await home.engine.snapshot()).seq
    await home.tab.until(f"document.querySelector('.connection').title.endsWith(' {last}')")
    await home.tab.until_text("the latest 0")


async def test_a_filter_that_is_being_written_is_kept_while_events_arrive(home):
    await home.tab.open(f"{home.url}/events?handle=alice")
    await home.tab.until("document.querySelector('.field input')")
    await home.tab.run("document.querySelector('.field input').focus()")
    await home.tab.call("Input.insertText", text="run_log")
    await home.engine.submit("wait", handle="alice")
    await home.tab.until("document.querySelectorAll('.virtual-rows .row').length > 1")
    assert await home.tab.run("document.querySelector('.field input').value") == "run_log"
    await home.tab.press("Enter")
    await home.tab.until("location.search === '?type=run_log&handle=alice'")
    await home.tab.click("Clear all")
    await home.tab.until("document.querySelector('.field input').value === ''")


# Settings.


async def test_limits_and_rules_are_changed(home):
    await home.engine.set_lane("images", priority=7, age=30)
    await home.tab.open(f"{home.url}/settings")
    await home.tab.until_text("images limit 2, age=30, priority=7")
    await open_details(home.tab)
    form = "[aria-label='Rules of lane images']"
    await home.tab.run(choose(f"{form} [name=rate_per]", "key"))
    await home.engine.set_concurrency("images", 3)
    await home.tab.until_text("limit 3", ".rules")
    await home.tab.fill(f"{form} [name=rate]", "100/min")
    await home.tab.fill(f"{form} [name=weights]", '{"gold": 3}')
    await home.tab.fill(f"{form} [name=priority]", "")
    await home.tab.click("Save the rules", form)
    await home.tab.until_text("rate=100/min", ".rules")
    rules = (await home.engine.snapshot()).lanes["images"].rules
    assert (rules.rate, rules.weights, rules.priority, rules.age) == ("100/min", {"gold": 3}, 0, 30)
    assert rules.rate_per == "key"
    await home.tab.run(
        """(() => {
            const field = document.querySelector("[aria-label='the global limit']");
            field.value = 9;
            field.dispatchEvent(new Event("change", { bubbles: true }));
        })()"""
    )
    await home.tab.open(home.url)
    await home.tab.until_text("0 of 9")


async def test_a_refused_limit_says_why(home):
    await home.tab.open(f"{home.url}/settings")
    for text in ("-1", "2.5"):
        await home.tab.fill('[aria-label="the global limit"]', text)
        await home.tab.until_text(f"must be a whole number from 0 to 2,147,483,647 (got {text})", ".toasts")
        await home.tab.until("document.querySelector('[aria-label=\"the global limit\"]').value === '4'")


async def test_types_of_events_are_offered_and_no_filter_seems_to_be_set(home):
    await home.tab.open(f"{home.url}/events")
    await home.tab.until("document.querySelector('#event-types option[value=run_log]')")
    assert not await home.tab.run("document.querySelector('.filters input[list=event-types]').placeholder")


async def test_a_lane_is_created_and_its_queue_cleared(home):
    await home.tab.open(f"{home.url}/settings")
    await home.tab.click("New lane")
    await home.tab.fill("[name=lane]", "mail")
    await home.tab.fill("[aria-label='New lane'] [name=limit]", "0")
    await home.tab.click("Create the lane")
    await home.tab.until_text("mail limit 0, no rules", ".rules")
    ticket = await home.engine.submit("add", handle="alice", lane="mail", params={"a": 1, "b": 2})
    await open_details(home.tab)
    await home.tab.click("Cancel 1 queued")
    await home.tab.click("Cancel them", "dialog")
    await ticket.wait()
    assert (await home.engine.get_run(ticket.id)).status == "cancelled"


async def test_the_engine_is_drained_resumed_and_reset(home):
    ticket = await home.engine.submit("stubborn", handle="alice")
    await home.tab.open(f"{home.url}/settings")
    await home.tab.click("Drain")
    await home.tab.click("Drain", "dialog")
    await home.tab.until_text("draining refused")
    await home.tab.click("Resume")
    await home.tab.until_text("accepted")
    await ticket.cancel()
    await home.tab.click("Reset lanes")
    await home.tab.click("Reset", "dialog")
    await home.tab.until_text("the lanes are reset", ".toasts")
    await home.tab.run(
        """(() => {
            const choice = [...document.querySelectorAll("select")].at(-1);
            choice.value = "dark";
            choice.dispatchEvent(new Event("change", { bubbles: true }));
        })()"""
    )
    assert await home.tab.run("document.documentElement.dataset.theme") == "dark"


# The overview.


async def test_the_overview_shows_who_waits_and_behind_whom(home):
    await home.engine.set_concurrency("images", 1)
    first = await home.engine.submit("wait", handle="alice", lane="images")
    second = await home.engine.submit("wait", handle="bob", lane="images")
    await home.tab.open(home.url)
    await home.tab.until_text("1 queued", "[aria-labelledby=queues-title]")
    text = await home.tab.text("[aria-labelledby=queues-title]")
    assert first.id[-8:] in text
    assert second.id[-8:] in text
    assert "1 of 1 slots of the lane are in use" in text
    await home.engine.inject("alice", "go")
    await home.tab.until("!document.querySelector('[aria-labelledby=queues-title]')")


async def test_a_long_wait_and_a_blocked_event_loop_are_problems():
    jobs = make_jobs(trio.Event())

    def compute() -> None:
        time.sleep(1.6)

    @jobs.job("block")
    async def block(run: Run) -> None:
        compute()
        await run.next_message()

    async with (
        open_engine(jobs, "memory:", lanes={"images": 0}, shutdown_timeout=0) as engine,
        open_gateway(engine, GatewayConfig(port=0)) as gateway,
        open_browser() as browser,
    ):
        tab = await browser.tab()
        await tab.open(gateway.url)
        await tab.until_text("executing")  # from now on it receives events
        ticket = await engine.submit("block", handle="alice")
        await tab.until_text("blocked the event loop for", ".problems")
        assert ticket.id[-8:] in await tab.text(".problems")
        waits = await engine.submit("add", handle="bob", lane="images", params={})
        await tab.run("((real) => void (Date.now = () => real() + 100_000))(Date.now)")
        await tab.until_text("has waited 1 min 4", ".problems")
        assert waits.id[-8:] in await tab.text(".problems")
        assert tab.problems == []


async def test_an_outage_of_the_store_is_a_problem_until_it_is_over(home):
    store = home.engine._store
    commit = store.commit

    async def fails(batch: Any) -> None:
        raise StoreDown("the disk is full")

    ticket = await home.engine.submit("add", handle="alice", params={"a": 1, "b": 2})
    await ticket.result()
    await home.tab.open(f"{home.url}/runs/{ticket.id}")
    store.commit = fails
    await home.tab.click("Rerun")
    await home.tab.until_text("unavailable: ", ".toasts")
    store.commit = commit
    await home.tab.run("document.querySelector('nav a').click()")
    await home.tab.until_text("The engine was unavailable at", ".problems")
    with trio.fail_after(PATIENCE):
        while not await accepted(home.engine):  # noqa: ASYNC110 # no event tells it
            await trio.sleep(0.05)
    await home.tab.until("!document.querySelector('.problems')")


async def accepted(engine: Engine) -> bool:
    """Whether the engine accepts a run, because its store is back."""
    try:
        await engine.submit("wait", handle="bob")
    except Unavailable:
        return False
    return True


# All of them.


@pytest.mark.parametrize("view", ["", *VIEWS])
async def test_a_phone_shows_every_view_and_hostile_text_is_only_text(view, home):
    await fill(home)
    await home.tab.resize(390, 800)
    await home.tab.open(f"{home.url}/{view}")
    await home.tab.until_text("live")
    await home.engine.submit("hostile", handle="bob", params={HOSTILE: [HOSTILE]})
    await trio.sleep(0.3)
    assert await home.tab.run("document.documentElement.scrollWidth") == 390
    assert await home.tab.run("document.querySelectorAll('main img, main script').length") == 0
    assert await home.tab.run("document.title") != "owned"
    text = await home.tab.text("main")
    assert not any(letter in text for letter in "\u202e\u202c\u0007\u001b")


@needs_axe
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_axe_finds_nothing_serious(scheme, home):
    await fill(home)
    await home.tab.resize(1280, 800, scheme)
    for view in ("", *VIEWS):
        await home.tab.open(f"{home.url}/{view}")
        await home.tab.until_text("live")
        await open_details(home.tab)
        await home.engine.submit("fail", handle="bob", params="no", on_conflict="queue")
        assert await serious(home.tab) == [], view
        assert await home.tab.run("document.querySelectorAll('h1').length") == 1


@pytest.mark.parametrize(("role", "offered"), [(Role.VIEWER, 0), (Role.OPERATOR, 1), (Role.ADMIN, 2)])
async def test_only_what_a_role_permits_is_offered(role, offered, tmp_path: Path):
    token = add_token(tmp_path / "tokens", "eve", role)
    async with house(token_file=str(tmp_path / "tokens")) as home:
        await fill(home)
        await log_in(home, token, "")
        await home.tab.until_text(str(role), "header")
        buttons: dict[str, Any] = {}
        for view in VIEWS:
            await home.tab.open(f"{home.url}/{view}")
            await home.tab.until_text("live")
            await open_details(home.tab)
            buttons[view] = await home.tab.run(
                "[...document.querySelectorAll('main button')].map((one) => one.innerText.split(' ')[0])"
            )
        assert ("Pause" in buttons["schedules"]) == (offered >= 1)
        assert ("Create" in buttons["schedules"]) == (offered >= 1)
        assert ("Save" in buttons["schedules/nightly"]) == (offered >= 1)
        assert ("Drain" in buttons["settings"]) == (offered == 2)
        assert ("Save" in buttons["settings"]) == (offered == 2)
        assert ("Webhooks" in await home.tab.text("nav.views")) == (offered >= 1)


async def test_the_page_converges_when_another_client_changes_everything(home):
    await home.tab.open(f"{home.url}/settings")
    await home.tab.until_text("accepted")
    async with connect(home.url.replace("http", "ws")) as client:
        await client.drain()
        await client.set_lane("images", rate="5/s")
        await home.tab.until_text("draining refused")
        await home.tab.until_text("rate=5/s")
