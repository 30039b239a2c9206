"""A scenario with many kinds of commands and faults, and its trace, also if it fails.

As a program it prints, for each seed in its arguments, a digest of the trace for both kinds of stores.
"""

import hashlib
import logging
import sys

import trio

from greenroom import Jobs, Run
from greenroom.errors import GreenroomError
from greenroom.simulation import SimulationFailed, World, simulate
from greenroom.simulation.world.trace import Trace

jobs = Jobs()


@jobs.job("mirror", resumable=True)
async def mirror(run: Run, params: dict) -> int:
    for page in range(run.checkpoint or 0, params["pages"]):
        await run.log(f"page {page}")
        await run.sleep(1)
        await run.save_checkpoint(page + 1)
        await run.progress(page + 1, params["pages"])
    async with run.open_file("pages.txt", overwrite=True) as file:
        await file.write(b"all of them")
    return params["pages"]


@jobs.job("ask", max_attempts=3, backoff=0.5)
async def ask(run: Run, params: dict) -> object:
    if run.attempt == 1:
        raise ValueError("not this time")
    return await run.interrupt({"continue": True}, timeout=2, release_slot=True)


TROUBLES = ["crash_before", "crash_within", "crash_after", "lost_request", "lost_reply", "refused"]


async def lively(world: World) -> None:
    server = await world.serve(jobs, max_concurrent=2, shutdown_timeout=3)
    people = [world.client(name) for name in ("ann", "bob", "cleo")]

    async def command(step) -> None:
        draw, person = step.random, step.random.choice(people)
        try:
            match draw.choice(["submit", "submit", "submit", "cancel", "look", "lanes", "drafts"]):
                case "submit":
                    await person.submit(
                        draw.choice(["mirror", "ask"]),
                        handle=draw.choice(["h1", "h2", "h3"]),
                        lane=draw.choice(["main", "side"]),
                        params={"pages": draw.randrange(3)},
                        on_conflict=draw.choice(["reject", "queue", "replace", "join"]),
                    )
                case "cancel":
                    runs = await person.list_runs(limit=5)
                    if runs:
                        await person.cancel(draw.choice(runs).id)
                case "look":
                    await person.snapshot()
                case "lanes":
                    await person.set_concurrency("side", draw.randrange(3))
                case "drafts":
                    await person.set_params("h4", {"pages": 1})
        except GreenroomError:
            return

    async with trio.open_nursery() as nursery:
        async for step in world.steps(40):
            nursery.start_soon(command, step)
            match step.random.randrange(12):
                case 0:
                    await trio.sleep(step.random.random() * 3)
                case 1:
                    server.disk.fail_commit(step.random.choice(TROUBLES))
                case 2:
                    await server.crash()
                case 3:
                    await server.stop(at_once=step.random.random() < 0.5)
            if not server.running:
                await trio.sleep(step.random.random())
                server.disk.repair()
                await server.start()


def trace_of(seed: int, store: str = "memory") -> Trace:
    """The trace, also if a rule was broken: a failure must be the same each time, too."""
    try:
        return simulate(seed, lively, store=store).trace
    except SimulationFailed as failed:
        return failed.trace


def digest(seed: int, store: str) -> str:
    return hashlib.sha256(trace_of(seed, store).text(messages=True).encode()).hexdigest()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    for seed in map(int, sys.argv[1:]):
        print(seed, *(digest(seed, store) for store in ("memory", "sqlite")))
