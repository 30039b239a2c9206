"""The jobs of the executors that tests start, and what they write about their bodies."""

import os
import sys
import time
from pathlib import Path

import trio

from greenroom import Jobs, Run
from greenroom.actors.run.blocking import BlockingRun

jobs = Jobs()


def mark(run, what):
    """Write a line; returns whether it is the first one."""
    with Path(os.environ["MARKS"]).open("a") as file:
        file.write(f"{what} {run.id} {run.fence}\n")
        return file.tell() == len(what) + len(run.id) + len(str(run.fence)) + 3


@jobs.job
async def adds(run: Run, params: dict) -> int:
    return params["a"] + params["b"]


@jobs.job(resumable=True)
async def waits(run: Run) -> str:
    """Waits, but only the first body."""
    first = mark(run, "begin")
    try:
        await trio.sleep(3600 if first else 0)
    finally:
        mark(run, "end")
    return "done"


@jobs.job
async def blocks(run: Run, params: dict) -> str:
    mark(run, "begin")
    time.sleep(params["seconds"])  # noqa: ASYNC251  # it must block the event loop
    return "done"


@jobs.job(resumable=True)
def stubborn(run: BlockingRun) -> None:
    """A thread that ignores its cancellation."""
    mark(run, "begin")
    while True:
        time.sleep(0.05)


@jobs.job
async def exits(run: Run) -> None:
    sys.exit(3)


@jobs.job(loop="asyncio")
async def exits_in_asyncio(run: Run) -> None:
    raise KeyboardInterrupt


@jobs.job
def exits_in_thread(run: BlockingRun) -> None:
    sys.exit("bye")
