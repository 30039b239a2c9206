"""A lane is a class of work with its own limit and queue; a global limit bounds all lanes together.

Both can be changed while runs execute: raising a limit starts queued runs immediately, 0 pauses a lane, and
lowering one interrupts no run. Queued runs can be cleared.
"""

import trio
import trio.testing

from greenroom import Jobs, Run, open_engine

jobs = Jobs()
finish = trio.Event()


@jobs.job("resize", lane="images")
async def resize(run: Run) -> None:
    await finish.wait()


@jobs.job("mail")
async def mail(run: Run) -> None:
    await finish.wait()


async def main() -> None:
    async with open_engine(jobs, store="memory:", max_concurrent=4, lanes={"images": 2}) as engine:

        async def show(what: str) -> None:
            await trio.testing.wait_all_tasks_blocked()
            lanes = (await engine.snapshot()).lanes
            counts = [
                f"{name}: {len(lane.executing)} executing, {len(lane.queued)} queued"
                for name, lane in sorted(lanes.items())
            ]
            print(f"{what:<15}", *counts, sep="  ")

        tickets = [await engine.submit("resize", handle=f"image {n}") for n in range(5)]
        tickets += [await engine.submit("mail", handle=f"mail {n}") for n in range(3)]
        await show("limits 4 and 2")
        await engine.set_concurrency("images", 3)
        await show("images up to 3")  # the global limit holds
        await engine.set_max_concurrent(6)
        await show("6 in all")
        await engine.set_concurrency("images", 0)
        await show("images paused")  # no run is interrupted
        print("cleared:", await engine.clear_lane("images"))
        finish.set()
        for ticket in tickets:
            await ticket.wait()
        runs = [await engine.get_run(ticket.id) for ticket in tickets]
        print("ended:", *sorted(run.status for run in runs))


if __name__ == "__main__":
    trio.run(main)

# Output:
# limits 4 and 2   images: 2 executing, 3 queued  main: 2 executing, 1 queued
# images up to 3   images: 2 executing, 3 queued  main: 2 executing, 1 queued
# 6 in all         images: 3 executing, 2 queued  main: 3 executing, 0 queued
# images paused    images: 3 executing, 2 queued  main: 3 executing, 0 queued
# cleared: 2
# ended: cancelled cancelled succeeded succeeded succeeded succeeded succeeded succeeded
