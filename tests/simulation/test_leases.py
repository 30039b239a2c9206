"""Leases that expire or are taken over, in the simulation."""

from typing import Any

import pytest
import trio

from greenroom import Jobs, Run
from greenroom.simulation import World, simulate
from greenroom.simulation.scenarios.leases import leases

jobs = Jobs()
ends: list[float] = []


@jobs.job("parts", resumable=True)
async def parts(run: Run) -> Any:
    begun_at = run.checkpoint
    if begun_at is None:
        await run.save_checkpoint("half")
    try:
        await trio.sleep(20)
    finally:
        ends.append(trio.current_time())
    return begun_at


@jobs.job("holds", resumable=True)
async def holds(run: Run) -> None:
    await trio.sleep(30)


@pytest.mark.parametrize("seed", [1, 3, 5, 14, 29, 57, 87])
def test_no_rule_is_broken_when_engines_lose_their_leases(seed: int):
    simulate(seed, leases)


def test_the_same_seed_gives_the_same_trace():
    first, second = simulate(7, leases), simulate(7, leases)
    assert first.trace.text() == second.trace.text()


def test_a_body_is_cancelled_in_time_and_its_run_resumes_from_its_checkpoint():
    async def scenario(world: World) -> None:
        server, ann = await world.serve(jobs, disk=world.leased_disk()), world.client("ann")
        ends.clear()
        await trio.sleep(6)
        ticket = await ann.submit("parts", handle="h")
        server.disk.no_renewals = True  # the last renewal was at 5, so the lease expires at 20
        await trio.sleep(10.9)
        world.check(server.engine.bodies(), "the body has ended too early")
        await trio.sleep(0.2)
        world.check(ends == [17.0], f"its bodies ended at {ends}")
        await trio.sleep(10)
        server.disk.no_renewals = False
        world.check(await ticket.result() == "half", "it did not resume from its checkpoint")

    simulate(1, scenario)


def test_runs_that_lost_their_slots_get_new_ones_before_runs_that_queued_behind_them():
    async def scenario(world: World) -> None:
        server = await world.serve(jobs, disk=world.leased_disk(), max_concurrent=2)
        ann = world.client("ann")
        tickets = [await ann.submit("holds", handle=f"h{number}") for number in range(6)]
        server.disk.no_renewals = True
        await trio.sleep(25)
        server.disk.no_renewals = False
        await trio.sleep(5)
        executing = (await ann.snapshot()).lanes["main"].executing
        world.check(executing == [ticket.id for ticket in tickets[:2]], f"{executing} execute")

    for seed in range(10):
        simulate(seed, scenario)
