"""Cancels and deadlines: a flow ends immediately, and one node run shows where it was."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from greenroom.errors import Conflict, RunCancelled, RunTimedOut
from greenroom.protocol.events import NodeRan
from tests.support import open_engine, until_status

from .definitions import Definition
from .pushing import Workers
from .restarts import Lives, wall_clock
from .walking import Calls, ended, flow, local, node, start, story

pytestmark = pytest.mark.usefixtures("place")

AT_ONCE = {"parallel_mode": "concurrent"}
HANG = local("hang", {"x": 1})
TIMER = node("timer", params={"delay_ms": 1e6})
ITEMS = {"items": [0, 1, 2]}


@attrs.frozen
class Case:
    """What a flow does forever, and the node runs after its cancel. `waits`: without a body."""

    name: str
    definition: Definition
    left: list[str]
    waits: bool = False

    @property
    def at(self) -> str:
        """The node at which it stays."""
        return self.left[-1].split()[0].partition("[")[0]


def each(func: str, **fields: Any) -> Definition:
    return node("foreach", "$params.items", exec_type="local", func=func, **fields)


CASES = [
    Case("local", flow("a b", a=HANG, b=HANG), ["a cancelled"]),
    Case("second node", flow("a b", a=local("echo"), b=HANG), ["a ok default", "b cancelled"]),
    Case("http", flow("", a=node("executor", service="hang")), ["a cancelled"]),
    Case("queue", flow("", a=node("executor", service="hang", exec_type="queue")), ["a cancelled"]),
    Case(
        "wait before a try", flow("", a=local("fail", max_retries=1, wait_ms=1e6)), ["a error", "a cancelled"]
    ),
    Case("foreach", flow("", f=each("hang")), ["f[0] cancelled"]),
    Case("foreach at once", flow("", f=each("hang", **AT_ONCE)), [f"f[{n}] cancelled" for n in range(3)]),
    Case(
        "tries of items",
        flow("", f=each("fail", max_retries=1, wait_ms=1e6, **AT_ONCE)),
        [f"f[{n}] {how}" for n in range(3) for how in ("cancelled", "error")],
    ),
    Case(
        "parallel",
        flow("", p=node("parallel", exec_type="local", parallel_services=["echo", "hang", "echo"])),
        ["p[0] ok", "p[1] cancelled"],
    ),
    Case("within a subflow", flow("", s=node("subflow", subflow=flow("", a=HANG))), ["s/a cancelled"]),
    Case("timer", flow("", t=TIMER), ["t cancelled"], waits=True),
    Case(
        "wait_event", flow("", w=node("wait_event", params={"signal_key": "x"})), ["w cancelled"], waits=True
    ),
    Case("approval", flow("", a=node("approval", params={"approval_key": "x"})), ["a cancelled"], waits=True),
    Case(
        "timer within a subflow",
        flow("", s=node("subflow", subflow=flow("a t", a=local("echo"), t=TIMER))),
        ["s/a ok default", "s/t cancelled"],
        waits=True,
    ),
]


@pytest.mark.usefixtures("each_store")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_cancel_leaves_cancelled_node_runs_and_frees_the_handle(
    case: Case, autojump_clock: MockClock
) -> None:
    workers = Workers()
    calls = Calls()
    async with open_engine(calls.jobs, push=workers, clock=wall_clock) as engine:
        await workers.register(engine, "w", "hang")
        ticket = await start(engine, case.definition, ITEMS, handle="h")
        await trio.sleep(5)
        run = await engine.get_run(ticket.id)
        assert run.status == ("suspended" if case.waits else "running")
        began = wall_clock()
        await ticket.cancel()
        done = await ended(engine, ticket)
        assert wall_clock() - began < 1
        assert done.run.status == "cancelled"
        assert sorted(done.story) == sorted(case.left)
        cancelled = [row for row in done.rows if row.status == "cancelled"]
        assert all(row.finished_at == pytest.approx(began, abs=0.1) and row.last for row in cancelled)
        shown = [event for event in await engine.history(ticket.id) if isinstance(event, NodeRan)]
        assert [(event.node, event.branch, event.status) for event in shown] == [
            (row.node, row.branch, row.status) for row in done.rows
        ]
        assert len(calls.cancelled) == len(calls.of("hang"))
        assert workers.cancelled == (case.name == "http")
        snapshot = await engine.snapshot()
        assert (snapshot.engine.executing, snapshot.interrupts) == (0, {})
        with pytest.raises(Conflict):
            await engine.cancel(ticket.id)
        assert await (await start(engine, flow("", a=local("echo", {}, "a")), handle="h")).result() == {
            "a": {}
        }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_deadline_ends_a_flow_too_and_leaves_a_node_run(
    case: Case, autojump_clock: MockClock
) -> None:
    workers = Workers()
    async with open_engine(Calls().jobs, push=workers) as engine:
        await workers.register(engine, "w", "hang")
        ticket = await start(engine, case.definition, ITEMS, deadline=20)
        with pytest.raises(RunTimedOut):
            await ticket.result()
        done = await ended(engine, ticket)
        assert done.run.reason == "deadline"
        how = "timeout" if case.waits else "cancelled"
        assert sorted(done.story) == sorted(line.replace("cancelled", how) for line in case.left)


async def test_only_executing_time_counts_for_the_run_timeout(autojump_clock: MockClock) -> None:
    waits = node("timer", params={"delay_ms": 100_000})
    async with open_engine(Calls().jobs) as engine:
        nodes = {"a": local("sleep", "$params.n"), "t": waits, "b": local("sleep", "$params.n")}
        ticket = await start(engine, flow("a t, t b", **nodes), {"n": 8}, run_timeout=20)
        assert await ticket.result() == {}
        ticket = await start(engine, flow("a t, t b", **nodes), {"n": 8}, run_timeout=10)
        with pytest.raises(RunTimedOut):
            await ticket.result()
        assert (await ended(engine, ticket)).story == ["a ok default", "t ok default", "b cancelled"]


async def test_a_queued_flow_is_cancelled_without_a_node_run(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        await engine.set_concurrency("main", 0)
        ticket = await start(engine, flow("", a=HANG))
        await ticket.cancel()
        assert (await ended(engine, ticket)).rows == []


async def test_a_cancel_between_two_nodes_is_recorded_at_the_next_node(autojump_clock: MockClock) -> None:
    """A function that cannot be cancelled still returns its result."""
    calls = Calls()

    @calls.jobs.function("stubborn")
    async def stubborn(input: Any) -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        return "done"

    async with open_engine(calls.jobs) as engine:
        ticket = await start(engine, flow("a b", a=local("stubborn", out="a"), b=HANG))
        await trio.sleep(1)
        await ticket.cancel()
        done = await ended(engine, ticket)
        assert done.story == ["a ok default", "b cancelled"]
        assert (await engine.flows.task(ticket.id)).shared == {"a": "done"}


@pytest.mark.parametrize("strategy", ["fail_fast", "ignore_errors"])
async def test_a_batch_that_failed_before_does_not_hide_a_cancel(
    strategy: str, autojump_clock: MockClock
) -> None:
    calls = Calls()

    @calls.jobs.function("stubborn")
    async def stubborn(input: Any) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(5)

    batch = node("parallel", exec_type="local", failure_strategy=strategy, **AT_ONCE)
    async with open_engine(calls.jobs) as engine:
        ticket = await start(
            engine,
            flow("p a, p:error a, a b", p=batch, a=local("stubborn"), b=HANG),
            {"services": ["fail", "hang"] if strategy == "fail_fast" else ["fail", "echo"]},
        )
        await trio.sleep(1)
        await ticket.cancel()
        assert (await ended(engine, ticket)).story[-2:] == ["a ok default", "b cancelled"]


async def test_a_flow_that_ignores_its_cancel_is_abandoned(autojump_clock: MockClock) -> None:
    calls = Calls()
    released = trio.Event()

    @calls.jobs.function("stubborn")
    async def stubborn(input: Any) -> None:
        with trio.CancelScope(shield=True):
            await released.wait()

    async with open_engine(calls.jobs) as engine:
        ticket = await start(engine, flow("a b", a=local("stubborn"), b=local("echo")), handle="h")
        await trio.sleep(1)
        await ticket.cancel()
        with pytest.raises(RunCancelled):
            await ticket.result()
        assert (await engine.get_run(ticket.id)).reason == "abandoned"
        with pytest.raises(Conflict):
            await engine.flows.start("flow", handle="h")
        released.set()
        await trio.sleep(1)
        assert calls.made == []
        assert (await engine.flows.start("flow", handle="h")).id


@pytest.mark.parametrize("how", ["clean", "crash"])
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name not in ("http", "queue")], ids=lambda case: case.name
)
async def test_a_flow_that_waits_for_a_slot_after_a_restart_is_cancelled_with_a_node_run(
    case: Case, how: str, autojump_clock: MockClock
) -> None:
    lives = Lives(Calls().jobs)
    async with getattr(lives, how)() as engine:
        ticket = await start(engine, case.definition, ITEMS)
        await trio.sleep(5)
        before = await engine.flows.node_runs(ticket.id)
        await engine.set_concurrency("main", 0)
    async with lives.clean() as engine:
        assert (await engine.get_run(ticket.id)).status == "suspended"
        await engine.cancel(ticket.id)
        done = await ended(engine, ticket.id)
        assert done.rows[: len(before)] == before
        [cancelled] = done.rows[len(before) :]
        assert (cancelled.status, cancelled.branch) == ("cancelled", None)
        # The entry into a subflow is stored with the end of its first node.
        assert cancelled.node == ("s" if case.name == "within a subflow" else case.at)


async def test_a_shutdown_is_not_a_cancel(autojump_clock: MockClock) -> None:
    lives = Lives(Calls().jobs)
    for case in CASES:
        if case.name in ("http", "queue"):
            continue
        async with lives.clean() as engine:
            ticket = await start(engine, case.definition, ITEMS)
            await trio.sleep(5)
        async with lives.clean() as engine:
            rows = await engine.flows.node_runs(ticket.id)
            assert not [line for line in story(rows) if "cancelled" in line], case.name
            await until_status(engine, ticket, "suspended" if case.waits else "running")
            await engine.cancel(ticket.id)
            await ended(engine, ticket.id)
