"""The cost of asyncio: submits and events in trio, in asyncio, and in asyncio on uvloop.

One caller submits runs one after the other. The engine is the same; in asyncio it is in a thread, so each
call switches threads twice. The rounds alternate, and the medians of all calls are compared.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import trio
import uvloop

import greenroom.aio
from greenroom import Jobs, Run, open_engine
from greenroom.gateway.client import RunEngine

from .figures import Figure

SUBMITS = 500  # in each round
EVENTS = 5_000  # in each round
ROUNDS = 5

QUICK = {"ROUNDS": 2}

MOST = 1.0
"""Milliseconds that a submit in asyncio may take longer than one in trio."""

jobs = Jobs()

Measured = Callable[[RunEngine], Awaitable[list[float]]]


@jobs.job("nothing")
async def nothing(run: Run) -> None:
    pass


def measure() -> Iterator[Figure]:
    """All figures."""
    logging.getLogger("greenroom").setLevel(logging.ERROR)
    for store in ("memory", "SQLite"):
        times = in_turns(store, submits)
        p50 = {loop: median(taken) * 1e3 for loop, taken in times.items()}
        for loop, taken in times.items():
            note = f"p99 {quantiles(taken, n=100)[98] * 1e3:.3g} ms"
            yield Figure(f"p50 of a submit, {store}, {loop}", p50[loop], "ms", note=note)
        for loop in ("asyncio", "uvloop"):
            yield Figure(f"longer than in trio, {store}, {loop}", p50[loop] - p50["trio"], "ms", "<=", MOST)
    for loop, taken in in_turns("memory", events).items():
        yield Figure(f"events to one reader, {loop}", 1 / median(taken), "/s")


def in_turns(store: str, measured: Measured) -> dict[str, list[float]]:
    """The measurements in each loop."""
    loops: dict[str, Callable[[str, Measured], list[float]]] = {
        "trio": in_trio,
        "asyncio": partial(in_asyncio, asyncio.new_event_loop),
        "uvloop": partial(in_asyncio, uvloop.new_event_loop),
    }
    times: dict[str, list[float]] = {loop: [] for loop in loops}
    for number in range(ROUNDS):
        for loop in loops if number % 2 else reversed(loops):
            with tempfile.TemporaryDirectory(prefix="greenroom-") as folder:
                url = "memory:" if store == "memory" else f"sqlite:///{Path(folder) / 'greenroom.db'}"
                times[loop] += loops[loop](url, measured)
    return times


def in_trio(store: str, measured: Measured) -> list[float]:
    async def main() -> list[float]:
        async with open_engine(jobs, store) as engine:
            return await measured(engine)

    return trio.run(main)


def in_asyncio(
    factory: Callable[[], asyncio.AbstractEventLoop], store: str, measured: Measured
) -> list[float]:
    async def main() -> list[float]:
        async with greenroom.aio.open_engine(jobs, store) as engine:
            return await measured(engine)

    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main())


async def submits(engine: RunEngine) -> list[float]:
    """Seconds that each submit took."""
    times = []
    for number in range(SUBMITS):
        begin = time.perf_counter()
        await engine.submit("nothing", handle=f"h{number}")
        times.append(time.perf_counter() - begin)
    return times


async def events(engine: RunEngine) -> list[float]:
    """Seconds that each event took, for a reader of events in the ring."""
    tickets: list[Any] = [await engine.submit("nothing", handle=f"h{n}") for n in range(EVENTS // 3)]
    for ticket in tickets:
        await ticket.result()
    last = (await engine.snapshot()).seq
    begin = time.perf_counter()
    async for event in engine.events(after=0):
        if event.seq == last:
            break
    return [(time.perf_counter() - begin) / last]
