"""Your own jobs in a simulated world, with an invariant of your own: every order, every crash, from one seed.

Charging a card and saving that it was charged are two steps, and a process can die between them. Then the run
resumes from its checkpoint, and charges again. A hunt finds a seed that shows this. With a bank that accepts
each order only once, every seed passes.
"""

from collections import Counter

import trio

from greenroom import Jobs, Run
from greenroom.simulation import SimulationFailed, World, hunt, simulate


class Bank:
    def __init__(self, *, careful: bool) -> None:
        self.charges: Counter[str] = Counter()
        self._careful = careful

    def charge(self, order: str) -> None:
        if not (self._careful and order in self.charges):
            self.charges[order] += 1


async def shop(world: World, *, careful: bool = False) -> None:
    bank, jobs = Bank(careful=careful), Jobs()

    @jobs.job("order", resumable=True)
    async def order(run: Run) -> None:
        if run.checkpoint is None:
            bank.charge(run.id)
            await run.save_checkpoint("charged")

    @world.invariant
    def each_order_is_charged_once() -> bool:
        return all(times == 1 for times in bank.charges.values())

    server = await world.serve(jobs)
    customer = world.client("customer")
    async for step in world.steps(20):
        if step.random.random() < 0.8:
            await customer.submit("order", handle=step.random.choice("ab"), on_conflict="queue")
        else:
            await server.crash()
            await server.start()
        await trio.sleep(step.random.choice((0, 1)))


async def careful_shop(world: World) -> None:
    await shop(world, careful=True)


def main() -> None:
    try:
        hunt(shop, seconds=60)
    except SimulationFailed as failed:
        print("broken:", failed.invariant)
        print("a crash is in the story:", "server: dies: killed" in failed.trace.story())

    for seed in range(20):
        simulate(seed, careful_shop)
    print("20 seeds of the careful shop survive")


if __name__ == "__main__":
    main()

# Output:
# broken: each_order_is_charged_once does not hold
# a crash is in the story: True
# 20 seeds of the careful shop survive
