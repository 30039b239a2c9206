"""Lanes: limits, order, and the commands of operators."""

import logging
import math
import random
import re
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from greenroom import Engine, Run, Ticket
from greenroom.actors import actor
from greenroom.errors import Conflict, Draining, Invalid, RunCancelled, RunFailed
from greenroom.protocol.events import RunStateChanged, RunWaiting
from greenroom.protocol.values import shown
from tests.support import open_engine

from ..support import PATIENCE, Bodies, until_status


@pytest.fixture
def bodies() -> Bodies:
    """The jobs of these tests; `wait` lasts until the test ends it."""
    bodies = Bodies()

    @bodies.jobs.job("fail")
    async def fail(run: Run) -> None:
        raise OSError("this one always fails")

    @bodies.jobs.job("nap")
    async def nap(run: Run, params: dict[str, Any]) -> str:
        await run.sleep(30)
        return await bodies.wait(run, params)

    return bodies


async def submit(engine: Engine, *handles: str, lane: str = "main", **options: Any) -> list[Ticket]:
    """A run of `wait` for each of these handles, submitted one after the other."""
    return [await engine.submit("wait", handle=handle, lane=lane, **options) for handle in handles]


def ids(tickets: list[Ticket]) -> list[str]:
    return [ticket.id for ticket in tickets]


# Limits.


