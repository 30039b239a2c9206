"""A shop that charges for orders: with a bug that only a crash at a certain moment shows, and without."""

from collections import Counter
from typing import Any

import trio

from greenroom import Jobs, Run
from greenroom.simulation import World


async def careless(world: World) -> None:
    """Charges, and then saves that it has charged."""
    await _sell(world, "charge", "remember")


async def careful(world: World) -> None:
    """Asks the bank whether it has charged already, before it charges."""
    await _sell(world, "charge once", "remember")


async def talkative(world: World) -> None:
    """Prints to standard output, which must not disturb the hunt."""
    print("this line is not JSON; seed", world.seed)
    await careful(world)


async def endless(world: World) -> None:
    """Never ends, and never lets another task run."""
    while True:
        pass


played: list[int] = []


async def forgetful(world: World) -> None:
    """Fails the first time only."""
    played.append(world.seed)
    world.check(len(played) > 1, "this is the first time")


async def _sell(world: World, *how: str) -> None:
    charges: Counter[str] = Counter()
    jobs = Jobs()

    @jobs.job("order", resumable=True)
    async def order(run: Run, params: dict[str, Any]) -> None:
        for deed in how if run.checkpoint is None else ():
            if deed == "charge" or (deed == "charge once" and not charges[run.id]):
                charges[run.id] += 1
            elif deed == "remember":
                await run.save_checkpoint("charged")
        await run.sleep(1)

    @world.invariant
    def nobody_is_charged_twice() -> bool:
        return all(times == 1 for times in charges.values())

    server, customer = await world.serve(jobs), world.client("customer")
    async for step in world.steps(20):
        if step.random.random() < 0.7:
            await customer.submit("order", handle=step.random.choice("ab"), on_conflict="queue", params={})
        else:
            await server.crash()
            await server.start()
        await trio.sleep(step.random.choice((0, 0.5)))
