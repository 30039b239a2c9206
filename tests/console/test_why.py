"""Why runs wait, what an action does, and what is wrong, as the console says it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from greenroom import Jobs, Run, connect, open_engine
from greenroom.protocol.lanes import LaneRules
from greenroom.protocol.records import ExecutorState, RunRecord
from greenroom.protocol.states import Status

from ..clients.browser import needs_browser
from ..clients.javascript import needs_node, run_node
from ..clients.test_killed_server import server
from ..support import until
from . import mirrors
from .chromium import open_browser
from .house import House, visited
from .judging import SIDEWAYS, needs_axe, serious
from .test_modules import load, plain, run

jobs = Jobs()


@jobs.job("wait")
async def wait(run: Run) -> Any:
    return await run.next_message()


@jobs.job("ask")
async def ask(run: Run) -> Any:
    return await run.interrupt({"question": "Publish?"}, release_slot=True)


@jobs.job("listen")
async def listen(run: Run) -> Any:
    return await run.next_message(release_slot=True)


@jobs.job("sleep")
async def sleep(run: Run) -> None:
    await run.sleep(3600)


@jobs.job("parent")
async def parent(run: Run) -> Any:
    return await run.call("wait", handle="child")


@jobs.job("again", max_attempts=2, backoff=lambda attempt: 3600)
async def again(run: Run) -> None:
    raise ValueError("not yet")


@pytest.fixture
async def home() -> AsyncIterator[House]:
    async with (
        open_engine(jobs, "memory:", max_concurrent=9, lanes={"crawl": 1}, shutdown_timeout=0) as engine,
        visited(engine) as home,
    ):
        yield home


async def open_run(home: House, id: str) -> None:
    await home.tab.open(f"{home.url}/runs/{id}")


# The modules that decide, in Node.

ENGINE = {"max_concurrent": 9, "executing": 0, "queued": 1, "draining": False}
LANE = {"limit": 3, "generation": 0, "executing": 0, "queued": 1, "paused": False}


async def reasons(
    waits: RunRecord,
    *,
    engine: dict[str, Any] | None = None,
    lane: dict[str, Any] | None = None,
    rules: LaneRules | None = None,
    executors: dict[str, ExecutorState] | None = None,
    others: Sequence[RunRecord] = (),
) -> list[str]:
    argument = {
        "run": msgspec.to_builtins(waits),
        "counts": {"engine": ENGINE | (engine or {}), "lanes": {waits.lane: LANE | (lane or {})}, "runs": {}},
        "rules": msgspec.to_builtins(rules or LaneRules()),
        "executors": [list(one) for one in msgspec.to_builtins(executors or {}).items()],
        "runs": plain(waits, *others),
    }
    program = (
        load("state/survey.js", "state/why.js")
        + """
        const { run, runs, ...scene } = argument;
        answer(reasons(run, { ...scene, survey: survey(new Map(runs.map((one) => [one.id, one]))) }));
        """
    )
    found: list[str] = await run_node(program, argument)
    return found


def executor(status: str = "attached", slots: int | None = 1, labels: Sequence[str] = ()) -> ExecutorState:
    return ExecutorState(status=status, slots=slots, labels=tuple(labels), jobs=("add",), ttl=30.0, start="s")


@needs_node
@pytest.mark.parametrize(
    ("scene", "found"),
    [
        ({}, []),
        ({"lane": {"paused": True}}, ["the lane is paused"]),
        ({"lane": {"limit": 0}}, ["the limit of the lane is 0"]),
        ({"engine": {"max_concurrent": 0}}, ["the global limit is 0"]),
        ({"lane": {"executing": 3}}, ["3 of 3 slots of the lane are in use"]),
        ({"lane": {"limit": None, "executing": 3}}, []),
        ({"engine": {"executing": 9}}, ["9 of 9 slots of the engine are in use"]),
        (
            {"lane": {"executing": 3, "paused": True}},
            ["the lane is paused", "3 of 3 slots of the lane are in use"],
        ),
        ({"rules": LaneRules(rate="1/h")}, ["a rule of the lane delays it"]),
        ({"rules": LaneRules(priority=5)}, []),
    ],
)
async def test_a_run_waits_for_its_lane_or_for_the_engine(scene, found):
    assert await reasons(run(1, place=1), **scene) == found


@needs_node
@pytest.mark.parametrize(
    ("executors", "found"),
    [
        ({}, "no executor is attached"),
        ({"e": executor("disconnected")}, "all executors are disconnected"),
        ({"e": executor()}, "no executor with the job add has the label gpu"),
        ({"e": executor(labels=["gpu"])}, ""),
        ({"e": executor("draining", labels=["gpu"])}, "the executors that can execute it are draining"),
        ({"e": executor(slots=0, labels=["gpu"])}, "no executor that can execute it has a free slot"),
        ({"e": executor(slots=None, labels=["gpu"])}, ""),
    ],
)
async def test_a_run_with_labels_waits_for_an_executor(executors, found):
    assert await reasons(run(1, place=1, needs=("gpu",)), executors=executors) == [found] * bool(found)


@needs_node
async def test_a_run_without_labels_lacks_an_executor_only_if_the_engine_has_reported_it():
    first = run(1, place=1, waiting_for="executor")
    second = run(2, place=2)
    other = run(3, place=3, job="other")
    assert await reasons(second) == []
    assert await reasons(second, others=[first]) == ["no executor is attached"]
    assert await reasons(other, others=[first]) == []
    used = [first, run(4, status=Status.RUNNING, executor="e")]
    full = "no executor that can execute it has a free slot"
    assert await reasons(second, others=used, executors={"e": executor()}) == [full]
    assert await reasons(second, others=used, executors={"e": executor(slots=2)}) == []


@needs_node
async def test_a_body_that_continues_is_delayed_by_no_rate_and_a_recovered_run_by_others():
    rules = LaneRules(rate="1/h")
    waits = run(1, status=Status.SUSPENDED, place=1, waiting_for="answer", reason="answer", interactive=True)
    assert await reasons(waits, rules=rules) == []
    recovered = run(1, status=Status.SUSPENDED, place=1, waiting_for="slot", reason="recovered")
    assert await reasons(recovered) == ["another run that executed then is tried first"]
    assert await reasons(recovered, lane={"paused": True}) == ["the lane is paused"]


@needs_node
async def test_the_rate_of_a_lane_tells_its_next_start():
    started = plain(run(1, started_at=100.0), run(2, started_at=160.0), run(3))
    program = load("state/why.js") + "answer(argument.rules.map((one) => nextStart(one, argument.runs)));"
    rules = [
        {"rate": "2/min"},
        {"rate": "1/10s"},
        {"rate": "1 / h"},
        {"rate": "2/min", "burst": 3},
        {"rate": "2/min", "rate_per": "key"},
        {},
    ]
    found = await run_node(program, {"rules": rules, "runs": started})
    assert found == [190.0, 170.0, 3760.0, None, None, None]


@needs_node
async def test_suspended_runs_that_wait_for_a_slot_again_count_as_waiting():
    def suspended(number: int, waiting_for: str, **fields: Any) -> RunRecord:
        return run(number, status=Status.SUSPENDED, waiting_for=waiting_for, **fields)

    runs = [
        run(1, place=1, created_at=50.0),
        suspended(2, "slot", updated_at=40.0),
        suspended(3, "executor"),
        suspended(4, "answer"),  # its interrupt is closed
        suspended(5, "answer"),  # its interrupt is open
        suspended(6, "child", updated_at=6.0),
        run(7, parent=f"{6:032x}", status=Status.SUCCEEDED, ended_at=60.0),
        suspended(8, "child", updated_at=8.0),  # it waits for a later child, of another parent
        run(9, parent=f"{8:032x}", status=Status.SUCCEEDED, ended_at=7.0),
        suspended(10, "child"),
        run(11, parent=f"{10:032x}", status=Status.SUCCEEDED, ended_at=60.0),
        run(12, parent=f"{10:032x}", status=Status.RUNNING),
        *(suspended(13 + number, what) for number, what in enumerate(("time", "message", "signal", "retry"))),
    ]
    program = (
        load("state/survey.js")
        + """
        const runs = new Map(argument.runs.map((run) => [run.id, run]));
        const asked = new Set(argument.asked);
        answer([true, false].map((whole) => {
            const { again, waits } = survey(runs, asked, whole);
            const { run, since, queued, again: count } = waits.get("main");
            return [[...again].map((id) => parseInt(id, 16)), parseInt(run.id, 16), since, queued, count];
        }));
        """
    )
    assert await run_node(program, {"runs": plain(*runs), "asked": [f"{5:032x}"]}) == [
        [[2, 3, 4, 6], 3, 3.0, 1, 4],
        [[2, 3, 4], 3, 3.0, 1, 3],  # a limited token may not see all children
    ]


@needs_node
async def test_a_search_finds_a_run_by_the_end_of_its_id():
    runs = [run(0xAB4A022983), run(0xCD4A022983), run(0xEF11112222)]
    ids = [one.id for one in runs]
    program = (
        load("views/runs/filter.js")
        + """
        const runs = new Map(argument.ids.map((id) => [id, {}]));
        answer(argument.texts.map((text) => sought(text, runs)));
        """
    )
    texts = [" …11112222 ", "...11112222", "…4a022983", "11112222", ids[0], "f" * 32, "alice", "…and so on"]
    assert await run_node(program, {"ids": ids, "texts": texts}) == [
        {"run": ids[2], "text": "11112222"},
        {"run": ids[2], "text": "11112222"},
        {"text": "4a022983"},  # two runs end with it
        {"text": "11112222"},
        {"run": ids[0], "text": ids[0]},
        {"run": "f" * 32, "text": "f" * 32},
        {"text": "alice"},
        {"text": "…and so on"},
    ]


@needs_node
async def test_tags_are_written_one_per_line():
    program = (
        load("views/schedules/tags.js")
        + """
        const odd = { "a=b": "c" };
        const refused = (text) => { try { tagsIn(text); } catch (error) { return error.message; } };
        const read = tagsIn("user = alice\\r\\n\\nteam=a=b");
        answer([read, tagsIn(written(odd), odd), tagsIn(""), refused("user")]);
        """
    )
    assert await run_node(program) == [
        {"user": "alice", "team": "a=b"},
        {"a=b": "c"},
        {},
        'a tag is written as name=value (got "user")',
    ]


# Reset and drain.


@needs_browser
async def test_a_reset_says_what_it_does_and_accuses_no_body(home):
    first = await home.engine.submit("wait", handle="alice", lane="crawl")
    second = await home.engine.submit("wait", handle="bob", lane="crawl")
    await home.tab.open(f"{home.url}/settings")
    await home.tab.click("Reset lanes")
    await home.tab.until_text("The slot of the one executing run is freed", "dialog")
    await home.tab.until_text("They continue without a slot", "dialog")
    await home.tab.click("Reset", "dialog")
    await until(home.engine, lambda snapshot: snapshot.runs[second.id].status == "running")
    await home.tab.open(home.url)
    await home.tab.until_text(
        f"A body executes without a slot since the lanes were reset: …{first.id[-8:]} wait of alice",
        ".problems .note",
    )
    assert "did not end" not in await home.tab.text(".problems")
    await home.engine.inject("alice", "go")
    await home.tab.until("!document.querySelector('.problems')")


@needs_browser
async def test_a_queued_run_says_that_the_engine_drains(home):
    await home.tab.open(f"{home.url}/settings")
    await home.tab.click("Drain")
    await home.tab.until_text("Queued runs do not start until you choose Resume.", "dialog")
    await home.engine.set_concurrency("crawl", 0)
    queued = await home.engine.submit("wait", handle="alice", lane="crawl")
    later = await home.engine.submit("wait", handle="bob", delay=3600)
    await home.engine.drain()
    await home.engine.set_concurrency("crawl", 3)
    drains = "The engine is draining: no queued run starts until it is resumed."
    await open_run(home, queued.id)
    await home.tab.until_text(drains, ".waits")
    await home.tab.until_text("No run of the lane comes before it.", ".waits")
    assert "its turn comes next" not in await home.tab.text(".waits")
    await home.engine.pause_lane("crawl")
    await home.tab.until_text("It waits for a slot of lane crawl: the lane is paused.", ".waits")
    await open_run(home, later.id)
    await home.tab.until_text(drains, ".waits")
    await home.tab.open(home.url)
    await home.tab.until_text("the engine is draining; the lane is paused", "[aria-labelledby=queues-title]")
    await home.tab.until_text("queued runs do not start until it is resumed", ".problems")


@needs_browser
async def test_a_limit_of_0_and_a_missing_executor_are_said(home):
    await home.engine.set_concurrency("crawl", 0)
    stopped = await home.engine.submit("wait", handle="alice", lane="crawl")
    needs = await home.engine.submit("wait", handle="bob", needs=["gpu"])
    await open_run(home, stopped.id)
    await home.tab.until_text("It waits for a slot of lane crawl: the limit of the lane is 0.", ".waits")
    await open_run(home, needs.id)
    await home.tab.until_text("It waits for a slot of lane main: no executor is attached.", ".waits")
    await home.tab.until_text("It needs an executor with gpu.", ".waits")
    await home.tab.open(home.url)
    await home.tab.until_text("the limit of the lane is 0", "[aria-labelledby=queues-title]")
    await home.tab.until_text("no executor is attached", "[aria-labelledby=queues-title]")


@needs_browser
async def test_the_rate_of_a_lane_says_when_the_next_run_starts(home):
    await home.engine.set_lane("crawl", rate="1/h")
    await home.engine.set_concurrency("crawl", 5)
    first = await home.engine.submit("wait", handle="alice", lane="crawl")
    second = await home.engine.submit("wait", handle="bob", lane="crawl")
    await until(home.engine, lambda snapshot: snapshot.runs[first.id].status == "running")
    await open_run(home, second.id)
    await home.tab.until_text("a rule of the lane delays it", ".waits")
    await home.tab.until_text("The lane starts at most 1/h, and the next run not before ", ".waits")


# Suspended runs.


@needs_browser
async def test_a_suspended_run_says_what_it_waits_for(home):
    asks = await home.engine.submit("ask", handle="asks")
    sleeps = await home.engine.submit("sleep", handle="sleeps")
    calls = await home.engine.submit("parent", handle="calls")
    listens = await home.engine.submit("listen", handle="listens")
    fails = await home.engine.submit("again", handle="fails")
    await until(home.engine, lambda snapshot: snapshot.runs[fails.id].waiting_for == "retry")
    await open_run(home, asks.id)
    await home.tab.until_text("It waits for an answer to its question above.", ".waits")
    await open_run(home, sleeps.id)
    await home.tab.until_text("It waits for a time that it has set itself.", ".waits")
    await open_run(home, calls.id)
    [child] = await home.engine.list_runs(parent=calls.id)
    await home.tab.until_text("It waits for its child run:", ".waits")
    await home.tab.until_text(f"…{child.id[-8:]} wait of child", ".waits li")
    await open_run(home, listens.id)
    await home.tab.until_text("It waits for a message.", ".waits")
    await open_run(home, fails.id)
    await home.tab.until_text("Attempt 1 failed. Attempt 2 enters its lane at ", ".waits")
    await home.engine.inject("child", "go")
    await home.engine.set_max_concurrent(0)
    await open_run(home, sleeps.id)
    await home.tab.until_text(
        "After that, it needs a slot of its lane again. Now: the global limit is 0.", ".waits"
    )
    await home.engine.inject("listens", "go")
    await open_run(home, listens.id)
    await home.tab.until_text("It waited for a message, which has arrived.", ".waits")
    await home.tab.until_text("It waits for a slot of lane main: the global limit is 0.", ".waits")
    await open_run(home, calls.id)
    await home.tab.until_text("It waited for a child run, which has ended.", ".waits")


@needs_browser
async def test_a_run_that_waits_for_a_slot_again_says_so_and_counts_in_the_queues(home):
    asks = await home.engine.submit("ask", handle="alice", lane="crawl")
    await until(home.engine, lambda snapshot: bool(snapshot.interrupts))
    holder = await home.engine.submit("wait", handle="bob", lane="crawl")
    await until(home.engine, lambda snapshot: snapshot.runs[holder.id].status == "running")
    [interrupt] = (await home.engine.snapshot()).interrupts
    await home.engine.answer(interrupt, "yes")
    await open_run(home, asks.id)
    await home.tab.until_text("It waited for an answer, and its question is closed.", ".waits")
    await home.tab.until_text(
        "It waits for a slot of lane crawl: 1 of 1 slots of the lane are in use.", ".waits"
    )
    await home.tab.until_text("No run of the lane comes before it.", ".waits")
    behind = await home.engine.submit("wait", handle="carol", lane="crawl")
    await open_run(home, behind.id)
    await home.tab.until_text("1 run of the lane comes before it.", ".waits")
    await home.tab.open(home.url)
    queues = "[aria-labelledby=queues-title]"
    await home.tab.until_text("1 queued", queues)
    await home.tab.until_text("1 waits for a slot again", queues)
    await home.tab.until_text(f"…{asks.id[-8:]} ask of alice has waited", queues)
    await home.tab.until_text(f"behind …{holder.id[-8:]} wait of bob", queues)
    await home.engine.inject("bob", "go")
    assert await asks.result() == "yes"


@needs_browser
async def test_runs_that_executed_when_the_server_was_killed_say_that_they_are_tried_in_turn(tmp_path: Path):
    with server(tmp_path, mirrors.__name__) as program:
        async with open_browser() as browser:
            tab = await browser.tab()
            await program.listens()
            async with connect(program.url) as client:
                for handle in ("alice", "bob"):
                    ticket = await client.submit("mirror", handle=handle, params={"url": "a"})
                await tab.open(f"{program.url.replace('ws', 'http')}/runs/{ticket.id}")
                await tab.until_text("1 / 2", "main")
            program.kill()
            program.start()
            await program.listens()
            await tab.until_text("It executed when the process of the engine died.", ".waits")
            await tab.until_text(
                "It waits for a slot of lane main: another run that executed then is tried first.", ".waits"
            )
            await tab.open(program.url.replace("ws", "http"))
            await tab.until_text("1 waits for a slot again", "[aria-labelledby=queues-title]")
            await tab.until_text("mirror of bob has waited", "[aria-labelledby=queues-title]")


# Names.


@needs_browser
async def test_problems_and_messages_name_the_handle_and_the_job(home):
    ticket = await home.engine.submit("wait", handle="alice")
    await open_run(home, ticket.id)
    await home.tab.click("Cancel")
    await home.tab.click("Cancel, keep files", "dialog")
    await home.tab.until_text(f"run …{ticket.id[-8:]} (wait of alice) is being cancelled", ".toasts")
    await home.tab.click("Rerun")
    await home.tab.until_text(f"run …{ticket.id[-8:]} (wait of alice) is submitted again", ".toasts")


@needs_browser
async def test_the_shown_end_of_an_id_opens_the_run(home):
    ticket = await home.engine.submit("wait", handle="alice")
    await home.tab.open(home.url)
    await home.tab.until_text("1 of 9")
    await home.tab.fill("[role=search] input", f"…{ticket.id[-8:]}")
    await home.tab.run("document.querySelector('[role=search]').requestSubmit()")
    await home.tab.until(f"location.pathname === '/runs/{ticket.id}'")


@needs_browser
async def test_the_question_to_cancel_a_run_counts_its_children(home):
    parent = await home.engine.submit("parent", handle="calls")
    await until(home.engine, lambda snapshot: snapshot.runs[parent.id].waiting_for == "child")
    await open_run(home, parent.id)
    await home.tab.click("Cancel")
    await home.tab.until_text("1 pending child run is cancelled too.", "dialog")
    await home.tab.click("Back", "dialog")
    [child] = await home.engine.list_runs(parent=parent.id)
    await open_run(home, child.id)
    await home.tab.click("Cancel")
    await home.tab.until_text("It executes wait for the handle child.", "dialog")
    assert "child run" not in await home.tab.text("dialog")


# Schedules.


async def choose(home: House, name: str, value: str) -> None:
    """Choose an option of a form, which then renders again."""
    chosen = f"Object.assign(document.querySelector('[name={name}]'), {{ value: '{value}' }})"
    await home.tab.run(f"void {chosen}.dispatchEvent(new Event('input', {{ bubbles: true }}))")


@needs_browser
async def test_a_refused_schedule_is_a_problem_and_names_the_run_that_is_in_its_way(home):
    await home.engine.schedules.put("often", job="wait", every=1)
    await home.tab.open(home.url)
    await home.tab.until_text("Schedule often was refused at", ".problems .bad")
    [active] = await home.engine.list_runs(handle="schedule:often")
    await home.tab.until(f"document.querySelector('.problems a[href=\"/runs/{active.id}\"]')")
    await home.tab.open(f"{home.url}/schedules")
    await home.tab.until(f"document.querySelector('.grid .error-text a[href=\"/runs/{active.id}\"]')")
    await home.engine.schedules.pause("often")
    await home.tab.open(home.url)
    await home.tab.until_text("1 of 9")
    assert "often" not in await home.tab.text("main")


@needs_browser
async def test_a_schedule_is_given_its_lane_its_tags_and_what_it_does_if_its_handle_is_busy(home):
    await home.tab.open(f"{home.url}/schedules")
    await home.tab.click("New schedule")
    await home.tab.fill("[name=name]", "nightly")
    await home.tab.fill("[name=job]", "wait")
    await home.tab.fill("[name=cron]", "0 3 * * *")
    await home.tab.fill("[name=lane]", "crawl")
    await home.tab.fill("[name=tags]", "team")
    overlaps = """[...document.querySelectorAll('form select')]
        .filter((one) => one.offsetWidth > one.parentElement.offsetWidth).map(({ name }) => name)"""
    assert await home.tab.run(overlaps) == []
    await choose(home, "missed", "all")
    await choose(home, "on_conflict", "queue")
    await home.tab.click("Create")
    await home.tab.until_text('a tag is written as name=value (got "team")', ".form")
    await home.tab.fill("[name=tags]", "team=web\nuser=alice")
    await home.tab.click("Create")
    await home.tab.until("location.pathname === '/schedules/nightly'")
    tags = {"team": "web", "user": "alice"}
    options = {"on_conflict": "queue", "lane": "crawl", "tags": tags}
    stored = await home.engine.schedules.get("nightly")
    assert (stored.options, stored.missed) == (options, "all")
    await home.engine.schedules.put(
        "nightly", job="wait", cron="0 3 * * *", priority=7, on_conflict="coalesce", lane="crawl", tags=tags
    )
    await home.tab.open(f"{home.url}/schedules/nightly")
    await home.tab.click("Change")
    await home.tab.fill("[name=tags]", "")
    await home.tab.click("Save")
    await home.tab.until_text("the schedule is saved", ".toasts")
    changed = {"on_conflict": "coalesce", "lane": "crawl", "priority": 7}
    assert (await home.engine.schedules.get("nightly")).options == changed


# Delayed runs, and looks.


@needs_browser
async def test_delayed_runs_are_told_apart_and_show_their_time(home):
    await home.engine.submit("wait", handle="alice", delay=3600)
    await home.engine.submit("wait", handle="bob")
    await home.engine.submit("wait", handle="bob", on_conflict="queue")
    await home.tab.open(home.url)
    await home.tab.until_text("queued, 1 delayed, 1 for its handle", ".tile.queued")
    await home.tab.open(f"{home.url}/runs")
    await home.tab.until_text("not before ", ".virtual-rows")


@needs_axe
@needs_browser
@pytest.mark.parametrize("width", [1280, 360])
async def test_what_is_said_about_waiting_can_be_read_by_everyone(width, home):
    await home.engine.schedules.put("often", job="wait", every=1, tags={"team": "web"})
    await home.engine.submit("wait", handle="alice", lane="crawl")
    asks = await home.engine.submit("ask", handle="a-handle-with-a-long-name", lane="crawl")
    await home.engine.reset_lanes()
    await home.engine.submit("wait", handle="bob", lane="crawl", needs=["gpu"])
    calls = await home.engine.submit("parent", handle="calls")
    await until(home.engine, lambda snapshot: snapshot.runs[calls.id].waiting_for == "child")
    await home.tab.resize(width, 800)
    for view in ("", f"runs/{asks.id}", f"runs/{calls.id}", "schedules/often"):
        await home.tab.open(f"{home.url}/{view}")
        await home.tab.until_text("live")
        assert await serious(home.tab) == [], view
        assert await home.tab.run(SIDEWAYS) == 0, view
