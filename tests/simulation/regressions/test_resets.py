"""Resets between the grant of a slot and the start of the run."""

import trio

from greenroom import Jobs, Run
from greenroom.simulation import World, simulate

jobs = Jobs()


@jobs.job("short")
async def short(run: Run) -> None:
    await trio.sleep(1)


def test_a_run_that_was_granted_its_slot_just_before_a_reset_is_not_overtaken():
    """It returned to its lane after the next run had been granted the slot."""

    async def scenario(world: World) -> None:
        await world.serve(jobs)
        ann = world.client("ann")

        async def submit(handle: str) -> None:
            await ann.submit("short", handle=handle, lane="back")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(submit, "one")
            nursery.start_soon(submit, "two")
            for _ in range(world.derived("turns").randint(4, 12)):
                await trio.lowlevel.checkpoint()
            nursery.start_soon(ann.reset_lanes)
        await trio.sleep(5)

    for seed in range(400, 430):
        simulate(seed, scenario)
