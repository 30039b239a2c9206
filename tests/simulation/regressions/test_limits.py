"""Limits that change just when slots are released."""

import trio

from greenroom import Jobs, Run
from greenroom.simulation import World, simulate

jobs = Jobs()


@jobs.job("hold")
async def hold(run: Run, params: dict[str, float]) -> None:
    await trio.sleep(params["seconds"])


def test_a_limit_that_is_lowered_and_raised_while_a_slot_is_released_delays_no_run():
    """A lane received a slot when it had no room, and had room again before it returned the slot."""

    async def scenario(world: World) -> None:
        await world.serve(jobs, max_concurrent=2)
        ann = world.client("ann")
        await ann.set_concurrency("side", 2)
        for handle, lane, seconds in (("a", "side", 2.5), ("b", "main", 1.0), ("c", "side", 2.5)):
            await ann.submit("hold", handle=handle, lane=lane, params={"seconds": seconds})
        await trio.sleep(1)  # until the slot of b is released

        async def set_often(limit: int, turns: int) -> None:
            for _ in range(turns):
                await trio.lowlevel.checkpoint()
            for _ in range(6):
                await ann.set_concurrency("side", limit)

        down, up = world.random.randint(1, 9), world.random.randint(0, 4)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(set_often, 1, down)
            nursery.start_soon(set_often, 2, down + up)
        await trio.sleep(10)

    for seed in range(400):
        simulate(seed, scenario)
