"""A crash at each commit of a walk: the walk ends the same, and finished work is not repeated.

Each flow is walked once to its end, and then twice for each commit of that walk: with a crash before the
commit, and with a crash after it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

import attrs
import pytest
import trio
from trio.testing import MockClock

import greenroom
from greenroom import Engine, Ticket
from greenroom.persistence.memory import MemoryStore
from greenroom.persistence.store import RunQuery
from greenroom.protocol.events import InterruptOpened
from greenroom.protocol.flow.records import NodeRun

from .definitions import Definition
from .restarts import Crash, Mortal, wall_clock
from .walking import Calls, Walked, check_rows, ended, flow, local, node

When = Literal["before", "after"]

MODES: tuple[tuple[str, Definition], ...] = (
    ("sequential", {}),
    ("concurrent", {"parallel_mode": "concurrent"}),
    ("two at once", {"parallel_mode": "concurrent", "max_parallel": 2}),
)
STRATEGIES = ("fail_fast", "collect_errors", "ignore_errors")


@attrs.frozen
class Story:
    """A flow, whose node `end` comes last, and its parameters. Signals are sent at their times."""

    name: str
    definition: Definition
    params: Definition = attrs.field(factory=dict)
    signals: tuple[tuple[float, str, Any], ...] = ()
    answer: Any = None


END = local("double", "$params.last", "end")
AT_ONCE = {"parallel_mode": "concurrent"}


def even(out: str = "out", **fields: Any) -> Definition:
    return local("even", "$params.n", out, **fields)


def foreach(**fields: Any) -> Definition:
    return node("foreach", "$params.items", "out", exec_type="local", func="even", **fields)


def parallel(**fields: Any) -> Definition:
    services = ["echo", "even", "double"]
    return node("parallel", "$params.n", "out", exec_type="local", parallel_services=services, **fields)


def waiting(key: str, **params: Any) -> Definition:
    return node("wait_event", out="w", params={"signal_key": key, **params}, on_timeout="late")


def stories() -> Iterator[Story]:
    yield Story("local", flow("a b, b end", a=even("a"), b=local("even", "a", "b"), end=END), {"n": 2})
    yield Story("retried", flow("a end", a=even(max_retries=2, wait_ms=500), end=END), {"n": 1})
    choice = node("choice", choice_cases=[{"action": "yes", "expr": "$shared.out eq 2"}])
    yield Story("choice", flow("a c, c:yes end", a=even(), c=choice, end=END), {"n": 2})
    timer = node("timer", "$params.n", "t", params={"delay_ms": 4000})
    yield Story("timer", flow("t end", t=timer, end=END), {"n": 2})
    wait = flow("w end", w=waiting("flag"), end=END)
    yield Story("wait_event", wait, signals=((2, "flag", {"x": 1}),))
    late = flow("w:late end", w=waiting("flag", timeout_ms=3000), end=END)
    yield Story("wait_event that is late", late, signals=((1, "other", 1),))
    approval = node("approval", out="a", params={"approval_key": "$shared.ok"})
    ask = flow("a:approved end", a=approval, end=END)
    yield Story("approval", ask, answer=True)
    yield Story("approval by signal", ask, signals=((2, "ok", True),))
    again = node("choice", choice_cases=[{"action": "again", "expr": "$shared.n lt 16"}])
    twice = local("double", "n", "n")
    loop = flow("i a, a b, b c, c:again a", i=local("echo", "$params.n", "n"), a=twice, b=twice, c=again)
    yield Story("loop", loop, {"n": 1})
    inner = flow("e f, f g", e=local("echo", {"x": "e"}, "e"), f=foreach(**AT_ONCE), g=local("echo", out="g"))
    subflow = node("subflow", {"given": "$params.items"}, "s", subflow=inner)
    yield Story("subflow", flow("s end", s=subflow, end=END), {"items": [0, 2, 4]})
    yield Story("subflow that fails", flow("s end", s=subflow, end=END), {"items": [0, 1, 4]})
    timer = node("timer", params={"delay_ms": 1000})
    nested = node("subflow", out="o", subflow=flow("t w, w s", t=timer, w=waiting("go"), s=subflow))
    yield Story("nested", flow("o end", o=nested, end=END), {"items": [0, 2]}, ((9, "go", 1),))
    retried = foreach(max_retries=1, wait_ms=700, failure_strategy="collect_errors", **AT_ONCE)
    yield Story("retried items", flow("f end", f=retried, end=END), {"items": [1, 2, 3]})
    for (mode, fields), strategy in itertools.product(MODES, STRATEGIES):
        both: Definition = {"failure_strategy": strategy, **fields}
        items = [0, 2, 1, 4, 3]
        yield Story(f"foreach {mode} {strategy}", flow("f end", f=foreach(**both), end=END), {"items": items})
        yield Story(f"parallel {mode} {strategy}", flow("p end", p=parallel(**both), end=END), {"n": 3})


async def live(calls: Calls, store: Mortal, story: Story) -> Walked:
    """One lifetime of an engine: publish and start the flow if necessary, and walk it to its end."""
    options: dict[str, Any] = {"clock": wall_clock, "shutdown_timeout": 0.1}
    async with greenroom.open_engine(calls.jobs, store, **options) as engine:  # type: ignore[arg-type]
        if not (await engine.flows.list())[1]:
            await engine.flows.publish("flow", story.definition)
        store.armed = True
        async with trio.open_nursery() as users:
            ticket = await engine.flows.start("flow", params={"last": 3, **story.params}, request_id="once")
            users.start_soon(answer, engine, story)
            users.start_soon(send_signals, engine, ticket, story)
            done = await ended(engine, ticket)
            users.cancel_scope.cancel()
    return done


async def answer(engine: Engine, story: Story) -> None:
    if story.answer is None:
        return
    events = engine.events()
    for id in (await engine.snapshot()).interrupts:
        await engine.answer(id, story.answer)
    async for event in events:
        if isinstance(event, InterruptOpened):
            await engine.answer(event.interrupt, story.answer)


async def send_signals(engine: Engine, ticket: Ticket, story: Story) -> None:
    """Signals that were sent before a crash are sent again: it is unknown whether they were taken."""
    for at, key, value in story.signals:
        await trio.sleep(at)
        if not (await engine.get_run(ticket.id)).ended:
            await engine.signal(ticket.id, key, value)


def outcome(done: Walked) -> Any:
    """The part of the outcome that a crash must not change."""
    tries = [
        (row.node, row.visit, row.branch or "", row.attempt, row.status, row.output, row.error, row.action)
        for row in done.rows
        if row.status != "cancelled"
    ]
    run = done.run
    return run.status, run.result, run.error, sorted(tries, key=lambda one: one[:4])


def calls_of(rows: list[NodeRun]) -> Counter[str]:
    """The inputs of functions that are recorded in node runs."""
    return Counter(repr(row.input["input"]) for row in rows if row.input is not None)


async def node_runs(store: Mortal) -> list[NodeRun]:
    return [row for run in await store.runs(RunQuery()) for row in await store.node_runs(run.id)]


async def walk_with_a_crash(
    story: Story, whole: Counter[str], at: int, when: Literal["before", "after"]
) -> Any:
    """Return the outcome, or `None` if there are fewer than `at` commits."""
    calls, store = Calls(), Mortal(MemoryStore(), at, when)
    try:
        await live(calls, store, story)
    except Crash:
        seen = await node_runs(store)
        check_rows(seen)
    else:
        return None
    calls.made.clear()
    done = await live(calls, Mortal(store.store), story)
    assert list(done.rows[: len(seen)]) == seen, "what was written down is gone"
    made = Counter(repr(input) for _, input in calls.made)
    assert made <= whole - calls_of([row for row in seen if row.status != "cancelled"]), "it was done again"
    return outcome(done)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("story", list(stories()), ids=lambda story: story.name)
async def test_a_flow_ends_the_same_after_a_crash_at_any_commit(
    story: Story, when: When, autojump_clock: MockClock
) -> None:
    calls = Calls()
    expected = outcome(await live(calls, Mortal(MemoryStore()), story))
    whole = Counter(repr(input) for _, input in calls.made)
    for at in itertools.count(1):
        came = await walk_with_a_crash(story, whole, at, when)
        if came is None:
            break
        assert came == expected, f"with a crash {when} commit {at}"
    assert at > 3