async def test_three_runs_execute_concurrently_by_default(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        tickets = await submit(engine, *"abcde")
        await wait_all_tasks_blocked()
        snapshot = await engine.snapshot()
        assert snapshot.lanes["main"].executing == ids(tickets[:3])
        assert snapshot.lanes["main"].queued == ids(tickets[3:])
        assert snapshot.lanes["main"].limit is None
        assert (snapshot.engine.max_concurrent, snapshot.engine.executing, snapshot.engine.queued) == (
            3,
            3,
            2,
        )


async def test_a_lane_executes_one_run_at_a_time_by_default(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        tickets = await submit(engine, *"abc", lane="slow")
        await wait_all_tasks_blocked()
        lane = (await engine.snapshot()).lanes["slow"]
        assert (lane.limit, lane.executing, lane.queued) == (1, ids(tickets[:1]), ids(tickets[1:]))


@pytest.mark.parametrize(("limit", "executing"), [(0, 0), (1, 1), (2, 2), (None, 4)])
async def test_a_lane_has_its_configured_limit(autojump_clock, bodies, limit, executing):
    async with open_engine(bodies.jobs, max_concurrent=4, lanes={"fast": limit}) as engine:
        await submit(engine, *"abcdef", lane="fast")
        await wait_all_tasks_blocked()
        lane = (await engine.snapshot()).lanes["fast"]
        assert (lane.limit, len(lane.executing)) == (limit, executing)


async def test_the_global_limit_applies_to_all_lanes_together(autojump_clock, bodies):
    async with open_engine(bodies.jobs, max_concurrent=3, lanes={"x": 2, "y": 2}) as engine:
        await submit(engine, *"abc", lane="x")
        await submit(engine, *"def", lane="y")
        await wait_all_tasks_blocked()
        lanes = (await engine.snapshot()).lanes
        assert (len(lanes["x"].executing), len(lanes["y"].executing)) == (2, 1)


async def test_raising_a_lanes_limit_starts_queued_runs_immediately(autojump_clock, bodies):
    async with open_engine(bodies.jobs, max_concurrent=9) as engine:
        tickets = await submit(engine, *"abcd", lane="slow")
        await engine.set_concurrency("slow", 3)
        await wait_all_tasks_blocked()
        assert set(bodies.begun) == set(ids(tickets[:3]))


async def test_lowering_a_lanes_limit_interrupts_no_run_and_starts_none_until_it_is_met(
    autojump_clock, bodies
):
    async with open_engine(bodies.jobs, max_concurrent=9, lanes={"fast": 3}) as engine:
        tickets = await submit(engine, *"abcde", lane="fast")
        await wait_all_tasks_blocked()
        await engine.set_concurrency("fast", 1)
        await wait_all_tasks_blocked()
        assert (await engine.snapshot()).lanes["fast"].executing == ids(tickets[:3])

        bodies.end(*tickets[:2])
        await wait_all_tasks_blocked()
        assert set(bodies.begun) == set(ids(tickets[:3]))
        bodies.end(tickets[2])
        await wait_all_tasks_blocked()
        assert set(bodies.begun) == set(ids(tickets[:4]))


async def test_a_slot_granted_together_with_a_lower_limit_is_not_used(autojump_clock, bodies):
    """The lane had room when the slot was granted, and has none when the start is committed."""
    async with open_engine(bodies.jobs, max_concurrent=1, lanes={"fast": 2}) as engine:
        executing, queued = await submit(engine, "a", "b", lane="fast")
        [other] = await submit(engine, "c")
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(engine.set_max_concurrent, 2)
            nursery.start_soon(engine.set_concurrency, "fast", 1)
        await wait_all_tasks_blocked()
        lane = (await engine.snapshot()).lanes["fast"]
        assert (lane.limit, lane.executing, lane.queued) == (1, ids([executing]), ids([queued]))
        assert set(bodies.begun) == set(ids([executing, other]))  # and the slot is not lost


async def test_a_limit_of_0_pauses_a_lane_and_nothing_else(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        executing, queued = await submit(engine, "a", "b", lane="slow")
        await wait_all_tasks_blocked()
        await engine.set_concurrency("slow", 0)
        bodies.end(executing)
        assert await executing.result() == "done for a"
        [other] = await submit(engine, "c")
        await wait_all_tasks_blocked()
        assert set(bodies.begun) == {executing.id, other.id}

        await engine.set_concurrency("slow", 1)
        await until_status(engine, queued, "running")


async def test_raising_the_global_limit_starts_queued_runs_immediately(autojump_clock, bodies):
    async with open_engine(bodies.jobs, max_concurrent=1) as engine:
        tickets = await submit(engine, *"abcd")
        await engine.set_max_concurrent(3)
        await wait_all_tasks_blocked()
        assert set(bodies.begun) == set(ids(tickets[:3]))
        assert (await engine.snapshot()).engine.max_concurrent == 3


async def test_lowering_the_global_limit_interrupts_no_run_and_starts_none_until_it_is_met(
    autojump_clock, bodies
):
    async with open_engine(bodies.jobs, max_concurrent=3) as engine:
        tickets = await submit(engine, *"abcde")
        await wait_all_tasks_blocked()
        await engine.set_max_concurrent(1)
        bodies.end(*tickets[:2])
        await wait_all_tasks_blocked()
        assert set(bodies.begun) == set(ids(tickets[:3]))
        bodies.end(tickets[2])
        await wait_all_tasks_blocked()
        assert set(bodies.begun) == set(ids(tickets[:4]))


async def test_a_global_limit_of_0_pauses_everything(autojump_clock, bodies):
    async with open_engine(bodies.jobs, max_concurrent=0) as engine:
        tickets = [*await submit(engine, "a"), *await submit(engine, "b", lane="slow")]
        await trio.sleep(100)
        assert bodies.begun == []
        await engine.set_max_concurrent(2)
        await wait_all_tasks_blocked()
        assert set(bodies.begun) == set(ids(tickets))


@pytest.mark.parametrize("limit", [-1, 1.5, "2", True, math.inf])
async def test_a_limit_that_is_no_whole_number_is_refused(autojump_clock, bodies, limit):
    async with open_engine(bodies.jobs) as engine:
        before = await engine.snapshot()
        with pytest.raises(Invalid, match=shown(limit)):
            await engine.set_concurrency("slow", limit)
        with pytest.raises(Invalid, match=shown(limit)):
            await engine.set_max_concurrent(limit)
        assert await engine.snapshot() == before


async def test_a_lanes_limit_at_the_start_that_is_no_whole_number_is_refused_with_the_remedy(bodies):
    with pytest.raises(
        Invalid, match=r"""^limit of lane 'a' must be .* \(got "none"\), or None for only the global limit$"""
    ):
        async with open_engine(bodies.jobs, lanes={"a": "none"}):
            raise AssertionError("not reached")


@pytest.mark.parametrize(("given", "meant"), [(" slow ", "slow"), ("", "main"), ("  ", "main")])
async def test_a_lanes_name_is_trimmed_and_falls_back_to_main(autojump_clock, bodies, given, meant):
    async with open_engine(bodies.jobs) as engine:
        await engine.set_concurrency(given, 2)
        assert (await engine.snapshot()).lanes[meant].limit == 2
        [ticket] = await submit(engine, "a", lane=given)
        assert (await engine.get_run(ticket.id)).lane == meant


# Order.


async def test_runs_of_a_lane_begin_in_order_of_submission(autojump_clock, bodies):
    async with open_engine(bodies.jobs, max_concurrent=2) as engine:
        tickets = []
        for handle in "jihgfedcba":
            tickets += await submit(engine, handle)
            await wait_all_tasks_blocked()
        for ticket in tickets:
            bodies.end(ticket)
            await ticket.result()
        assert bodies.begun == ids(tickets)


async def test_a_free_slot_goes_to_the_lane_with_the_lowest_place(autojump_clock, bodies):
    async with open_engine(bodies.jobs, max_concurrent=1) as engine:
        tickets = [
            *await submit(engine, "a", lane="x"),
            *await submit(engine, "b", lane="y"),
            *await submit(engine, "c", "d", lane="z"),
            *await submit(engine, "e", lane="x"),
            *await submit(engine, "f", lane="y"),
            *await submit(engine, "g"),
        ]
        for ticket in tickets:
            bodies.end(ticket)
            await ticket.result()
        assert bodies.begun == ids(tickets)


async def test_a_full_lane_delays_no_other_lane(autojump_clock, bodies):
    async with open_engine(bodies.jobs, max_concurrent=2, lanes={"paused": 0}) as engine:
        await submit(engine, "a", "b", lane="paused")
        [executing, held_up] = await submit(engine, "c", "d", lane="slow")
        [other] = await submit(engine, "e")
        await wait_all_tasks_blocked()
        assert set(bodies.begun) == {executing.id, other.id}
        bodies.end(executing)
        await until_status(engine, held_up, "running")


async def test_a_taken_handle_delays_no_other_handle(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        [first] = await submit(engine, "alice")
        await submit(engine, "alice", "alice", on_conflict="queue")
        [other] = await submit(engine, "bob")
        await wait_all_tasks_blocked()
        assert set(bodies.begun) == {first.id, other.id}


@pytest.mark.parametrize("seed", range(8))
async def test_runs_begin_exactly_when_the_limits_and_the_order_let_them(autojump_clock, bodies, seed):
    lots = random.Random(seed)
    limits: dict[str, int | None] = {"main": None, "x": 1, "y": 2, "z": 3}
    began: dict[str, float] = {}

    @bodies.jobs.job("take time")
    async def take_time(run: Run, params: dict[str, Any]) -> None:
        began[run.handle] = trio.current_time()
        await trio.sleep(params["seconds"])

    plan = [(f"handle {n}", lots.choice(list(limits)), lots.uniform(1, 20)) for n in range(60)]
    async with open_engine(bodies.jobs, max_concurrent=4, lanes=limits) as engine:
        start = trio.current_time()
        tickets = []
        for handle, lane, seconds in plan:
            ticket = await engine.submit("take time", handle=handle, lane=lane, params={"seconds": seconds})
            tickets.append(ticket)
        for ticket in tickets:
            await ticket.result()

    assert {handle: at - start for handle, at in began.items()} == pytest.approx(schedule(plan, limits, 4))
    assert list(began) == sorted(began, key=lambda handle: began[handle])


def schedule(
    plan: list[tuple[str, str, float]], limits: dict[str, int | None], max_concurrent: int
) -> dict[str, float]:
    """When each run begins, if all were submitted at 0 in this order."""
    began: dict[str, float] = {}
    ends: list[tuple[float, str]] = []
    queue, now = list(plan), 0.0
    while queue:
        for run in list(queue):
            handle, lane, seconds = run
            limit, executing = limits[lane], sum(1 for _, other in ends if other == lane)
            if len(ends) < max_concurrent and (limit is None or executing < limit):
                queue.remove(run)
                began[handle] = now
                ends.append((now + seconds, lane))
        ends.sort()
        now, _ = ends.pop(0)
    return began


async def test_failing_runs_never_starve_their_lane(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        failing = [await engine.submit("fail", handle=f"handle {n}", lane="slow") for n in range(50)]
        [last] = await submit(engine, "last", lane="slow")
        bodies.end(last)
        assert await last.result() == "done for last"
        for ticket in failing:
            with pytest.raises(RunFailed):
                await ticket.result()
        assert (await engine.snapshot()).engine.executing == 0


async def test_runs_that_get_their_slots_together_begin_in_order_of_place(autojump_clock, bodies):
    # Trio runs tasks in random order, so this is repeated often.
    async with open_engine(bodies.jobs, max_concurrent=0) as engine:
        events, tickets = engine.events(), []
        for attempt in range(10):
            tickets += await submit(engine, *(f"{letter}{attempt}" for letter in "abcde"))
            await engine.set_max_concurrent(len(tickets))
            await wait_all_tasks_blocked()
        begun: list[str] = []
        while len(begun) < len(tickets):
            event = await anext(events)
            if isinstance(event, RunStateChanged) and event.to == "running":
                begun.append(event.run)
        assert begun == ids(tickets)


# clear_lane and clear_handle.


async def test_clearing_a_lane_cancels_queued_runs_and_not_executing_ones(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        executing, *queued = await submit(engine, *"abcd", lane="slow")
        await wait_all_tasks_blocked()
        assert await engine.clear_lane("slow", by="operator") == 3
        for ticket in queued:
            with pytest.raises(RunCancelled) as cancelled:
                await ticket.result()
            assert cancelled.value.run.reason == "lane_cleared"
            assert (await engine.history(ticket.id))[-1].by == "operator"
        assert (await engine.snapshot()).lanes["slow"].queued == []
        bodies.end(executing)
        assert await executing.result() == "done for a"


async def test_clearing_a_lane_cancels_runs_that_wait_in_handles_for_it(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        [executing] = await submit(engine, "alice")
        [for_the_lane] = await submit(engine, "alice", lane="slow", on_conflict="queue")
        [for_another] = await submit(engine, "alice", on_conflict="queue")
        assert await engine.clear_lane("slow") == 1
        snapshot = await engine.snapshot()
        assert snapshot.runs[for_the_lane.id].reason == "lane_cleared"
        assert snapshot.handles["alice"].waiting == [for_another.id]
        bodies.end(executing)
        await until_status(engine, for_another, "running")


async def test_clearing_a_lane_cancels_the_queued_run_of_a_handle_and_the_runs_that_wait_behind_it(
    autojump_clock, bodies
):
    handles = [f"handle {number}" for number in range(20)]
    async with open_engine(bodies.jobs, lanes={"paused": 0}) as engine:
        for handle in handles:
            await submit(engine, handle, handle, handle, lane="paused", on_conflict="queue")
        assert await engine.clear_lane("paused") == 60
        await wait_all_tasks_blocked()
        snapshot = await engine.snapshot()
        assert snapshot.engine.queued == 0
        assert {str(snapshot.handles[handle].status) for handle in handles} == {"Idle"}


async def test_clearing_a_lane_does_not_affect_other_lanes(autojump_clock, bodies):
    async with open_engine(bodies.jobs, lanes={"x": 0, "y": 0}) as engine:
        await submit(engine, "a", "b", lane="x")
        others = [*await submit(engine, "c", lane="y"), *await submit(engine, "d")]
        assert await engine.clear_lane("x") == 2
        runs = (await engine.snapshot()).runs
        assert not any(runs[ticket.id].ended for ticket in others)


@pytest.mark.parametrize("seconds", [0, 40], ids=["in its wait", "waiting for its slot again"])
async def test_clearing_a_lane_does_not_cancel_suspended_runs(autojump_clock, bodies, seconds):
    async with open_engine(bodies.jobs) as engine:
        suspended = await engine.submit("nap", handle="a", lane="slow")
        await until_status(engine, suspended, "suspended")
        [executing] = await submit(engine, "b", lane="slow")
        await until_status(engine, executing, "running")
        await trio.sleep(seconds)
        assert await engine.clear_lane("slow") == 0
        bodies.end(executing, suspended)
        assert await suspended.result() == "done for a"


async def test_no_cleared_run_begins_even_if_a_slot_becomes_free_meanwhile(autojump_clock, bodies):
    async with open_engine(bodies.jobs, max_concurrent=1) as engine:
        executing, *queued = await submit(engine, *(f"handle {n}" for n in range(1200)))
        await wait_all_tasks_blocked()

        async def end_at_the_first_cancel() -> None:
            async for event in events:
                if isinstance(event, RunStateChanged) and event.reason == "lane_cleared":
                    bodies.end(executing)
                    await engine.set_max_concurrent(3)
                    return

        events = engine.events()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end_at_the_first_cancel)
            assert await engine.clear_lane("main") == len(queued)
        await wait_all_tasks_blocked()
        assert bodies.begun == [executing.id]


async def test_a_run_that_begins_during_a_clear_is_not_counted(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        tickets = await submit(engine, *"abcdef", lane="slow")
        counts: list[int] = []

        async def clear() -> None:
            counts.append(await engine.clear_lane("slow"))

        await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(clear)
            bodies.end(tickets[0])
        await wait_all_tasks_blocked()
        runs = (await engine.snapshot()).runs
        cleared = [ticket.id for ticket in tickets if runs[ticket.id].reason == "lane_cleared"]
        assert [len(cleared)] == counts
        assert set(bodies.begun) == {ticket.id for ticket in tickets if ticket.id not in cleared}


async def test_clearing_a_lane_without_runs_cancels_nothing(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        before = await engine.snapshot()
        assert await engine.clear_lane("nobody was ever here") == 0
        assert await engine.snapshot() == before


async def test_a_cleared_lane_executes_later_submissions(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        executing, _ = await submit(engine, "a", "b", lane="slow")
        await engine.clear_lane("slow")
        [later] = await submit(engine, "c", lane="slow")
        bodies.end(executing)
        await until_status(engine, later, "running")


async def test_clearing_a_handle_cancels_waiting_runs_and_not_the_admitted_one(autojump_clock, bodies):
    async with open_engine(bodies.jobs, lanes={"paused": 0}) as engine:
        [admitted] = await submit(engine, "alice", lane="paused")
        waiting = await submit(engine, "alice", "alice", on_conflict="queue")
        assert await engine.clear_handle("alice", by="operator") == 2
        snapshot = await engine.snapshot()
        for ticket in waiting:
            run = snapshot.runs[ticket.id]
            assert (run.status, run.reason) == ("cancelled", "handle_cleared")
            assert (await engine.history(ticket.id))[-1].by == "operator"
        assert snapshot.runs[admitted.id].status == "queued"
        assert snapshot.handles["alice"].active_run == admitted.id
        assert snapshot.handles["alice"].waiting == []


async def test_clearing_a_handle_does_not_affect_other_handles(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        await submit(engine, "alice", "bob")
        await submit(engine, "alice", on_conflict="queue")
        [other] = await submit(engine, "bob", on_conflict="queue")
        assert await engine.clear_handle("alice") == 1
        assert (await engine.get_run(other.id)).status == "queued"
        assert await engine.clear_handle("nobody") == 0


@pytest.mark.parametrize("name", [None, 7, "a" * 257])
async def test_clearing_an_invalid_name_is_refused(autojump_clock, bodies, name):
    async with open_engine(bodies.jobs) as engine:
        with pytest.raises(Invalid):
            await engine.clear_handle(name)
        if name is not None:  # a lane's falls back to main
            with pytest.raises(Invalid):
                await engine.clear_lane(name)


# reset_lanes.


async def test_a_reset_detaches_executing_runs_and_starts_queued_ones(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        stuck, queued, later = await submit(engine, *"abc", lane="slow")
        await wait_all_tasks_blocked()
        await engine.reset_lanes()
        await wait_all_tasks_blocked()
        snapshot = await engine.snapshot()
        lane = snapshot.lanes["slow"]
        assert (lane.generation, lane.executing, lane.queued) == (1, [queued.id], [later.id])
        run = snapshot.runs[stuck.id]
        assert (run.status, run.detached) == ("running", True)
        assert not snapshot.runs[queued.id].detached
        assert snapshot.engine.executing == 1


async def test_a_reset_frees_the_global_slots(autojump_clock, bodies):
    async with open_engine(bodies.jobs, max_concurrent=2) as engine:
        stuck = [*await submit(engine, "a"), *await submit(engine, "b", lane="x")]
        queued = [*await submit(engine, "c"), *await submit(engine, "d", lane="y")]
        await wait_all_tasks_blocked()
        assert set(bodies.begun) == set(ids(stuck))
        await engine.reset_lanes()
        await wait_all_tasks_blocked()
        assert set(bodies.begun) == set(ids([*stuck, *queued]))


async def test_a_reset_keeps_the_order_of_the_queues(autojump_clock, bodies):
    async with open_engine(bodies.jobs, max_concurrent=1) as engine:
        stuck, *queued = await submit(engine, *"abcde")
        await wait_all_tasks_blocked()
        await engine.reset_lanes()
        for ticket in queued:
            bodies.end(ticket)
            await ticket.result()
        assert bodies.begun == ids([stuck, *queued])


@pytest.mark.parametrize("ending", ["succeeded", "cancelled", "timed_out"])
async def test_a_detached_body_that_ends_frees_no_slot_and_its_outcome_is_recorded(
    autojump_clock, bodies, ending
):
    async with open_engine(bodies.jobs, max_concurrent=1) as engine:
        [stuck] = await submit(engine, "a", lane="slow", run_timeout=50 if ending == "timed_out" else None)
        executing, queued = await submit(engine, "b", "c", lane="slow")
        await wait_all_tasks_blocked()
        await engine.reset_lanes()
        await wait_all_tasks_blocked()

        if ending == "succeeded":
            bodies.end(stuck)
        elif ending == "cancelled":
            await stuck.cancel()
        snapshot = await until_status(engine, stuck, ending)
        await wait_all_tasks_blocked()
        assert set(bodies.begun) == {stuck.id, executing.id}
        assert not snapshot.runs[stuck.id].detached
        assert snapshot.lanes["slow"].executing == [executing.id]
        assert snapshot.engine.executing == 1

        bodies.end(executing)
        await until_status(engine, queued, "running")


async def test_a_detached_body_keeps_its_handle_until_it_ends(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        [stuck] = await submit(engine, "alice")
        [waiting] = await submit(engine, "alice", on_conflict="queue")
        await wait_all_tasks_blocked()
        await engine.reset_lanes()
        with pytest.raises(Conflict) as refused:
            await engine.submit("wait", handle="alice")
        assert refused.value.details["active_run"] == stuck.id
        await wait_all_tasks_blocked()
        assert bodies.begun == [stuck.id]

        bodies.end(stuck)
        await until_status(engine, waiting, "running")


async def test_a_detached_body_that_waits_without_a_slot_continues_with_a_new_one(autojump_clock, bodies):
    @bodies.jobs.job("nap when told")
    async def nap_when_told(run: Run, params: dict[str, Any]) -> str:
        await bodies.wait(run, params)
        await run.sleep(5)
        bodies.begun.append("awake")
        return "had its nap"

    async with open_engine(bodies.jobs) as engine:
        stuck = await engine.submit("nap when told", handle="a", lane="slow")
        executing, queued = await submit(engine, "b", "c", lane="slow")
        await wait_all_tasks_blocked()
        await engine.reset_lanes()
        await wait_all_tasks_blocked()
        bodies.end(stuck)
        await until_status(engine, stuck, "suspended")
        await trio.sleep(10)
        assert set(bodies.begun) == {stuck.id, executing.id}

        bodies.end(executing)
        assert await stuck.result() == "had its nap"
        await wait_all_tasks_blocked()
        assert bodies.begun == [stuck.id, executing.id, "awake", queued.id]


async def test_a_reset_does_not_affect_suspended_runs(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        napping = await engine.submit("nap", handle="a", lane="slow")
        before = await until_status(engine, napping, "suspended")
        await engine.reset_lanes()
        assert (await engine.snapshot()).runs[napping.id] == before.runs[napping.id]
        bodies.end(napping)
        assert await napping.result() == "done for a"


async def test_each_reset_raises_the_generation(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        tickets = await submit(engine, *"abcd", lane="slow")
        await wait_all_tasks_blocked()
        for generation in (1, 2, 3):
            await engine.reset_lanes()
            await wait_all_tasks_blocked()
            assert (await engine.snapshot()).lanes["slow"].generation == generation
        assert set(bodies.begun) == set(ids(tickets))
        bodies.end(*tickets)
        for ticket in tickets:
            await ticket.result()
        assert (await engine.snapshot()).engine.executing == 0


async def test_a_reset_ends_wait_for_active(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        await submit(engine, "a", "b")
        await wait_all_tasks_blocked()
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(engine.wait_for_active, math.inf)
                await wait_all_tasks_blocked()
                await engine.reset_lanes()


async def test_a_reset_ends_draining(autojump_clock, bodies):
    async with open_engine(bodies.jobs, max_concurrent=1) as engine:
        _, queued = await submit(engine, "a", "b")
        await wait_all_tasks_blocked()
        await engine.drain()
        await engine.reset_lanes()
        assert not (await engine.snapshot()).engine.draining
        await submit(engine, "c")
        await until_status(engine, queued, "running")


@pytest.mark.parametrize("seed", range(5))
async def test_no_slot_is_lost_or_doubled_by_resets_at_any_moment(autojump_clock, bodies, seed):
    lots = random.Random(seed)
    executing: Counter[str] = Counter()

    @bodies.jobs.job("short")
    async def short(run: Run, params: dict[str, Any]) -> None:
        executing[run.handle] += 1
        assert executing[run.handle] == 1, f"two bodies at once on {run.handle}"
        await trio.sleep(params["seconds"])
        executing[run.handle] -= 1

    async def run_one(delay: float, handle: str, lane: str, seconds: float) -> None:
        await trio.sleep(delay)
        ticket = await engine.submit(
            "short", handle=handle, lane=lane, params={"seconds": seconds}, on_conflict="queue"
        )
        await ticket.result()

    async def reset(delay: float) -> None:
        await trio.sleep(delay)
        await engine.reset_lanes()

    def tenths(most: int) -> float:
        return lots.randrange(most) / 10  # few different times, so that much happens at the same time

    async with open_engine(bodies.jobs) as engine:
        async with trio.open_nursery() as nursery:
            for number in range(60):
                lane = lots.choice(["main", "x", "y"])
                nursery.start_soon(run_one, tenths(20), f"handle {number % 9}", lane, tenths(5))
            for _ in range(10):
                nursery.start_soon(reset, tenths(20))
        snapshot = await engine.snapshot()
        assert (snapshot.engine.executing, snapshot.engine.queued) == (0, 0)
        tickets = [*await submit(engine, *"abcd"), *await submit(engine, *"ef", lane="x")]
        await wait_all_tasks_blocked()
        assert set(bodies.begun) == set(ids(tickets[:3]))
        bodies.end(*tickets[:3])
        await wait_all_tasks_blocked()
        assert set(bodies.begun) == set(ids(tickets[:5]))


# wait_for_active.


async def test_wait_for_active_returns_when_the_executing_runs_have_ended(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        tickets = await submit(engine, *"abc")
        await wait_all_tasks_blocked()
        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            drained: list[bool] = []

            async def wait() -> None:
                drained.append(await engine.wait_for_active())

            nursery.start_soon(wait)
            for ticket in tickets:
                assert drained == []
                await trio.sleep(1)
                bodies.end(ticket)
        assert drained == [True]
        assert trio.current_time() - start == pytest.approx(3)


async def test_wait_for_active_ignores_runs_that_begin_later(autojump_clock, bodies):
    async with open_engine(bodies.jobs, max_concurrent=1) as engine:
        executing, queued = await submit(engine, "a", "b")
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:

            async def end_the_first() -> None:
                await trio.sleep(1)
                bodies.end(executing)

            nursery.start_soon(end_the_first)
            assert await engine.wait_for_active()
        await until_status(engine, queued, "running")


async def test_a_cancelled_wait_for_active_is_removed(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        await submit(engine, "a")
        await wait_all_tasks_blocked()
        for _ in range(20):
            assert not await engine.wait_for_active(0.1)
        with trio.move_on_after(1):
            await engine.wait_for_active(100)
        await wait_all_tasks_blocked()
        [supervisor] = [report for report in engine.report() if report["kind"] == "supervisor"]
        assert supervisor["waiters"] == 0


async def test_wait_for_active_returns_immediately_without_active_runs(autojump_clock, bodies):
    async with open_engine(bodies.jobs, lanes={"paused": 0}) as engine:
        await submit(engine, "a", lane="paused")
        assert await engine.wait_for_active(timeout=0.001)


@pytest.mark.parametrize(("timeout", "seconds"), [({}, 15), ({"timeout": 4}, 4), ({"timeout": 0}, 0)])
async def test_wait_for_active_returns_false_after_its_timeout(autojump_clock, bodies, timeout, seconds):
    async with open_engine(bodies.jobs) as engine:
        await submit(engine, "a")
        await wait_all_tasks_blocked()
        start = trio.current_time()
        assert await engine.wait_for_active(**timeout) is False
        assert trio.current_time() - start == pytest.approx(seconds)


async def test_a_run_that_is_being_cancelled_is_still_active(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        ticket = await engine.submit("stubborn", handle="a")
        await wait_all_tasks_blocked()
        await ticket.cancel()
        assert not await engine.wait_for_active()
        bodies.end(ticket)
        assert await engine.wait_for_active()


@pytest.mark.parametrize("timeout", [-1, math.nan, "5"])
async def test_wait_for_active_with_an_invalid_timeout_is_refused(autojump_clock, bodies, timeout):
    async with open_engine(bodies.jobs) as engine:
        with pytest.raises(Invalid, match="timeout"):
            await engine.wait_for_active(timeout=timeout)


# drain and resume.


@pytest.mark.parametrize("on_conflict", ["reject", "queue", "replace", "join"])
async def test_a_draining_engine_accepts_no_new_runs_until_it_resumes(autojump_clock, bodies, on_conflict):
    async with open_engine(bodies.jobs) as engine:
        [executing] = await submit(engine, "alice")
        await until_status(engine, executing, "running")
        await engine.drain()
        before = await engine.snapshot()
        assert before.engine.draining
        for handle in ("alice", "bob"):
            with pytest.raises(Draining):
                await engine.submit("wait", handle=handle, on_conflict=on_conflict)
        assert await engine.snapshot() == before

        await engine.resume()
        assert not (await engine.snapshot()).engine.draining
        [ticket] = await submit(engine, "bob")
        await until_status(engine, ticket, "running")


async def test_runs_that_execute_in_a_draining_engine_finish(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        [executing] = await submit(engine, "a")
        await wait_all_tasks_blocked()
        await engine.drain()
        bodies.end(executing)
        assert await executing.result() == "done for a"


async def test_runs_in_a_draining_engine_finish_although_they_wait_without_a_slot(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        napping = await engine.submit("nap", handle="a")
        await wait_all_tasks_blocked()
        bodies.end(napping)
        await engine.drain()
        with trio.fail_after(PATIENCE):
            assert await napping.result() == "done for a"


async def test_runs_in_a_draining_engine_finish_although_they_need_a_child(autojump_clock, bodies):
    @bodies.jobs.job("child")
    async def child(run: Run) -> str:
        return "from the child"

    @bodies.jobs.job("parent")
    async def parent(run: Run) -> Any:
        await trio.sleep(1)
        return await run.call("child", handle="child")

    async with open_engine(bodies.jobs) as engine:
        ticket = await engine.submit("parent", handle="parent")
        await until_status(engine, ticket, "running")
        await engine.drain()
        with trio.fail_after(PATIENCE):
            assert await ticket.result() == "from the child"


async def test_runs_that_are_queued_when_a_drain_begins_start_after_the_resume(autojump_clock, bodies):
    async with open_engine(bodies.jobs, max_concurrent=2) as engine:
        executing, _, queued = [*await submit(engine, "a", "b"), *await submit(engine, "c", lane="slow")]
        await wait_all_tasks_blocked()
        [waiting] = await submit(engine, "a", on_conflict="queue")
        await engine.drain()
        bodies.end(executing)
        await executing.result()
        await trio.sleep(100)
        assert not {queued.id, waiting.id} & set(bodies.begun)

        await engine.resume()
        await until_status(engine, queued, "running")
        bodies.end(queued)
        await until_status(engine, waiting, "running")


async def test_a_draining_engine_accepts_every_other_command(autojump_clock, bodies):
    async with open_engine(bodies.jobs, max_concurrent=1) as engine:
        executing, queued = await submit(engine, "a", "b")
        await wait_all_tasks_blocked()
        await engine.drain()
        await engine.drain()
        assert (await queued.cancel()).status == "cancelled"
        assert (await executing.cancel()).status == "cancelling"
        await engine.set_params("c", {"n": 1})
        await engine.set_concurrency("slow", 2)
        assert await engine.wait_for_active()


# Runs that wait for long.


class Listener:
    """An `on_wait` that records its arguments and the time of each call."""

    def __init__(self) -> None:
        self.start = trio.current_time()
        self.heard: list[tuple[float, float, int, list[str]]] = []

    def __call__(self, waited: float, ahead: int, blockers: list[str]) -> None:
        at = trio.current_time() - self.start
        self.heard.append((round(at, 3), round(waited, 3), ahead, blockers))


async def test_on_wait_receives_the_time_the_runs_ahead_and_the_blocking_runs(autojump_clock, bodies):
    async with open_engine(bodies.jobs, lanes={"fast": 2}) as engine:
        executing = await submit(engine, "a", "b", lane="fast")
        await wait_all_tasks_blocked()
        first, second = Listener(), Listener()
        await submit(engine, "c", lane="fast", on_wait=first)
        await submit(engine, "d", lane="fast", on_wait=second)
        await trio.sleep(100)
        assert first.heard == [(2, 2, 0, ids(executing))]
        assert second.heard == [(2, 2, 1, ids(executing))]


async def test_a_run_that_the_global_limit_delays_is_blocked_by_all_executing_runs(autojump_clock, bodies):
    async with open_engine(bodies.jobs, max_concurrent=2) as engine:
        executing = [*await submit(engine, "a", lane="x"), *await submit(engine, "b", lane="y")]
        await wait_all_tasks_blocked()
        listener = Listener()
        await submit(engine, "c", on_wait=listener)
        await trio.sleep(100)
        assert listener.heard == [(2, 2, 0, ids(executing))]


async def test_a_run_that_its_handle_delays_is_blocked_by_the_admitted_run(autojump_clock, bodies):
    async with open_engine(bodies.jobs) as engine:
        [admitted] = await submit(engine, "alice")
        first, second = Listener(), Listener()
        await submit(engine, "alice", on_conflict="queue", on_wait=first)
        await submit(engine, "alice", on_conflict="queue", on_wait=second)
        await trio.sleep(100)
        [(at, waited, _, blockers)] = first.heard
        assert (at, waited, blockers) == (2, 2, [admitted.id])
        [(_, _, ahead, blockers)] = second.heard
        assert ahead >= 1
        assert admitted.id in blockers


async def test_a_run_in_a_paused_lane_is_blocked_by_no_run(autojump_clock, bodies):
    async with open_engine(bodies.jobs, lanes={"paused": 0}) as engine:
        await submit(engine, "a")
        listener = Listener()
        await submit(engine, "b", lane="paused", on_wait=listener)
        await trio.sleep(100)
        assert listener.heard == [(2, 2, 0, [])]


@pytest.mark.parametrize(("warn_after", "at"), [(0.5, [0.5]), (None, [2]), (60, [60]), (math.inf, [])])
async def test_on_wait_is_called_after_warn_after(autojump_clock, bodies, warn_after, at):
    async with open_engine(bodies.jobs, lanes={"paused": 0}) as engine:
        listener = Listener()
        await submit(engine, "a", lane="paused", warn_after=warn_after, on_wait=listener)
        await trio.sleep(100)
        assert [heard[0] for heard in listener.heard] == at


async def test_on_wait_is_not_called_if_the_run_gets_its_slot_in_time(autojump_clock, bodies, caplog):
    async with open_engine(bodies.jobs, max_concurrent=1) as engine:
        [executing] = await submit(engine, "a")
        listener = Listener()
        [queued] = await submit(engine, "b", on_wait=listener)
        await trio.sleep(1.9)
        bodies.end(executing)
        await until_status(engine, queued, "running")
        await trio.sleep(100)
        assert listener.heard == []
        assert caplog.records == []


@pytest.mark.parametrize("moves_after", [1, 5])
async def test_on_wait_is_called_once_for_a_wait_in_handle_and_lane(autojump_clock, bodies, moves_after):
    async with open_engine(bodies.jobs, max_concurrent=2) as engine:
        [first] = await submit(engine, "alice")
        await submit(engine, "bob")
        listener = Listener()
        [waiting] = await submit(engine, "alice", on_conflict="queue", on_wait=listener)
        await submit(engine, "carol")
        await trio.sleep(moves_after)
        bodies.end(first)
        await trio.sleep(100)
        assert (await engine.get_run(waiting.id)).status == "queued"
        assert [heard[0] for heard in listener.heard] == [2]


async def test_a_run_is_never_cancelled_for_its_long_wait(autojump_clock, bodies):
    async with open_engine(bodies.jobs, lanes={"paused": 0}) as engine:
        [ticket] = await submit(engine, "a", lane="paused")
        await trio.sleep(30 * 24 * 3600)
        await engine.set_concurrency("paused", 1)
        bodies.end(ticket)
        assert await ticket.result() == "done for a"


async def test_a_long_wait_is_logged_once_with_all_details(autojump_clock, bodies, caplog):
    async with open_engine(bodies.jobs, lanes={"fast": 2}) as engine:
        executing = await submit(engine, "a", "b", lane="fast")
        await wait_all_tasks_blocked()
        await submit(engine, "c", lane="fast", warn_after=math.inf)
        [waiting] = await submit(engine, "d", lane="fast", warn_after=3)
        await trio.sleep(100)
        [record] = caplog.records
        assert record.levelno == logging.WARNING
        said = record.getMessage()
        assert "3.0 s" in said
        assert "1 ahead" in said
        assert f"run {waiting.id}" in said
        for ticket in executing:
            assert ticket.id in said


async def test_many_long_waits_are_one_line_a_second_with_their_count_and_the_longest(
    autojump_clock, bodies, caplog
):
    told: list[str] = []
    async with open_engine(bodies.jobs, max_concurrent=12, lanes={"full": 12}) as engine:
        executing = await submit(engine, *(f"e{number}" for number in range(12)), lane="full")
        await wait_all_tasks_blocked()
        waiting = []
        for number in range(100):
            on_wait = lambda waited, ahead, blockers, number=number: told.append(str(number))  # noqa: E731
            options = {"on_wait": on_wait} if number % 10 == 0 else {}
            waiting += await submit(engine, f"w{number}", lane="full", **options)
            await trio.sleep(0.05)
        events = await waiting_events(engine, 100)
        records = [record for record in caplog.records if "has waited" in record.getMessage()]
    times = [record.created for record in records]
    assert len(times) <= 7  # for the 5 s in which they get long
    said = [record.getMessage() for record in records]
    assert f"run {waiting[0].id}" in said[0]
    counts = [int(found[1]) + 1 for text in said if (found := re.search(r"; (\d+) more wait too long", text))]
    assert sum(counts) + len(said) - len(counts) == 100
    assert executing[9].id in said[0]
    assert executing[10].id not in said[0]
    assert said[0].count("and 2 more") == 1
    assert told == [str(number) for number in range(0, 100, 10)]
    assert len(events) <= 7


async def test_10_000_simultaneous_long_waits_are_one_line_and_one_message(autojump_clock, bodies, caplog):
    async with open_engine(bodies.jobs, lanes={"paused": 0}) as engine:
        for number in range(10_000):
            await engine.submit("wait", handle=f"h{number}", lane="paused")
        messages: list[object] = []
        before, actor.observer = actor.observer, lambda kind, name, message: messages.append(message)
        try:
            await trio.sleep(100)
        finally:
            actor.observer = before
        [record] = [record for record in caplog.records if "has waited" in record.getMessage()]
        assert "; 9,999 more wait too long" in record.getMessage()
        assert len(messages) < 10


async def fails(waited: float, ahead: int, blockers: list[str]) -> None:
    raise RuntimeError("the caller's mistake")


def fails_at_once(waited: float, ahead: int, blockers: list[str]) -> None:
    raise RuntimeError("the caller's mistake")


async def never_returns(waited: float, ahead: int, blockers: list[str]) -> None:
    await trio.sleep_forever()


def takes_other_arguments() -> None:
    raise AssertionError("nobody can call this")


@pytest.mark.parametrize("on_wait", [fails, fails_at_once, never_returns, takes_other_arguments])
async def test_an_on_wait_that_fails_or_hangs_affects_nothing_else(autojump_clock, bodies, on_wait):
    async with open_engine(bodies.jobs, max_concurrent=1) as engine:
        executing, *_ = await submit(engine, "a")
        queued, after = await submit(engine, "b", "c", on_wait=on_wait)
        await trio.sleep(5)
        bodies.end(executing, queued, after)
        assert await queued.result() == "done for b"
        assert await after.result() == "done for c"


async def test_on_wait_can_be_async_and_use_the_engine(autojump_clock, bodies):
    async def on_wait(waited: float, ahead: int, blockers: list[str]) -> None:
        await trio.sleep(1)
        for run in blockers:
            await engine.cancel(run, by="on_wait")

    async with open_engine(bodies.jobs, max_concurrent=1) as engine:
        executing, queued = await submit(engine, "a", "b", on_wait=on_wait)
        bodies.end(queued)
        assert await queued.result() == "done for b"
        with pytest.raises(RunCancelled):
            await executing.result()


async def waiting_events(engine: Engine, seconds: float) -> list[RunWaiting]:
    """The `run_waiting` events of the next seconds."""
    found: list[RunWaiting] = []
    with trio.move_on_after(seconds):
        async for event in engine.events():
            if isinstance(event, RunWaiting):
                found.append(event)
    return found


async def test_a_long_wait_is_an_event(autojump_clock, bodies):
    async with open_engine(bodies.jobs, max_concurrent=1) as engine:
        executing, queued = await submit(engine, "a", "b")
        [event] = await waiting_events(engine, 100)
        assert (event.type, event.run, event.handle, event.lane) == ("run_waiting", queued.id, "b", "main")
        assert (round(event.waited, 3), event.ahead, event.blockers) == (2, 0, [executing.id])


async def test_each_lane_has_one_waiting_event_per_second_for_the_longest_wait(autojump_clock, bodies):
    async with open_engine(bodies.jobs, lanes={"x": 0, "y": 0}) as engine:
        longest: dict[str, str] = {}
        for lane in ("x", "y"):
            [ticket] = await submit(engine, f"{lane} 1", lane=lane, warn_after=3)
            longest[lane] = ticket.id
        await trio.sleep(1)
        for lane in ("x", "y"):
            await submit(engine, f"{lane} 2", f"{lane} 3", lane=lane, warn_after=2)
        events = await waiting_events(engine, 100)
        assert {event.lane: event.run for event in events} == longest
        assert len(events) == 2


async def test_the_longest_wait_for_a_lane_counts_even_if_it_is_in_a_handle(autojump_clock, bodies):
    # Which of two actors wakes first is random, so many lanes are tested.
    lanes = [f"lane {number}" for number in range(16)]
    async with open_engine(bodies.jobs, lanes=dict.fromkeys(lanes, 0)) as engine:
        longest = {}
        for number, lane in enumerate(lanes):
            if number % 2:
                await submit(engine, f"early {lane}", lane=lane, warn_after=math.inf)
            await submit(engine, f"busy {lane}", lane="other", warn_after=math.inf)
            [ticket] = await submit(engine, f"busy {lane}", lane=lane, warn_after=3, on_conflict="queue")
            longest[lane] = ticket.id
        await trio.sleep(1)
        for lane in lanes:
            await submit(engine, f"free {lane}", lane=lane, warn_after=2)
        events = await waiting_events(engine, 100)
        assert {event.lane: event.run for event in events} == longest


async def test_a_lane_with_many_long_waits_has_one_event_per_second(autojump_clock, bodies):
    async with open_engine(bodies.jobs, lanes={"paused": 0}) as engine:
        for number in range(20):
            await submit(engine, f"handle {number}", lane="paused", warn_after=10)
            await trio.sleep(0.3)
        events = await waiting_events(engine, 100)
        times = [event.at for event in events]
        assert len(times) >= 3
        assert min(later - earlier for earlier, later in pairwise(times)) > 0.999


async def test_waits_that_get_long_more_than_a_second_apart_are_two_events(autojump_clock, bodies):
    async with open_engine(bodies.jobs, lanes={"paused": 0}) as engine:
        tickets = await submit(engine, "a", lane="paused")
        await trio.sleep(1.5)
        tickets += await submit(engine, "b", lane="paused")
        events = await waiting_events(engine, 100)
        assert len(events) == 2
        assert events[0].run == tickets[0].id


# Probes.


@pytest.mark.parametrize(
    ("handle", "lane"), [("session:probe-1", "main"), ("auth-probe:x", "main"), ("alice", "auth-probe:x")]
)
async def test_a_failing_probe_is_an_event_but_no_logged_error(autojump_clock, bodies, caplog, handle, lane):
    async with open_engine(bodies.jobs) as engine:
        ticket = await engine.submit("fail", handle=handle, lane=lane)
        with pytest.raises(RunFailed, match="this one always fails"):
            await ticket.result()
        last = (await engine.history(ticket.id))[-1]
        assert (last.type, last.to) == ("run_state_changed", "failed")
        assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_any_other_failing_run_is_logged_as_an_error(autojump_clock, bodies, caplog):
    async with open_engine(bodies.jobs) as engine:
        ticket = await engine.submit("fail", handle="session:alice")
        with pytest.raises(RunFailed):
            await ticket.result()
        [record] = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert ticket.id in record.getMessage()
        assert "this one always fails" in record.getMessage()
