"""Delayed runs: they start at their time, and have neither a place nor, unless reserved, a handle before."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
import trio

from greenroom import Engine, Run, Ticket
from greenroom.errors import (
    Conflict,
    Invalid,
    NoActiveRun,
    NotInteractive,
    QueueFull,
    RunCancelled,
    RunTimedOut,
)
from greenroom.persistence.memory import MemoryStore
from tests.support import open_engine

from ..support import Bodies, until, until_status

START = 1_700_000_000.0
LONG = 400.0  # shorter than the patience of a test


class Wall:
    """The engine's clock: trio's, plus what the test has set it ahead."""

    def __init__(self) -> None:
        self.ahead = START

    def __call__(self) -> float:
        return trio.current_time() + self.ahead


@pytest.fixture
def bodies() -> Bodies:
    return Bodies()


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
async def engine(bodies: Bodies, wall: Wall) -> AsyncIterator[Engine]:
    async with open_engine(bodies.jobs, clock=wall, shutdown_timeout=0) as engine:
        yield engine


async def submit(engine: Engine, handle: str = "alice", **options: Any) -> Ticket:
    return await engine.submit("wait", handle=handle, params={"n": 1}, **options)


async def starts_at(engine: Engine, ticket: Ticket) -> float:
    await until_status(engine, ticket, "running")
    started = (await engine.get_run(ticket.id)).started_at
    assert started is not None
    return started


# Its time.


async def test_a_delayed_run_starts_at_its_time(autojump_clock, engine: Engine, wall: Wall) -> None:
    later, at = await submit(engine, delay=LONG), wall() + LONG
    run = await engine.get_run(later.id)
    assert (run.status, run.place, run.waiting_for, run.not_before) == ("queued", None, "time", at)
    assert at <= await starts_at(engine, later) < at + 0.01
    run = await engine.get_run(later.id)
    assert (run.waiting_for, run.not_before) == (None, at)
    assert run.place is not None


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=-5))])
async def test_a_run_starts_at_a_given_time(
    autojump_clock, engine: Engine, wall: Wall, zone: timezone
) -> None:
    at = START + 90.5
    later = await submit(engine, start_at=at)
    other = await submit(engine, "bob", start_at=datetime.fromtimestamp(at, zone))
    assert (await engine.get_run(later.id)).not_before == (await engine.get_run(other.id)).not_before == at
    assert at <= await starts_at(engine, later) < at + 0.01


@pytest.mark.parametrize("options", [{"delay": 0}, {"start_at": 1.5}, {"start_at": 1, "reserve": True}])
async def test_a_time_that_has_passed_makes_no_delayed_run(
    autojump_clock, engine: Engine, options: dict[str, Any]
) -> None:
    now = await submit(engine, **options)
    run = await engine.get_run(now.id)
    assert (run.place, run.not_before) == (1, None)


async def test_runs_whose_time_comes_together_start_in_the_order_of_their_times(
    autojump_clock, engine: Engine, bodies: Bodies, wall: Wall
) -> None:
    await engine.set_max_concurrent(1)
    last = await submit(engine, "a", delay=30)
    first = await submit(engine, "b", delay=10)
    middle = await submit(engine, "c", start_at=START + 20)
    also_middle = await submit(engine, "d", start_at=START + 20)
    wall.ahead += LONG
    expected = [first, middle, also_middle, last]
    for ticket in expected:
        await until_status(engine, ticket, "running")
        bodies.end(ticket)
    assert [await ticket.wait() for ticket in expected] == [True] * 4
    places = [(await engine.get_run(ticket.id)).place for ticket in expected]
    assert places == [1, 2, 3, 4]


# Clocks.


async def test_a_clock_set_forward_is_noticed_within_15_seconds(
    autojump_clock, engine: Engine, wall: Wall
) -> None:
    later = await submit(engine, delay=LONG)
    await trio.sleep(1)
    wall.ahead += 2 * LONG
    before = trio.current_time()
    await until_status(engine, later, "running")
    assert trio.current_time() - before <= 15


async def test_a_clock_set_back_delays_the_start(autojump_clock, engine: Engine, wall: Wall) -> None:
    later = await submit(engine, delay=LONG)
    await trio.sleep(LONG - 1)
    wall.ahead -= LONG
    before = trio.current_time()
    assert await starts_at(engine, later) >= START + LONG
    assert LONG < trio.current_time() - before < LONG + 2


@pytest.mark.parametrize("jump", [-LONG, LONG])
async def test_a_clock_that_is_set_keeps_the_deadline_as_long_after_the_start(
    autojump_clock, engine: Engine, wall: Wall, jump: float
) -> None:
    later = await submit(engine, delay=LONG, deadline=LONG + 20)
    await trio.sleep(1)
    wall.ahead += jump
    started = await starts_at(engine, later)
    with pytest.raises(RunTimedOut) as timed_out:
        await later.result()
    assert timed_out.value.run is not None
    assert timed_out.value.run.ended_at == pytest.approx(started + 20, abs=1)


async def test_a_run_that_was_due_is_not_delayed_again_by_a_clock_set_back(
    autojump_clock, engine: Engine, wall: Wall, bodies: Bodies
) -> None:
    holder = await submit(engine)
    later = await submit(engine, delay=10)
    await until(engine, lambda state: state.handles["alice"].waiting == [later.id])
    wall.ahead -= LONG
    before = trio.current_time()
    bodies.end(holder)
    await until_status(engine, later, "running")
    assert trio.current_time() - before < 1


# Its handle.


async def test_other_runs_use_the_handle_meanwhile(autojump_clock, engine: Engine, bodies: Bodies) -> None:
    later = await submit(engine, delay=LONG)
    state = await engine.snapshot()
    assert (state.handles["alice"].status, state.handles["alice"].locked) == ("Idle", False)
    assert (state.handles["alice"].waiting, state.lanes["main"].queued) == ([], [])
    assert state.runs[later.id].status == "queued"
    assert state.engine.queued == 1
    await engine.set_params("alice", {"n": 2})
    now = await submit(engine)
    await until_status(engine, now, "running")
    bodies.end(now)
    await now.result()
    await until_status(engine, later, "running")


@pytest.mark.parametrize("on_conflict", ["reject", "queue", "join"])
async def test_a_delayed_run_that_finds_its_handle_taken_waits_behind_the_others(
    autojump_clock, engine: Engine, bodies: Bodies, on_conflict: str
) -> None:
    later = await submit(engine, delay=20, on_conflict=on_conflict)
    holder = await submit(engine)
    second = await submit(engine, on_conflict="queue")
    assert later.id not in (holder.id, second.id)
    await until(engine, lambda state: state.handles["alice"].waiting == [second.id, later.id])
    run = await engine.get_run(later.id)
    assert (run.status, run.waiting_for, run.place) == ("queued", "handle", None)
    assert list((await engine.snapshot()).runs) == [holder.id, second.id, later.id]
    third = await submit(engine, on_conflict="queue")
    for ticket in (holder, second, later, third):
        await until_status(engine, ticket, "running")
        bodies.end(ticket)
        await ticket.result()


async def test_a_delayed_run_replaces_at_its_time(autojump_clock, engine: Engine, bodies: Bodies) -> None:
    later = await submit(engine, delay=20, on_conflict="replace")
    holder = await submit(engine)
    waits = await submit(engine, on_conflict="queue")
    await trio.sleep(19)
    assert (await engine.get_run(holder.id)).status == "running"
    with pytest.raises(RunCancelled) as replaced:
        await holder.result()
    assert replaced.value.run is not None
    assert replaced.value.run.reason == "replaced"
    await until_status(engine, later, "running")
    assert (await engine.snapshot()).handles["alice"].waiting == [waits.id]


async def test_a_reserved_handle_is_held_from_the_submission_on(
    autojump_clock, engine: Engine, bodies: Bodies
) -> None:
    later = await submit(engine, delay=LONG, reserve=True)
    state = await engine.snapshot()
    assert (state.handles["alice"].status, state.handles["alice"].active_run) == ("Queued", later.id)
    assert state.lanes["main"].queued == []
    assert state.runs[later.id].waiting_for == "time"
    with pytest.raises(Conflict) as refused:
        await submit(engine)
    assert refused.value.details["active_run"] == later.id
    waits = await submit(engine, on_conflict="queue")
    assert START + LONG <= await starts_at(engine, later) < START + LONG + 0.01
    assert (await engine.get_run(waits.id)).status == "queued"
    bodies.end(later)
    await until_status(engine, waits, "running")


async def test_a_reserved_run_draws_its_place_at_its_time(
    autojump_clock, engine: Engine, bodies: Bodies
) -> None:
    await engine.set_max_concurrent(1)
    holder = await submit(engine, "holder")
    later = await submit(engine, delay=20, reserve=True)
    sooner = await submit(engine, "bob")
    await trio.sleep(21)
    assert (await engine.snapshot()).lanes["main"].queued == [sooner.id, later.id]
    bodies.end(holder)
    await until_status(engine, sooner, "running")


@pytest.mark.parametrize("delay", [20, 60])
async def test_a_reserved_run_waits_for_its_handle_before_later_runs(
    autojump_clock, engine: Engine, bodies: Bodies, delay: float
) -> None:
    holder = await submit(engine)
    reserved = await submit(engine, delay=delay, reserve=True, on_conflict="queue")
    other = await submit(engine, on_conflict="queue")
    assert (await engine.snapshot()).handles["alice"].waiting == [reserved.id, other.id]
    await trio.sleep(40)
    bodies.end(holder)
    assert await starts_at(engine, reserved) >= START + max(40, delay)
    assert (await engine.snapshot()).handles["alice"].waiting == [other.id]


async def test_a_reserved_run_follows_on_conflict_at_its_submission(autojump_clock, engine: Engine) -> None:
    holder = await submit(engine)
    with pytest.raises(Conflict):
        await submit(engine, delay=LONG, reserve=True)
    joined = await submit(engine, delay=LONG, reserve=True, on_conflict="join")
    assert (joined.id, joined.joined) == (holder.id, True)
    await submit(engine, delay=LONG, reserve=True, on_conflict="replace")
    with pytest.raises(RunCancelled):
        await holder.result()


async def test_messages_to_a_delayed_run_are_refused(autojump_clock, engine: Engine) -> None:
    later = await submit(engine, delay=LONG, queue_timeout=5)
    with pytest.raises(NotInteractive):
        await engine.inject(later.id, "hello")
    assert await starts_at(engine, later) >= START + LONG


async def test_commands_for_the_handle_of_a_delayed_run_name_the_run(autojump_clock, engine: Engine) -> None:
    ended = await submit(engine)
    await engine.cancel(ended.id)
    later = await submit(engine, delay=LONG)
    remedy = f'handle "alice" has no active run; its run {later.id} is delayed: use the id of the run'
    for command in (
        engine.inject("alice", "hello"),
        engine.cancel("alice"),
        engine.set_priority("alice", 5),
        engine.get_run("alice"),
    ):
        with pytest.raises(NoActiveRun) as refused:
            await command
        assert refused.value.message.startswith(remedy)
    assert (await engine.set_priority(later.id, 5)).priority == 5
    assert (await engine.cancel(later.id)).status == "cancelled"
    with pytest.raises(NoActiveRun, match="its last one"):
        await engine.cancel("alice")


# Cancels.


@pytest.mark.parametrize("reserve", [False, True])
async def test_a_delayed_run_is_cancelled_immediately(autojump_clock, engine: Engine, reserve: bool) -> None:
    later = await submit(engine, delay=LONG, reserve=reserve)
    run = await later.cancel()
    assert (run.status, run.place) == ("cancelled", 1 if reserve else None)
    state = await engine.snapshot()
    assert (state.handles["alice"].status, state.handles["alice"].locked) == ("Idle", False)
    await submit(engine)
    await trio.sleep(2 * LONG)
    assert (await engine.get_run(later.id)).status == "cancelled"


async def test_a_clear_cancels_the_delayed_runs_of_a_lane_or_handle(autojump_clock, engine: Engine) -> None:
    await submit(engine, lane="slow", delay=LONG)
    await submit(engine, "bob", lane="slow", delay=LONG, reserve=True)
    keeps = await submit(engine, "carol", delay=LONG)
    assert await engine.clear_lane("slow") == 2
    holds = await submit(engine, "bob", delay=LONG, reserve=True)
    await submit(engine, "bob", delay=LONG)
    assert await engine.clear_handle("bob") == 1
    assert list((await engine.snapshot()).runs)[:2] == [keeps.id, holds.id]


async def test_a_drained_engine_keeps_delayed_runs_and_starts_them_afterwards(
    autojump_clock, engine: Engine
) -> None:
    later = await submit(engine, delay=10)
    await engine.drain()
    await trio.sleep(60)
    assert (await engine.snapshot()).lanes["main"].queued == [later.id]
    await engine.resume()
    assert await starts_at(engine, later) >= START + 60


# Timeouts.


async def test_a_queue_timeout_and_warn_after_count_from_its_time(autojump_clock, engine: Engine) -> None:
    warned: list[float] = []
    await engine.set_max_concurrent(0)
    later = await submit(
        engine,
        delay=LONG,
        queue_timeout=30,
        warn_after=5,
        on_wait=lambda waited, ahead, ids: warned.append(waited),
    )
    with pytest.raises(RunTimedOut) as timed_out:
        await later.result()
    run = timed_out.value.run
    assert run is not None
    assert run.ended_at is not None
    assert START + LONG + 30 <= run.ended_at < START + LONG + 31
    assert [round(waited) for waited in warned] == [5]


async def test_a_deadline_counts_from_the_submission(autojump_clock, engine: Engine) -> None:
    later = await submit(engine, delay=LONG, deadline=LONG + 10)
    with pytest.raises(RunTimedOut) as timed_out:
        await later.result()
    assert timed_out.value.run is not None
    assert timed_out.value.run.ended_at == pytest.approx(START + LONG + 10, abs=0.1)


# What is refused.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"start_at": START + 9, "delay": 9},
            r"start_at and delay exclude each other \(got 1700000009.0 and 9\)",
        ),
        ({"start_at": "tomorrow"}, r"start_at must be Unix seconds .* \(got \"tomorrow\"\)"),
        ({"start_at": True}, "start_at must be Unix seconds"),
        ({"start_at": math.nan}, "start_at must be Unix seconds"),
        ({"start_at": math.inf}, "start_at must be Unix seconds"),
        ({"start_at": -1}, "start_at must be Unix seconds"),
        ({"start_at": datetime(2026, 12, 1)}, r"start_at must have a time zone \(got 2026-12-01T00:00:00\)"),
        ({"delay": -1}, "delay must be a number of seconds, 0 or more"),
        ({"delay": math.inf}, "delay must be at most"),
        ({"delay": "10m"}, "delay must be a number of seconds, 0 or more"),
        ({"delay": 9, "reserve": 1}, "reserve must be true or false"),
        ({"reserve": True}, "reserve is only for a delayed run: pass start_at or delay, too"),
        ({"delay": LONG, "deadline": LONG}, r"deadline must be later than the start .* 400 s .*got 400 s"),
    ],
)
async def test_invalid_options_are_refused(
    autojump_clock, engine: Engine, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(Invalid, match=message):
        await submit(engine, **options)
    assert (await engine.snapshot()).seq == 0


async def test_delayed_runs_count_against_max_pending(autojump_clock, bodies: Bodies, wall: Wall) -> None:
    store = MemoryStore()
    async with open_engine(bodies.jobs, store, clock=wall, max_pending=2) as engine:
        await submit(engine, delay=LONG)
    async with open_engine(bodies.jobs, store, clock=wall, max_pending=2) as engine:
        await submit(engine, delay=LONG)
        with pytest.raises(QueueFull, match=r"2 runs are pending"):
            await submit(engine)


async def test_one_request_id_makes_one_delayed_run(autojump_clock, engine: Engine) -> None:
    later = await submit(engine, delay=LONG, request_id="r")
    again = await submit(engine, delay=LONG, request_id="r")
    assert (again.id, again.joined) == (later.id, True)
    for other in ({}, {"delay": 2 * LONG}, {"start_at": START + LONG}, {"delay": LONG, "reserve": True}):
        with pytest.raises(Conflict, match="request_id"):
            await submit(engine, request_id="r", **other)


async def test_a_child_can_be_delayed(autojump_clock, bodies: Bodies, wall: Wall) -> None:
    @bodies.jobs.job("parent")
    async def parent(run: Run, params: dict[str, Any]) -> object:
        return await run.call("child", handle="child", params={}, delay=60)

    @bodies.jobs.job("child")
    async def child(run: Run, params: dict[str, Any]) -> float:
        return wall()

    async with open_engine(bodies.jobs, clock=wall) as engine:
        ticket = await engine.submit("parent", handle="parent", params={})
        assert await ticket.result() >= START + 60


# Restarts.


async def test_delayed_runs_survive_a_restart(autojump_clock, bodies: Bodies, wall: Wall) -> None:
    store = MemoryStore()
    async with open_engine(bodies.jobs, store, clock=wall, shutdown_timeout=0) as engine:
        first = await submit(engine, delay=LONG)
        holds = await submit(engine, "bob", delay=LONG, reserve=True)
        cancelled = await submit(engine, "carol", delay=LONG)
        cleared = await submit(engine, "dave", lane="slow", delay=LONG)
        before = await engine.snapshot()
    async with open_engine(bodies.jobs, store, clock=wall, shutdown_timeout=0) as engine:
        assert await engine.snapshot() == before
        assert (await engine.cancel(cancelled.id)).status == "cancelled"
        assert await engine.clear_lane("slow") == 1
        assert (await engine.get_run(cleared.id)).reason == "lane_cleared"
        assert START + LONG <= await starts_at(engine, first) < START + LONG + 0.01
        assert START + LONG <= await starts_at(engine, holds) < START + LONG + 0.01


@pytest.mark.parametrize("jump", [-LONG, LONG])
async def test_a_clock_set_while_the_engine_is_off_loses_no_run(
    autojump_clock, bodies: Bodies, wall: Wall, jump: float
) -> None:
    store = MemoryStore()
    async with open_engine(bodies.jobs, store, clock=wall) as engine:
        later = await submit(engine, delay=LONG, queue_timeout=10)
    wall.ahead += jump
    before = wall()
    async with open_engine(bodies.jobs, store, clock=wall, shutdown_timeout=0) as engine:
        started = await starts_at(engine, later)
        assert max(before, START + LONG) <= started < max(before, START + LONG) + 0.01


async def test_a_reserved_run_that_was_due_is_not_delayed_again_by_a_clock_set_back_over_a_restart(
    autojump_clock, bodies: Bodies, wall: Wall
) -> None:
    store = MemoryStore()
    async with open_engine(bodies.jobs, store, clock=wall, shutdown_timeout=0) as engine:
        await engine.set_concurrency("paused", 0)
        holder = await submit(engine, lane="paused")
        due = await submit(engine, delay=10, reserve=True, on_conflict="queue")
        later = await submit(engine, delay=LONG, reserve=True, on_conflict="queue")
        await trio.sleep(20)
        assert (await engine.snapshot()).handles["alice"].waiting == [due.id, later.id]
    wall.ahead -= 60
    async with open_engine(bodies.jobs, store, clock=wall, shutdown_timeout=0) as engine:
        await engine.cancel(holder.id)
        before = trio.current_time()
        await until_status(engine, due, "running")
        assert trio.current_time() - before < 1
        assert (await engine.snapshot()).handles["alice"].waiting == [later.id]
        bodies.end(due)
        assert await starts_at(engine, later) >= START + LONG


async def test_the_order_in_a_handle_survives_a_restart(autojump_clock, bodies: Bodies, wall: Wall) -> None:
    store = MemoryStore()
    async with open_engine(bodies.jobs, store, clock=wall, shutdown_timeout=0) as engine:
        later = await submit(engine, delay=20)
        replaces = await submit(engine, delay=30, on_conflict="replace")
        await engine.set_concurrency("paused", 0)
        await submit(engine, lane="paused")
        second = await submit(engine, on_conflict="queue")
        await until(engine, lambda state: state.handles["alice"].waiting == [second.id, later.id])
        before = await engine.snapshot()
    async with open_engine(bodies.jobs, store, clock=wall, shutdown_timeout=0) as engine:
        after = await engine.snapshot()
        assert after.handles == before.handles
        assert list(after.runs) == list(before.runs)
        await until_status(engine, replaces, "running")
        before = await engine.snapshot()
        assert before.handles["alice"].waiting == [second.id, later.id]
    async with open_engine(bodies.jobs, store, clock=wall, shutdown_timeout=0) as engine:
        assert (await engine.snapshot()).handles["alice"].waiting == [later.id]


async def test_a_run_whose_job_is_gone_is_rejected_at_its_time(
    autojump_clock, bodies: Bodies, wall: Wall
) -> None:
    store = MemoryStore()
    async with open_engine(bodies.jobs, store, clock=wall) as engine:
        later = await submit(engine, delay=LONG)
        holds = await submit(engine, "bob", delay=LONG, reserve=True)
    del bodies.jobs._jobs["wait"]
    async with open_engine(bodies.jobs, store, clock=wall) as engine:
        assert (await engine.get_run(later.id)).status == "queued"
        assert (await engine.get_run(holds.id)).status == "queued"
        await trio.sleep(LONG + 1)
        assert (await engine.get_run(later.id)).status == "rejected"
        assert (await engine.get_run(holds.id)).status == "rejected"
        before = await engine.snapshot()
    async with open_engine(bodies.jobs, store, clock=wall) as engine:
        assert await engine.snapshot() == before


async def test_a_delayed_run_needs_no_task(autojump_clock, engine: Engine) -> None:
    before = trio.lowlevel.current_statistics().tasks_living
    for number in range(20):
        await submit(engine, f"handle {number}", delay=LONG, deadline=2 * LONG, queue_timeout=9)
    assert trio.lowlevel.current_statistics().tasks_living == before


# Debouncing: delayed runs that coalesce.


async def test_a_delayed_run_takes_the_parameters_of_later_ones_and_keeps_its_time(autojump_clock, engine):
    options: dict[str, Any] = {"handle": "alice", "on_conflict": "coalesce", "delay": 10}
    first = await engine.submit("wait", params={"n": 1}, **options)
    due = (await engine.get_run(first.id)).not_before
    await trio.sleep(5)
    for number in (2, 3):
        again = await engine.submit("wait", params={"n": number}, request_id=f"r{number}", **options)
        assert (again.id, again.joined) == (first.id, True)
    assert (await engine.submit("wait", params={"n": 2}, request_id="r2", **options)).id == first.id
    run = await engine.get_run(first.id)
    assert (run.params, run.not_before) == ({"n": 3}, due)
    assert await starts_at(engine, first) == pytest.approx(due)
    later = await engine.submit("wait", params={"n": 4}, **options)
    assert later.id != first.id, "the parameters of a run that has begun never change"


async def test_a_delayed_run_coalesces_only_with_equal_ones_that_coalesce(autojump_clock, engine):
    options: dict[str, Any] = {"params": {"n": 1}, "handle": "alice"}
    plain = await engine.submit("wait", delay=10, **options)
    first = await engine.submit("wait", delay=10, on_conflict="coalesce", **options)
    others = [
        await engine.submit("wait", delay=10, on_conflict="coalesce", **(options | changed))
        for changed in ({"handle": "bob"}, {"lane": "side"}, {"kind": "continue"})
    ]
    assert len({plain.id, first.id, *(ticket.id for ticket in others)}) == 5
    await first.cancel()
    after = await engine.submit("wait", delay=10, on_conflict="coalesce", **options)
    assert after.id not in (plain.id, first.id)


async def test_a_delayed_run_coalesces_with_one_that_is_due_and_waits(autojump_clock, engine, bodies):
    holder = await submit(engine)
    options: dict[str, Any] = {"handle": "alice", "on_conflict": "coalesce", "delay": 10}
    waiting = await engine.submit("wait", params={"n": 1}, **options)
    await trio.sleep(20)
    assert (await engine.snapshot()).handles["alice"].waiting == [waiting.id]
    again = await engine.submit("wait", params={"n": 2}, **options)
    assert (again.id, again.joined) == (waiting.id, True)
    bodies.end(holder, waiting)
    await until_status(engine, waiting, "succeeded")
    assert (await engine.get_run(waiting.id)).params == {"n": 2}


async def test_a_delayed_run_coalesces_after_a_restart(autojump_clock, bodies, wall):
    store = MemoryStore()
    options: dict[str, Any] = {"handle": "alice", "on_conflict": "coalesce", "delay": 10}
    async with open_engine(bodies.jobs, store, clock=wall, shutdown_timeout=0) as engine:
        first = await engine.submit("wait", params={"n": 1}, **options)
    async with open_engine(bodies.jobs, store, clock=wall, shutdown_timeout=0) as engine:
        again = await engine.submit("wait", params={"n": 2}, **options)
        assert (again.id, again.joined) == (first.id, True)
        assert (await engine.get_run(first.id)).params == {"n": 2}
        await until_status(engine, again, "running")


async def test_the_priority_of_a_delayed_run_can_be_changed_after_a_restart(autojump_clock, bodies, wall):
    store = MemoryStore()
    async with open_engine(bodies.jobs, store, clock=wall, shutdown_timeout=0) as engine:
        ticket = await submit(engine, delay=10)
    async with open_engine(bodies.jobs, store, clock=wall, shutdown_timeout=0) as engine:
        assert (await engine.set_priority(ticket.id, 7)).priority == 7
        await until_status(engine, ticket, "running")
