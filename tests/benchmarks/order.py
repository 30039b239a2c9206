"""The cost of a start in a lane with priorities and fairness, compared with a plain lane.

Both lanes are drained from a long queue in the same process, in memory, several times in turn. Time is the
processor time of this process.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import trio

from greenroom import Jobs, Run, open_engine

from .figures import Figure

QUEUED = 100_000
KEYS = 10_000
ROUNDS = 3
MAX_CONCURRENT = 100
CLIENTS = 1_000

QUICK = {"QUEUED": 20_000, "KEYS": 2_000, "ROUNDS": 2}

PRIORITIES = (0, 0, 0, 1, 5, -3)

clock = time.process_time
jobs = Jobs()


@jobs.job("nothing", lane="work")
async def nothing(run: Run, params: dict[str, Any]) -> None:
    pass


def measure() -> Iterator[Figure]:
    logging.getLogger("greenroom").setLevel(logging.ERROR)
    plain: list[float] = []
    ruled: list[float] = []
    for _ in range(ROUNDS):
        plain.append(trio.run(drain, {"limit": None}, False))
        ruled.append(trio.run(drain, {"limit": None, "fair_by": "tenant"}, True))
    yield Figure(f"cost of a run of {QUEUED:,} queued, plain lane", median(plain) * 1e6, "µs")
    name = f"the same with fairness over {KEYS:,} keys and 5 priorities"
    yield Figure(name, median(ruled) * 1e6, "µs")
    yield Figure("the latter / the former", median(ruled) / median(plain), "", "<=", 1.5)


async def drain(lane: dict[str, Any], ruled: bool) -> float:
    """Queue runs in a paused lane, then open it and wait for them all. Returns the seconds per run."""
    gc.collect()
    async with open_engine(
        jobs, max_concurrent=MAX_CONCURRENT, lanes={"work": lane}, store="memory:"
    ) as engine:
        await engine.pause_lane("work")
        tickets = []

        async def client(first: int) -> None:
            for number in range(first, QUEUED, CLIENTS):
                params = {"tenant": f"tenant {number * 7919 % KEYS}"}
                priority = PRIORITIES[number % len(PRIORITIES)] if ruled else None
                ticket = await engine.submit(
                    "nothing", handle=f"handle {number}", params=params, priority=priority
                )
                tickets.append(ticket)

        async with trio.open_nursery() as nursery:
            for first in range(min(CLIENTS, QUEUED)):
                nursery.start_soon(client, first)
        start = clock()
        await engine.resume_lane("work")
        for ticket in tickets:
            await ticket.result()
        return (clock() - start) / QUEUED
