"""Flows as runs: versions, handles, lanes, limits and request ids apply to them as to any run."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from greenroom import Jobs, Run
from greenroom.errors import Conflict, Invalid, NotFound
from greenroom.protocol.events import FlowChanged, NodeRan, NodeStarted, RunStateChanged
from tests.support import open_engine, until_status

from .restarts import Lives, wall_clock
from .walking import Calls, ended, flow, local, node, start, until_waiting, walk

ONE = flow("", a=local("echo", {"version": 1}, "out"))
TWO = flow("", a=local("echo", {"version": 2}, "out"))
SLEEP = flow("", a=local("sleep", "$params.n", "slept"))
TIMER = flow("t b", t=node("timer", params={"delay_ms": 60_000}), b=local("echo", {"x": 1}, "b"))

pytestmark = pytest.mark.usefixtures("each_store")


# Versions.


async def test_the_latest_published_version_is_walked_unless_another_is_named(
    autojump_clock: MockClock,
) -> None:
    async with open_engine(Calls().jobs) as engine:
        first = await engine.flows.publish("flow", ONE)
        assert (first.version, first.status) == (1, "published")
        await engine.flows.publish("flow", flow("", a=local("fail")), status="draft")
        assert (await (await engine.flows.start("flow")).result())["out"] == {"version": 1}
        await engine.flows.publish("flow", TWO)
        assert (await (await engine.flows.start("flow")).result())["out"] == {"version": 2}
        assert (await (await engine.flows.start("flow", version=1)).result())["out"] == {"version": 1}
        [row], _ = await engine.flows.list()
        assert (await (await engine.flows.start(row.id)).result())["out"] == {"version": 2}


async def test_a_published_version_cannot_be_changed_but_a_draft_can(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        await engine.flows.publish("flow", ONE)
        for status in ("published", "draft"):
            with pytest.raises(Conflict, match='version 1 of flow "flow" is published'):
                await engine.flows.add_version("flow", TWO, version=1, status=status)
        draft = await engine.flows.add_version("flow", ONE, status="draft")
        again = await engine.flows.add_version("flow", TWO, version=2, status="draft")
        assert (draft.id, draft.version) == (again.id, again.version)
        with pytest.raises(Conflict, match="is a draft"):
            await engine.flows.start("flow", version=2)
        await engine.flows.add_version("flow", TWO, version=2)
        assert (await (await engine.flows.start("flow")).result())["out"] == {"version": 2}
        assert [row.status for row in await engine.flows.versions("flow")] == ["published", "published"]


async def test_a_run_keeps_the_version_that_it_was_submitted_with(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        ticket = await start(engine, TIMER)
        await engine.set_concurrency("main", 0)
        queued = await engine.flows.start("flow")
        await engine.flows.publish("flow", TWO)
        await engine.set_concurrency("main", None)
        for run in (ticket, queued):
            assert (await ended(engine, run)).result == {"b": {"x": 1}}
            task = await engine.flows.task(run.id)
            assert (task.flow.name, task.version.version, task.run.params["version"]) == ("flow", 1, 1)


async def test_an_unknown_flow_or_version_cannot_be_started(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        await engine.flows.create("empty")
        with pytest.raises(Conflict, match="has no published version"):
            await engine.flows.start("empty")
        with pytest.raises(NotFound, match='flow "nobody" not found'):
            await engine.flows.start("nobody")
        await engine.flows.publish("flow", ONE)
        with pytest.raises(NotFound, match="has no version 5; versions: 1"):
            await engine.flows.start("flow", version=5)
        with pytest.raises(Invalid):
            await engine.submit("flow", handle="h", params={"flow": "flow", "unknown": 1})
        with pytest.raises(Invalid):
            await engine.flows.start("flow", params=[1])  # type: ignore[arg-type]
        assert await engine.list_runs() == []


async def test_all_errors_of_a_definition_are_reported_and_nothing_is_stored(
    autojump_clock: MockClock,
) -> None:
    wrong = {"start": "x", "nodes": {"a": {"kind": "huh"}, "b": {"kind": "local"}}, "edges": [{"from": "b"}]}
    async with open_engine(Calls().jobs) as engine:
        with pytest.raises(Invalid) as refused:
            await engine.flows.publish("flow", wrong)
        assert len(refused.value.details["errors"]) >= 3
        assert await engine.flows.list() == ([], 0)


async def test_flows_exist_after_a_restart(autojump_clock: MockClock) -> None:
    lives = Lives(Calls().jobs)
    async with lives.clean() as engine:
        await engine.flows.publish("flow", ONE)
        await engine.flows.publish("flow", TWO, status="draft")
    async with lives.clean() as engine:
        assert (await (await engine.flows.start("flow")).result())["out"] == {"version": 1}
        assert (await engine.flows.publish("flow", TWO)).version == 3


async def test_a_change_of_a_flow_is_an_event(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        events = engine.events()
        await engine.flows.publish("flow", ONE, by="ann")
        made, published = await anext(events), await anext(events)
        assert isinstance(made, FlowChanged)
        assert isinstance(published, FlowChanged)
        assert (made.name, made.version, published.version, published.by) == ("flow", None, 1, "ann")


# Handles and requests.


async def test_a_run_without_a_handle_gets_its_own(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        tickets = [await start(engine, SLEEP, {"n": 10}) for _ in range(2)]
        for ticket in tickets:
            run = await engine.get_run(ticket.id)
            assert (run.handle, run.lane, run.job) == (f"task:{ticket.id}", "main", "flow")
            await ended(engine, ticket)


async def test_a_request_id_is_one_run_even_when_a_newer_version_was_published(
    autojump_clock: MockClock,
) -> None:
    async with open_engine(Calls().jobs) as engine:
        await engine.flows.publish("flow", ONE)
        first = await engine.flows.start("flow", params={"n": 1}, request_id="r")
        await engine.flows.publish("flow", TWO)
        second = await engine.flows.start("flow", params={"n": 1}, request_id="r")
        assert (second.id, second.joined) == (first.id, True)
        await ended(engine, first)
        assert (await engine.flows.start("flow", params={"n": 1}, request_id="r")).id == first.id
        for other in ({"params": {"n": 2}}, {"params": {"n": 1}, "version": 2}):
            with pytest.raises(Conflict):
                await engine.flows.start("flow", request_id="r", **other)  # type: ignore[arg-type]


async def test_a_waiting_flow_keeps_its_handle(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        ticket = await start(engine, TIMER, handle="h")
        await until_waiting(engine, ticket)
        with pytest.raises(Conflict) as refused:
            await engine.flows.start("flow", handle="h")
        assert refused.value.details["active_run"] == ticket.id
        assert (await engine.snapshot()).handles["h"].locked
        joined = await engine.flows.start("flow", handle="h", on_conflict="join")
        assert (joined.id, joined.joined) == (ticket.id, True)
        queued = await engine.flows.start("flow", handle="h", on_conflict="queue")
        replacing = await engine.flows.start("flow", handle="h", on_conflict="replace")
        done = await ended(engine, ticket)
        assert (done.run.status, done.run.reason, done.story) == ("cancelled", "replaced", ["t cancelled"])
        assert (await ended(engine, replacing)).result == {"b": {"x": 1}}
        assert (await ended(engine, queued)).result == {"b": {"x": 1}}
        ends = [(await engine.get_run(run.id)).ended_at or 0 for run in (replacing, queued)]
        assert ends[0] < ends[1]


async def test_a_rerun_walks_the_same_version_again(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        double = flow("", a=local("double", "$params.n", "out"))
        done = await walk(engine, double, {"n": 4}, handle="h")
        await engine.flows.publish("flow", TWO)
        again = await ended(engine, await engine.rerun(done.run.id))
        assert again.result == done.result == {"out": 8}
        assert again.run.handle == "h"
        assert again.story == done.story


async def test_a_flow_is_submitted_like_any_job(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        await engine.flows.publish("flow", SLEEP)
        ticket = await engine.submit("flow", handle="h", params={"flow": "flow", "params": {"n": 3}})
        assert await ticket.result() == {"slept": 3}
        assert (await engine.get_run(ticket.id)).params == {"flow": "flow", "version": 1, "params": {"n": 3}}


async def test_a_flow_can_be_the_child_of_a_run(autojump_clock: MockClock) -> None:
    jobs = Calls().jobs

    @jobs.job("parent")
    async def parent(run: Run) -> object:
        return await run.call("flow", handle="child", params={"flow": "flow", "params": {"n": 3}})

    async with open_engine(jobs, max_concurrent=1) as engine:
        await engine.flows.publish("flow", SLEEP)
        assert await (await engine.submit("parent", handle="h")).result() == {"slept": 3}


async def test_no_job_can_have_the_name_of_flows() -> None:
    jobs = Jobs()
    with pytest.raises(Invalid, match="is reserved for flows"):

        @jobs.job("flow")
        async def mine(run: Run) -> None:
            pass


# Lanes and limits.


async def test_lanes_and_limits_apply_to_flows(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs, max_concurrent=3, lanes={"narrow": 1}) as engine:
        await engine.flows.publish("flow", SLEEP)
        began = trio.current_time()
        narrow = [await engine.flows.start("flow", params={"n": 5}, lane="narrow") for _ in range(3)]
        wide = [await engine.flows.start("flow", params={"n": 5}) for _ in range(4)]
        await trio.sleep(1)
        assert (await engine.snapshot()).engine.executing == 3
        assert len((await engine.snapshot()).lanes["narrow"].executing) == 1
        for ticket in wide:
            await ended(engine, ticket)
        assert trio.current_time() - began == pytest.approx(10, abs=0.1)
        for ticket in narrow:
            await ended(engine, ticket)
        assert trio.current_time() - began == pytest.approx(15, abs=0.1)


async def test_a_flow_that_wakes_keeps_its_place_in_the_queue(autojump_clock: MockClock) -> None:
    """If both can continue, the one that was submitted first does."""
    calls = Calls()
    async with open_engine(calls.jobs, max_concurrent=1) as engine:
        wait = node("wait_event", params={"signal_key": "go"})
        first = await start(engine, flow("w a", w=wait, a=local("echo", {"run": "first"})))
        await until_waiting(engine, first)
        await engine.flows.publish("busy", SLEEP)
        busy = await engine.flows.start("busy", params={"n": 10})
        await until_status(engine, busy, "running")
        await engine.flows.publish("later", flow("", a=local("echo", {"run": "later"})))
        later = await engine.flows.start("later")
        await engine.signal(first.id, "go", True)
        for ticket in (first, later):
            await ended(engine, ticket)
        assert [one["run"] for one in calls.of("echo")] == ["first", "later"]


# History and state.


async def test_the_history_contains_the_steps_of_the_walk(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        failing = node(
            "foreach", "$params.n", exec_type="local", func="even", failure_strategy="ignore_errors"
        )
        timer = node("timer", params={"delay_ms": 1000})
        done = await walk(engine, flow("f t", f=failing, t=timer), {"n": [0, 1]})
        history = await engine.history(done.run.id)
        told = [
            (event.node, event.branch, event.status) if isinstance(event, NodeRan) else event.node
            for event in history
            if isinstance(event, NodeRan | NodeStarted)
        ]
        assert told == ["f", ("f", "0", "ok"), ("f", "1", "error"), ("f", None, "ok"), "t", ("t", None, "ok")]
        states = [str(event.to) for event in history if isinstance(event, RunStateChanged)]
        assert states == ["queued", "running", "suspended", "running", "succeeded"]
        for event in history:
            if isinstance(event, NodeRan):
                assert (event.run, event.handle, event.lane) == (done.run.id, done.run.handle, "main")


async def test_a_task_shows_its_current_node_and_its_shared_data(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs, clock=wall_clock) as engine:
        a, c = local("echo", {"x": 1}, "a", action="on"), local("echo", {"x": 2}, "c")
        ticket = await start(engine, flow("a:on t, t c", a=a, t=TIMER["nodes"]["t"], c=c), {"n": 1})
        await until_waiting(engine, ticket)
        task = await engine.flows.task(ticket.id)
        began = task.shared.pop("_rt.tm:t")["start"]
        assert began == pytest.approx(wall_clock() * 1000, abs=100)
        assert (task.node, task.last_action, task.steps, task.shared) == ("t", "on", 1, {"a": {"x": 1}})
        await ended(engine, ticket)
        task = await engine.flows.task(ticket.id)
        assert (task.node, task.last_action, task.steps) == (None, "default", 3)
        assert task.shared == task.run.result == {"a": {"x": 1}, "c": {"x": 2}}


async def test_tasks_are_listed_newest_first_by_status_and_version(autojump_clock: MockClock) -> None:
    jobs = Calls().jobs

    @jobs.job("plain")
    async def plain(run: Run) -> None:
        pass

    async with open_engine(jobs) as engine:
        versions = [await engine.flows.publish("flow", definition) for definition in (ONE, TIMER)]
        quick = [await engine.flows.start("flow", version=1) for _ in range(3)]
        await (await engine.submit("plain", handle="h")).result()
        for ticket in quick:
            await ended(engine, ticket)
        waiting = await engine.flows.start("flow")
        await until_waiting(engine, waiting)

        async def listed(**query: object) -> tuple[list[str], int]:
            tasks, total = await engine.flows.tasks(**query)  # type: ignore[arg-type]
            return [task.run.id for task in tasks], total

        ids = [ticket.id for ticket in (waiting, *reversed(quick))]
        assert await listed() == (ids, 4)
        assert await listed(limit=2, offset=1) == (ids[1:3], 4)
        assert await listed(status="suspended") == (ids[:1], 1)
        assert await listed(status=["succeeded", "failed"]) == (ids[1:], 3)
        assert await listed(version=versions[1].id) == (ids[:1], 1)
        for what in (engine.flows.task, engine.flows.node_runs):
            with pytest.raises(NotFound):
                await what("nobody")


async def test_an_ordinary_run_is_not_a_task(autojump_clock: MockClock) -> None:
    jobs = Jobs()

    @jobs.job("plain")
    async def plain(run: Run) -> None:
        pass

    async with open_engine(jobs) as engine:
        ticket = await engine.submit("plain", handle="h")
        await ticket.result()
        with pytest.raises(NotFound):
            await engine.flows.task(ticket.id)
        with pytest.raises(NotFound):
            await engine.flows.node_runs(ticket.id)
