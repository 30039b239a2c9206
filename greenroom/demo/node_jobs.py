"""The job of the demo of a cluster: a few steps, each saved, so that another node can continue after them."""

from __future__ import annotations

import trio

from ..actors.jobs import Jobs
from ..actors.run.api import Run

jobs = Jobs()

STEPS = 5


@jobs.job("steps", resumable=True)
async def steps(run: Run) -> int:
    """Do the steps that an earlier body has not done."""
    done = run.checkpoint or 0
    while done < STEPS:
        await trio.sleep(0.1)
        done += 1
        await run.save_checkpoint(done)
    return int(done)
