"""Open the store in a file, print the cost, and exit immediately: `python -m tests.benchmarks.opening FILE`.

Each opening has its own process, as in production, and because only a new process shows the memory.
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
    """The cost, from the call of `open_engine` to the start of its block."""

    seconds: float
    computed: float  # seconds of processor time
    resident: int  # the maximum memory of the process, in bytes


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
        os._exit(0)  # an orderly exit would also commit the starts of runs


if __name__ == "__main__":
    logging.getLogger("greenroom").setLevel(logging.ERROR)
    trio.run(main, sys.argv[1])
