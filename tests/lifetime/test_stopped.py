"""Every call on a stopped engine is refused immediately."""

import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import trio

from greenroom import Engine, Ticket
from greenroom.errors import Draining, Unavailable
from greenroom.protocol.submission import SubmitOptions
from tests.support import Bodies, open_engine

FLOW = {"start": "a", "nodes": {"a": {"kind": "timer", "params": {"delay_ms": 60_000}}}}

CALLS: dict[str, Callable[[Engine, str], Coroutine[Any, Any, Any]]] = {
    "submit": lambda engine, run: engine.submit("wait", handle="h", params={}),
    "submit a flow": lambda engine, run: engine.submit("flow", handle="h", params={"flow": "flow"}),
    "rerun": lambda engine, run: engine.rerun(run),
    "retry": lambda engine, run: engine.retry(run),
    "cancel_many": lambda engine, run: engine.cancel_many(handle="h"),
    "rerun_many": lambda engine, run: engine.rerun_many(handle="h"),
    "retry_many": lambda engine, run: engine.retry_many(handle="h"),
    "set_priority": lambda engine, run: engine.set_priority(run, 1),
    "pause_lane": lambda engine, run: engine.pause_lane("main"),
    "resume_lane": lambda engine, run: engine.resume_lane("main"),
    "set_lane": lambda engine, run: engine.set_lane("main", age=5),
    "cancel": lambda engine, run: engine.cancel(run),
    "list_jobs": lambda engine, run: engine.list_jobs(),
    "list_files": lambda engine, run: engine.list_files(run),
    "locate_file": lambda engine, run: engine.locate_file(run, "a.txt"),
    "inject": lambda engine, run: engine.inject(run, 1),
    "answer": lambda engine, run: engine.answer(f"{run}.1", 1),
    "signal": lambda engine, run: engine.signal(run, "key", 1),
    "set_params": lambda engine, run: engine.set_params("h", {}),
    "submit_many": lambda engine, run: engine.submit_many([{"job": "wait", "handle": "h", "params": {}}]),
    "submit_many_options": lambda engine, run: engine.submit_many_options(
        [SubmitOptions(job="wait", handle="h")], lambda options: options, all_or_nothing=True, by="app"
    ),
    "submit_options": lambda engine, run: engine.submit_options(
        SubmitOptions(job="wait", handle="h"), by="app"
    ),
    "set_concurrency": lambda engine, run: engine.set_concurrency("main", 1),
    "set_max_concurrent": lambda engine, run: engine.set_max_concurrent(1),
    "clear_lane": lambda engine, run: engine.clear_lane("main"),
    "clear_handle": lambda engine, run: engine.clear_handle("h"),
    "release_handle": lambda engine, run: engine.release_handle("h"),
    "reset_lanes": lambda engine, run: engine.reset_lanes(),
    "wait_for_active": lambda engine, run: engine.wait_for_active(),
    "drain": lambda engine, run: engine.drain(),
    "resume": lambda engine, run: engine.resume(),
    "snapshot": lambda engine, run: engine.snapshot(),
    "get_run": lambda engine, run: engine.get_run(run),
    "wait": lambda engine, run: engine.wait(run),
    "list_runs": lambda engine, run: engine.list_runs(),
    "history": lambda engine, run: engine.history(run),
    "history_page": lambda engine, run: engine.history_page(run, 0, 10),
    "look": lambda engine, run: engine.look(lambda committed: committed.seq),
    "flows.create": lambda engine, run: engine.flows.create("new"),
    "flows.publish": lambda engine, run: engine.flows.publish("flow", FLOW),
    "flows.add_version": lambda engine, run: engine.flows.add_version("flow", FLOW),
    "flows.list": lambda engine, run: engine.flows.list(),
    "flows.versions": lambda engine, run: engine.flows.versions("flow"),
    "flows.version": lambda engine, run: engine.flows.version("id"),
    "flows.put_version": lambda engine, run: engine.flows.put_version("flow", FLOW),
    "flows.definitions": lambda engine, run: engine.flows.definitions("flow"),
    "flows.start": lambda engine, run: engine.flows.start("flow"),
    "flows.task": lambda engine, run: engine.flows.task(run),
    "flows.tasks": lambda engine, run: engine.flows.tasks(),
    "flows.node_runs": lambda engine, run: engine.flows.node_runs(run),
    "schedules.configure": lambda engine, run: engine.schedules.configure({}),
    "schedules.put": lambda engine, run: engine.schedules.put("s", job="wait", every=60),
    "schedules.preview": lambda engine, run: engine.schedules.preview(every=60),
    "schedules.list": lambda engine, run: engine.schedules.list(),
    "schedules.get": lambda engine, run: engine.schedules.get("s"),
    "schedules.pause": lambda engine, run: engine.schedules.pause("s"),
    "schedules.resume": lambda engine, run: engine.schedules.resume("s"),
    "schedules.trigger": lambda engine, run: engine.schedules.trigger("s"),
    "schedules.delete": lambda engine, run: engine.schedules.delete("s"),
    "workers.register": lambda engine, run: engine.workers.register("w", "http://127.0.0.1:1", ["s"]),
    "workers.heartbeat": lambda engine, run: engine.workers.heartbeat("w"),
    "workers.list": lambda engine, run: engine.workers.list(),
    "workers.allocate": lambda engine, run: engine.workers.allocate("s"),
    "workers.poll": lambda engine, run: engine.workers.poll("w", ["s"]),
    "workers.complete": lambda engine, run: engine.workers.complete("id"),
    "workers.extend": lambda engine, run: engine.workers.extend("id", "w"),
}

