"""Flows and workers through the client and in asyncio: the same as through the embedded engine in trio.

And over a bad network."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from greenroom import Jobs, errors
from greenroom.gateway.client import RunEngine
from greenroom.protocol.flow.check import check
from greenroom.protocol.validation import LONGEST_POLL

from ..gateway.flowing import DOUBLES, QUEUED, WAITS
from .everywhere import everywhere, now, outcome, sleep
from .network import network

JOBS = Jobs()
on_each = everywhere(JOBS)


@JOBS.function("double")
async def double(input: Any) -> Any:
    return input * 2


@on_each
async def test_a_flow_is_checked_published_and_shown(engine: RunEngine):
    flows = engine.flows
    checked = await flows.check(DOUBLES)
    assert checked.graph is not None
    assert (checked.graph.start, checked.errors, checked.warnings) == ("a", [], [])
    flow = await flows.create("order", "what it is for")
    assert (flow.name, flow.description) == ("order", "what it is for")
    first = await flows.publish("order", DOUBLES)
    second = await flows.add_version(flow.id, json.dumps(WAITS), version=5, status="draft")
    assert (first.flow, first.version, first.status) == (flow.id, 1, "published")
    assert (second.flow, second.version, second.status) == (flow.id, 5, "draft")
    assert [(row.id, row.definition) for row in await flows.versions("order")] == [
        (first.id, ""),
        (second.id, ""),
    ]
    assert json.loads((await flows.version(second.id)).definition) == WAITS
    await flows.create("other")
    listed, total = await flows.list(1, 1)
    assert ([row.name for row in listed], total) == (["other"], 2)


@on_each
@pytest.mark.parametrize(
    "definition",
    [
        {"start": "x", "nodes": {"a": {"kind": "magic"}}},
        "start: [",
        "",
        {"start": "a", "nodes": {"a": {"kind": "timer", "params": {"delay_ms": {1}}}}},
        [],
        5,
        {"start": "\ud800", "nodes": {}},
    ],
)
async def test_all_errors_are_reported_together(engine: RunEngine, definition: Any):
    expected = check(definition)
    checked = await engine.flows.check(definition)
    assert (checked.graph, checked.errors) == (None, expected.errors)
    for publish in (engine.flows.publish, engine.flows.add_version):
        with pytest.raises(errors.Invalid) as caught:
            await publish("f", definition)
        assert caught.value.details["errors"] == expected.errors


@on_each
async def test_a_flow_runs(engine: RunEngine):
    await engine.flows.publish("order", DOUBLES)
    ticket = await engine.flows.start("order", params={"n": 4}, request_id="once", run_timeout=math.inf)
    again = await engine.flows.start("order", params={"n": 4}, request_id="once", run_timeout=math.inf)
    assert (again.id, ticket.joined, again.joined) == (ticket.id, False, True)
    assert await ticket.result() == {"out": 8}
    task = await engine.flows.task(ticket.id)
    assert (task.run.status, task.shared, task.steps, task.request_id) == ("succeeded", {"out": 8}, 1, "once")
    assert (task.flow.name, task.version.version, task.node) == ("order", 1, None)
    assert await engine.flows.tasks(status=iter(("succeeded",)), version=task.version.id) == ([task], 1)
    [row] = await engine.flows.node_runs(ticket.id)
    assert (row.run, row.node, row.status, row.output) == (ticket.id, "a", "ok", 8)


@on_each
async def test_a_signal_lets_a_flow_go_on(engine: RunEngine):
    await engine.flows.publish("order", WAITS)
    ticket = await engine.flows.start("order", handle="alice", lane="side")
    await sleep(1)
    await engine.signal(ticket.id, "$shared.flag", {"by": "bob"})
    assert await ticket.result() == {"flag": {"by": "bob"}, "got": {"by": "bob"}}


@on_each
async def test_a_flows_run_can_be_named_by_its_handle(engine: RunEngine):
    await engine.flows.publish("order", WAITS)
    ticket = await engine.flows.start("order", handle="alice")
    await sleep(1)
    assert (await engine.flows.task("alice")).run.id == ticket.id
    assert await engine.flows.node_runs("alice") == await engine.flows.node_runs(ticket.id)
    await engine.signal("alice", "flag", 1)
    assert (await ticket.result())["got"] == 1
    with pytest.raises(errors.NoActiveRun):
        await engine.signal("alice", "flag", 1)
    with pytest.raises(errors.NotFound, match='flow run "alice" not found'):
        await engine.flows.task("alice")


@on_each
async def test_on_wait_is_called_for_a_flow_that_waits_for_a_slot(engine: RunEngine, follows: bool):
    if not follows:
        return  # nobody tells this client
    waits: list[float] = []
    await engine.flows.publish("order", DOUBLES)
    await engine.set_max_concurrent(0)
    await engine.flows.start("order", warn_after=5, on_wait=lambda waited, *_: waits.append(waited))
    await sleep(4)
    assert waits == []
    for _ in range(60):  # the clock of the synchronous client goes on while the machine is busy
        if not waits:
            await sleep(1)
    assert len(waits) == 1


@on_each
async def test_workers_register_and_are_found(engine: RunEngine):
    workers = engine.workers
    state = await workers.register("a", "http://127.0.0.1:9/", ["sum", "sum"], load=2)
    assert (state.url, state.services, state.kind, state.status) == (
        "http://127.0.0.1:9",
        ("sum",),
        "http",
        "online",
    )
    await workers.register("b", "http://127.0.0.1:8", ("sum",), load=1)
    best = await workers.allocate("sum")
    assert best is not None
    assert best.id == "b"
    assert await workers.allocate("route") is None
    await sleep(10)
    await workers.heartbeat("a", 0.5)
    await sleep(10)
    assert [(worker.id, worker.status) for worker in await workers.list("sum")] == [
        ("a", "online"),
        ("b", "offline"),
    ]
    assert [worker.id for worker in await workers.list(ttl=12)] == ["a"]


@on_each
async def test_work_is_fetched_and_done(engine: RunEngine, time_jumps: bool):
    await engine.flows.publish("order", QUEUED)
    workers = engine.workers
    began = await now()
    assert await workers.poll("w", ["slow"], wait=3) is None
    assert 3 - 0.5 <= await now() - began < LONGEST_POLL
    ticket = await engine.flows.start("order", params={"n": 1})
    item = await workers.poll("w", ["slow"])
    assert item is not None
    assert (item.run, item.node, item.input, item.params) == (ticket.id, "q", 1, {"by": 3, "n": 1})
    pause = 50 if time_jumps else 5  # twice 50 is longer than a claim lasts
    await sleep(pause)
    await workers.extend(item.id, "w")
    await sleep(pause)
    await workers.complete(item.id, [1, 2], worker_id="w")
    assert await ticket.result() == {"out": [1, 2]}
    with pytest.raises(errors.Conflict):
        await workers.complete(item.id, [1, 2])


@on_each
@pytest.mark.parametrize("result", [{1, 2}, math.nan, "x" * (3 << 20)], ids=["a set", "NaN", "too large"])
async def test_a_result_that_can_not_be_taken_fails_the_work(engine: RunEngine, result: Any):
    await engine.flows.publish("order", QUEUED)
    ticket = await engine.flows.start("order", params={"n": 1})
    item = await engine.workers.poll("w", ["slow"])
    assert item is not None
    with pytest.raises((errors.Invalid, errors.TooLarge)):
        await engine.workers.complete(item.id, result)
    with pytest.raises(errors.RunFailed):
        await ticket.result()


@on_each
async def test_failed_work_has_an_error(engine: RunEngine):
    await engine.flows.publish("order", QUEUED)
    ticket = await engine.flows.start("order", params={"n": 1})
    item = await engine.workers.poll("w", ["slow"])
    assert item is not None
    await engine.workers.complete(item.id, error="no more paper")
    with pytest.raises(errors.RunFailed, match="no more paper"):
        await ticket.result()


Refusal = Callable[[RunEngine], Awaitable[Any]]

REFUSED: dict[str, Refusal] = {
    "flow without a name": lambda e: e.flows.create(" "),
    "description that is no text": lambda e: e.flows.create("f", 5),  # type: ignore[arg-type]
    "flow that is there": lambda e: e.flows.create("waits"),
    "version that is published": lambda e: e.flows.publish("waits", WAITS, version=1),
    "version that is no number": lambda e: e.flows.publish("waits", WAITS, version="1"),  # type: ignore[arg-type]
    "version below 0": lambda e: e.flows.publish("waits", WAITS, version=-1),
    "version that no store can hold": lambda e: e.flows.publish("waits", WAITS, version=2**70),
    "status": lambda e: e.flows.add_version("waits", WAITS, status="final"),  # type: ignore[arg-type]
    "version of no flow": lambda e: e.flows.add_version("nope", WAITS),
    "versions of no flow": lambda e: e.flows.versions("nope"),
    "no version": lambda e: e.flows.version("nope"),
    "list nothing": lambda e: e.flows.list(0),
    "list too far": lambda e: e.flows.list(1, 2**40),
    "start no flow": lambda e: e.flows.start("nope"),
    "start no version": lambda e: e.flows.start("waits", version=7),
    "start a version that is no number": lambda e: e.flows.start("waits", version="1"),  # type: ignore[arg-type]
    "start with a list": lambda e: e.flows.start("waits", params=[1]),  # type: ignore[arg-type]
    "start with a set": lambda e: e.flows.start("waits", params={"a": {1}}),
    "start on an empty handle": lambda e: e.flows.start("waits", handle=" "),
    "start on a busy handle": lambda e: e.flows.start("waits", handle="busy"),
    "start with an empty request id": lambda e: e.flows.start("waits", request_id=""),
    "start with a negative timeout": lambda e: e.flows.start("waits", deadline=-1),
    "no task": lambda e: e.flows.task("nope"),
    "tasks of a strange status": lambda e: e.flows.tasks(status="happy"),
    "tasks of strange statuses": lambda e: e.flows.tasks(status=5),  # type: ignore[arg-type]
    "node runs of nobody": lambda e: e.flows.node_runs("nope"),
    "node runs of no text": lambda e: e.flows.node_runs(5),  # type: ignore[arg-type]
    "signal to nobody": lambda e: e.signal("nope", "k", 1),
    "signal to params": lambda e: e.signal("nope", "$params.k", 1),
    "signal of no JSON": lambda e: e.signal("nope", "k", {1}),
    "worker without a name": lambda e: e.workers.register("", "http://x:1", ["s"]),
    "worker without services": lambda e: e.workers.register("w", "http://x:1", []),
    "worker with a text of services": lambda e: e.workers.register("w", "http://x:1", "s"),
    "worker without a URL": lambda e: e.workers.register("w", "", ["s"]),
    "worker of a strange kind": lambda e: e.workers.register("w", "http://x:1", ["s"], kind="x"),  # type: ignore[arg-type]
    "worker with a strange load": lambda e: e.workers.register("w", "http://x:1", ["s"], load=math.inf),
    "heartbeat of nobody": lambda e: e.workers.heartbeat("nope"),
    "workers of no service": lambda e: e.workers.list(5),  # type: ignore[arg-type]
    "workers within no time": lambda e: e.workers.list(ttl=-1),
    "poll for too long": lambda e: e.workers.poll("w", ["s"], 26),
    "poll of nobody": lambda e: e.workers.poll("", ["s"]),
    "complete what is not there": lambda e: e.workers.complete("nope"),
    "complete with a strange error": lambda e: e.workers.complete("nope", error=5),  # type: ignore[arg-type]
    "extend what is not there": lambda e: e.workers.extend("nope", "w"),
}


@pytest.mark.parametrize("kind", ["client", "asyncio, embedded", "asyncio, client"])
@pytest.mark.parametrize("refusal", REFUSED.values(), ids=REFUSED)
def test_what_the_engine_refuses_all_refuse_alike(refusal: Refusal, kind: str):
    expected, got = (
        outcome(each, JOBS, lambda engine: refused(engine, refusal)) for each in ("embedded", kind)
    )
    assert type(got) is type(expected)
    assert {name: type(value) for name, value in got.details.items()} == {
        name: type(value) for name, value in expected.details.items()
    }


async def refused(engine: RunEngine, refusal: Refusal) -> errors.GreenroomError:
    await engine.flows.publish("waits", WAITS)
    await engine.flows.start("waits", handle="busy")
    with pytest.raises(errors.GreenroomError) as caught:
        await refusal(engine)
    return caught.value


# When the connection is lost.


async def test_a_start_whose_answer_is_lost_is_sent_again_and_happens_once(autojump_clock: MockClock):
    async with network(JOBS) as (net, engine), net.client() as client:
        await client.flows.publish("order", DOUBLES)
        net.deafen()
        async with trio.open_nursery() as nursery:

            async def start() -> None:
                ticket = await client.flows.start("order", params={"n": 1})
                assert (ticket.joined, await ticket.result()) == (False, {"out": 2})

            nursery.start_soon(start)
            await trio.testing.wait_all_tasks_blocked()
            net.cut()
        assert (await engine.flows.tasks())[1] == 1


async def test_a_poll_continues_after_a_lost_connection(autojump_clock: MockClock):
    async with network(JOBS) as (net, engine), net.client() as client:
        await engine.flows.publish("order", QUEUED)
        async with trio.open_nursery() as nursery:

            async def poll() -> None:
                item = await client.workers.poll("w", ["slow"])
                assert item is not None
                await client.workers.complete(item.id, 5)

            nursery.start_soon(poll)
            await trio.testing.wait_all_tasks_blocked()
            net.cut()
            await trio.sleep(5)
            ticket = await engine.flows.start("order", params={"n": 1})
        assert await ticket.result() == {"out": 5}


async def test_what_became_of_a_completion_whose_answer_is_lost_is_not_known(autojump_clock: MockClock):
    async with network(JOBS) as (net, engine), net.client() as client:
        await engine.flows.publish("order", QUEUED)
        ticket = await engine.flows.start("order", params={"n": 1})
        item = await client.workers.poll("w", ["slow"])
        assert item is not None
        net.deafen()
        async with trio.open_nursery() as nursery:

            async def complete() -> None:
                with pytest.raises(errors.OutcomeUnknown):
                    await client.workers.complete(item.id, 5)

            nursery.start_soon(complete)
            await trio.testing.wait_all_tasks_blocked()
            net.cut()
        assert await ticket.result() == {"out": 5}
