"""Open the store in a file, say what that took, and end at once: `python -m tests.benchmarks.opening FILE`.

A process of its own for each opening, as it is for a user, and because only a fresh one shows the memory.
"""

from __future__ import annotations

import logging
import os
import resource
import sys
import time

import msgspec
import trio

from greenroom import Jobs, Run, open_engine

jobs = Jobs()


class Opening(msgspec.Struct):
    """What it took, from the call of `open_engine` to the beginning of its block."""

    seconds: float
    computed: float  # seconds of processor time
    resident: int  # the most bytes of memory that the process ever had


@jobs.job("nothing")
async def nothing(run: Run) -> None:
    pass


async def main(path: str) -> None:
    start, computed = time.perf_counter(), time.process_time()
    async with open_engine(jobs, store=f"sqlite:///{path}", max_concurrent=100):
        opening = Opening(
            time.perf_counter() - start,
            time.process_time() - computed,
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        )
        os.write(sys.stdout.fileno(), msgspec.json.encode(opening))
        os._exit(0)  # leaving would only commit what has begun to execute meanwhile


if __name__ == "__main__":
    logging.getLogger("greenroom").setLevel(logging.ERROR)
    trio.run(main, sys.argv[1])