ANSWERED = {"settled", "flows.check", "lease_lapsed"}
"""Calls that do not require a running engine."""


async def stopped() -> tuple[Engine, Ticket]:
    async with open_engine(Bodies().jobs) as engine:
        await engine.flows.publish("flow", FLOW)
        return engine, await engine.flows.start("flow")


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_is_refused_immediately(call: str, autojump_clock: trio.testing.MockClock) -> None:
    engine, ticket = await stopped()
    began = trio.current_time()
    with trio.fail_after(1), pytest.raises(Unavailable, match="engine has stopped"):
        await CALLS[call](engine, ticket.id)
    assert trio.current_time() == began


async def test_no_call_is_forgotten(autojump_clock: trio.testing.MockClock) -> None:
    engine, _ = await stopped()
    parts = {
        "": engine,
        "flows.": engine.flows,
        "schedules.": engine.schedules,
        "workers.": engine.workers,
    }
    known = {
        prefix + name
        for prefix, part in parts.items()
        for name, method in inspect.getmembers(type(part), inspect.iscoroutinefunction)
        if not name.startswith("_")
    }
    assert known - ANSWERED == set(CALLS) - {"submit a flow"}


async def test_events_end(autojump_clock: trio.testing.MockClock) -> None:
    engine, _ = await stopped()
    with trio.fail_after(1):
        assert [event async for event in engine.events()] == []


async def test_a_call_during_the_stop_is_answered(autojump_clock: trio.testing.MockClock) -> None:
    """A start can arrive after the catalog has ended, or just before."""
    outcomes: list[str] = []

    async def start(engine: Engine, turns: int) -> None:
        for _ in range(turns):
            await trio.lowlevel.checkpoint()
        try:
            await engine.flows.start("flow")
        except (Unavailable, Draining) as error:
            outcomes.append(error.code)
        else:
            outcomes.append("started")

    with trio.fail_after(1):
        for turns in range(40):
            async with trio.open_nursery() as outside, open_engine(Bodies().jobs) as engine:
                await engine.flows.publish("flow", FLOW)
                outside.start_soon(start, engine, turns)
    assert {"draining", "unavailable"} <= set(outcomes)
    assert len(outcomes) == 40
