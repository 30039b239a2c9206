"""The wall clock is set while an engine runs, or while none runs: no wait gets longer, ids stay in order, and
events have the time that the clock shows."""

from __future__ import annotations

import time
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from greenroom import Jobs, Run, open_engine
from greenroom.persistence.memory import MemoryStore
from greenroom.persistence.sqlstore import SqlStore
from greenroom.persistence.store import Store

HOUR = 3600.0

TIMER = """
start: t
nodes: {t: {kind: timer, params: {delay_ms: 60000}}}
"""
APPROVAL = """
start: a
nodes: {a: {kind: approval, timeout_ms: 60000, params: {approval_key: decided}}}
"""


class Wall:
    """Unix seconds, by a clock that can be set."""

    def __init__(self) -> None:
        self.offset = 1_700_000_000.0

    def __call__(self) -> float:
        return trio.current_time() + self.offset


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    """Makes the store for each engine."""
    memory = MemoryStore()

    def make() -> Store:
        if request.param == "memory":
            return memory
        return SqlStore(f"sqlite:///{tmp_path}/x.db", in_threads=False)

    return make


async def sleeps(run: Run) -> str:
    if run.attempt == 1 and run.checkpoint is None:
        await run.save_checkpoint("asleep")
        await run.sleep(60)
    return "done"


async def fails(run: Run) -> str:
    if run.attempt == 1:
        raise ValueError("as it must")
    return "done"


async def asks(run: Run) -> Any:
    return await run.interrupt({"question": "go on?"}, timeout=60)


def jobs() -> Jobs:
    made = Jobs()
    made.job("sleeps", resumable=True)(sleeps)
    made.job("fails", max_attempts=2, backoff=lambda attempt: 60.0)(fails)
    made.job("asks", resumable=True)(asks)
    return made


WAITS = ["sleeps", "fails", "asks", "timer", "approval"]


async def submit(engine: Any, what: str) -> Any:
    if what in ("timer", "approval"):
        await engine.flows.publish(what, TIMER if what == "timer" else APPROVAL)
        return await engine.flows.start(what, handle="a")
    return await engine.submit(what, handle="a", params={})


async def has_ended(engine: Any, id: str) -> bool:
    return (await engine.get_run(id)).ended


@pytest.mark.parametrize("what", WAITS)
@pytest.mark.parametrize("step", [-HOUR, -30.0])
async def test_no_wait_gets_longer_when_the_clock_is_set_back_during_a_restart(
    what: str, step: float, store: Any, wall: Wall, autojump_clock: MockClock
):
    async with open_engine(jobs(), store(), clock=wall, shutdown_timeout=0) as engine:
        ticket = await submit(engine, what)
        await trio.sleep(20)
    wall.offset += step
    async with open_engine(jobs(), store(), clock=wall, shutdown_timeout=0) as engine:
        await trio.sleep(30)
        assert not await has_ended(engine, ticket.id)
        await trio.sleep(40)
        assert await has_ended(engine, ticket.id)


@pytest.mark.parametrize("what", WAITS)
async def test_a_restart_in_step_with_the_clock_continues_with_the_remaining_time(
    what: str, store: Any, wall: Wall, autojump_clock: MockClock
):
    async with open_engine(jobs(), store(), clock=wall, shutdown_timeout=0) as engine:
        ticket = await submit(engine, what)
        await trio.sleep(20)
    async with open_engine(jobs(), store(), clock=wall, shutdown_timeout=0) as engine:
        await trio.sleep(35)
        assert not await has_ended(engine, ticket.id)
        await trio.sleep(10)
        assert await has_ended(engine, ticket.id)


@pytest.mark.parametrize("what", WAITS)
@pytest.mark.parametrize("step", [-HOUR, HOUR])
async def test_no_wait_depends_on_the_clock_while_the_engine_runs(
    what: str, step: float, store: Any, wall: Wall, autojump_clock: MockClock
):
    async with open_engine(jobs(), store(), clock=wall, shutdown_timeout=0) as engine:
        ticket = await submit(engine, what)
        await trio.sleep(20)
        wall.offset += step
        await trio.sleep(35)
        assert not await has_ended(engine, ticket.id)
        await trio.sleep(10)
        assert await has_ended(engine, ticket.id)


@pytest.mark.parametrize("what", WAITS)
async def test_a_clock_that_is_set_back_while_the_engine_runs_delays_nothing_after_a_restart(
    what: str, store: Any, wall: Wall, autojump_clock: MockClock
):
    async with open_engine(jobs(), store(), clock=wall, shutdown_timeout=0) as engine:
        ticket = await submit(engine, what)
        await trio.sleep(20)
        wall.offset -= HOUR
        await engine.set_params("b", {})  # a change with the new time
    async with open_engine(jobs(), store(), clock=wall, shutdown_timeout=0) as engine:
        await trio.sleep(70)
        assert await has_ended(engine, ticket.id)


async def test_the_next_timer_of_a_flow_starts_again_after_one_that_was_woken(
    store: Any, wall: Wall, autojump_clock: MockClock
):
    twice = """
start: t
nodes:
  t: {kind: timer, params: {delay_ms: 60000}}
  u: {kind: timer, params: {delay_ms: 60000}}
edges: [{from: t, to: u}]
"""
    async with open_engine(jobs(), store(), clock=wall, shutdown_timeout=0) as engine:
        await engine.flows.publish("twice", twice)
        ticket = await engine.flows.start("twice", handle="a")
        await trio.sleep(20)
        wall.offset -= HOUR
        await trio.sleep(95)
        assert not await has_ended(engine, ticket.id)
        await trio.sleep(10)
        assert await has_ended(engine, ticket.id)


async def test_ids_stay_in_order_when_the_clock_is_set_back(
    store: Any, wall: Wall, autojump_clock: MockClock
):
    ids: list[str] = []
    for _ in range(3):
        async with open_engine(jobs(), store(), clock=wall, shutdown_timeout=0) as engine:
            for number in range(3):
                ids.append(
                    (await engine.submit("fails", handle=f"h{number}", params={}, on_conflict="queue")).id
                )
                wall.offset -= HOUR
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


async def test_a_request_id_is_not_kept_longer_for_a_clock_that_was_set_back(
    store: Any, wall: Wall, autojump_clock: MockClock
):
    async with open_engine(jobs(), store(), clock=wall, shutdown_timeout=0) as engine:
        first = await engine.submit("fails", handle="a", params={}, request_id="once")
        await trio.sleep(100)
        assert await has_ended(engine, first.id)
    wall.offset -= 1000 * HOUR
    async with open_engine(jobs(), store(), clock=wall, shutdown_timeout=0) as engine:
        assert (await engine.submit("fails", handle="a", params={}, request_id="once")).id == first.id
        await trio.sleep(25 * HOUR)
        assert (await engine.submit("fails", handle="a", params={}, request_id="once")).id != first.id


async def test_events_have_the_time_that_the_clock_shows(monkeypatch: pytest.MonkeyPatch):
    step = 0.0
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + step)
    async with open_engine(jobs(), "memory:", shutdown_timeout=0) as engine:
        for step in (0.0, HOUR, -HOUR):
            ticket = await engine.submit("fails", handle=f"by {step}", params={})
            assert abs((await engine.get_run(ticket.id)).created_at - (real() + step)) < 10
