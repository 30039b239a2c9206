"""The engine reports a run that is queued for long: for how long, behind how many runs, blocked by which.

After `warn_after` seconds it calls `on_wait` once, logs a warning, and emits an event for followers. It
never cancels a run for waiting.
"""

import logging

import trio

from greenroom import Jobs, Run, open_engine

jobs = Jobs()


@jobs.job("slow", lane="printer")
async def slow(run: Run) -> None:
    await trio.sleep(0.2)


async def main() -> None:
    logging.getLogger("greenroom").setLevel(logging.ERROR)  # it is printed here instead
    async with open_engine(jobs, store="memory:") as engine:
        names = {}

        def tell(waited: float, ahead: int, blockers: list[str]) -> None:
            print(f"waits since {waited:.1f} s, {ahead} ahead, blocked by", *[names[run] for run in blockers])

        for name in ("first", "second", "third"):
            ticket = await engine.submit("slow", handle=name, warn_after=0.1, on_wait=tell)
            names[ticket.id] = name
            await trio.sleep(0.01)
        await ticket.result()


if __name__ == "__main__":
    trio.run(main)

# Output:
# waits since 0.1 s, 0 ahead, blocked by first
# waits since 0.1 s, 1 ahead, blocked by first
