"""Executors in the simulation: attached, cut off, paused, killed and drained."""

from typing import Any

import pytest
import trio

from greenroom import Jobs, Run
from greenroom.simulation import SimulationFailed, World, simulate
from greenroom.simulation.scenarios.executors import executors

jobs = Jobs()


@jobs.job("works", resumable=True, grace=2)
async def works(run: Run, params: dict[str, Any]) -> int:
    for number in range(run.checkpoint or 0, params["parts"]):
        await trio.sleep(10)
        await run.save_checkpoint(number + 1)
    return run.fence


@jobs.job("waits", max_attempts=3, grace=2)
async def waits(run: Run) -> int:
    await run.sleep(20)
    return run.attempt


@jobs.job("clings", max_attempts=2, grace=2)
async def clings(run: Run, params: dict[str, Any]) -> int:
    with trio.CancelScope(shield=True):
        await trio.sleep(params["seconds"])
    return run.attempt


@jobs.job("lingers", resumable=True, grace=2)
async def lingers(run: Run, params: dict[str, Any]) -> int:
    if run.checkpoint is None:
        await run.save_checkpoint(True)
        with trio.CancelScope(shield=True):
            await trio.sleep(params["seconds"])
            await run.log("still here")
        await trio.lowlevel.checkpoint()  # cancelled here
    return run.fence


def ends_of(world: World) -> list[str]:
    """What the bodies did, in order."""
    return [str(entry.what) for entry in world.trace.entries if entry.kind == "body"]


@pytest.mark.parametrize("seed", [1, 3, 5, 11, 46, 78])
def test_no_rule_is_broken_when_executors_are_lost_and_come_back(seed: int):
    simulate(seed, executors)


def test_the_same_seed_gives_the_same_trace():
    first, second = simulate(7, executors), simulate(7, executors)
    assert first.trace.text() == second.trace.text()


def test_bodies_execute_only_at_executors_if_the_engine_executes_none():
    async def scenario(world: World) -> None:
        await world.serve(jobs, executors=0)
        world.executor("e1", slots=1)
        ticket = await world.client("ann").submit("works", handle="h", params={"parts": 1})
        await ticket.result()
        world.check("at e1" in ends_of(world)[0], f"it executed elsewhere: {ends_of(world)}")

    simulate(1, scenario)


def test_an_executor_that_is_cut_off_for_less_than_the_ttl_keeps_its_body():
    async def scenario(world: World) -> None:
        await world.serve(jobs, executors=0)
        executor = world.executor("e1")
        ticket = await world.client("ann").submit("works", handle="h", params={"parts": 3})
        await trio.sleep(5)
        executor.uplink.block(there=True, back=True)
        await trio.sleep(8)
        executor.uplink.block(there=False, back=False)
        await ticket.result()
        world.check(len(ends_of(world)) == 2, f"its body began again: {ends_of(world)}")

    simulate(1, scenario)


def test_a_paused_executor_is_lost_and_its_body_ends_when_it_continues():
    async def scenario(world: World) -> None:
        server = await world.serve(jobs, executors=0)
        first = world.executor("e1")
        ticket = await world.client("ann").submit("works", handle="h", params={"parts": 6})
        await trio.sleep(5)
        world.executor("e2")
        first.pause()
        await trio.sleep(40)
        world.check(len(server.rules.executors.executing()) == 2, "the paused body does not count")
        first.go_on()
        await trio.sleep(1)
        world.check(len(server.rules.executors.executing()) == 1, "its body continues")
        await ticket.result()

    simulate(1, scenario)


def test_a_body_that_begins_next_to_another_one_breaks_a_rule():
    async def scenario(world: World) -> None:
        server = await world.serve(jobs, executors=0)
        executor = world.executor("e1")
        await world.client("ann").submit("works", handle="h", params={"parts": 1})
        await trio.sleep(1)
        run = next(iter(server.rules.model.runs.values()))
        assert executor.life is not None
        world.judge(server.rules, server.rules.executors.body_begins, executor.life.process, Another(run.id))

    with pytest.raises(SimulationFailed, match="starts while others execute on the same handle"):
        simulate(1, scenario)


class Another:
    """A second body of a run."""

    handle, attempt, kind, params, checkpoint, fence = "h", 1, "start", {"parts": 1}, None, 99

    def __init__(self, id: str) -> None:
        self.id = id
