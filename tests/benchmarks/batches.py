"""Batches, compared with the same runs as single submits: embedded and over a WebSocket, each in memory and
on SQLite.

The runs are only queued, because execution costs the same in both cases. Single submits are all made at once,
each by its own task; in addition, by a few clients that submit one run after the other. The compared programs
alternate in one execution, and the ratios are medians of the ratios of all rounds.

Cost is processor time from the first submit to the last reply, because that depends little on the load of the
machine. The client of the WebSocket does not follow the events; client and server have a process each, and
their processor times are added.
"""

from __future__ import annotations

import gc
import logging
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import trio

from greenroom import connect, open_engine
from greenroom.gateway.client import RunEngine

from .figures import Figure
from .memory import jobs
from .processes import Program

RUNS = 10_000
CLIENTS = 100
ROUNDS = 5

QUICK = {"ROUNDS": 3}

Load = Callable[[RunEngine], Awaitable[object]]


class Cost(msgspec.Struct, frozen=True):
    """Elapsed seconds, and seconds of processor time."""

    passed: float
    computed: float


def measure() -> Iterator[Figure]:
    """All figures."""
    logging.getLogger("greenroom").setLevel(logging.ERROR)
    yield from compare("in memory", lambda load: trio.run(embedded, "memory:", load), 3)
    yield from compare("SQLite", durable, 2)  # writing the rows costs the same in both cases
    yield from compare("over a WebSocket, in memory", over_websocket, 3)
    yield from compare("over a WebSocket, SQLite", durable_over_websocket, 3)


def compare(where: str, take: Callable[[Load], Cost], least: float) -> Iterator[Figure]:
    """The rates of a batch and of single submits, and their ratio. `take` returns the cost of a load."""
    took: dict[str, list[Cost]] = {"batch": [], "at once": [], "clients": []}
    loads: list[tuple[str, Load]] = [("batch", together), ("at once", at_once), ("clients", by_clients)]
    for number in range(ROUNDS):
        for name, load in loads if number % 2 else reversed(loads):  # so that no side is always the first
            took[name].append(take(load))

    def rate(name: str, what: str) -> Figure:
        passed = RUNS / median(one.passed for one in took[name])
        note = f"per second of processor time; {passed:,.0f} per second that passed"
        computed = median(one.computed for one in took[name])
        return Figure(f"{where}: {what}", RUNS / computed, "runs/s", note=note)

    def ratio(name: str, what: str) -> float:
        pairs = zip(took[name], took["batch"], strict=True)
        return median(getattr(single, what) / getattr(batch, what) for single, batch in pairs)

    def by_time(name: str) -> str:
        return f"by the time that passed, {ratio(name, 'passed'):.2g}"

    yield rate("batch", f"{RUNS:,} in one call")
    yield rate("at once", f"{RUNS:,} single submits at once")
    yield rate("clients", f"single submits by {CLIENTS} clients")
    name = f"{where}: one call / single submits"
    yield Figure(f"{name} at once", ratio("at once", "computed"), "", ">=", least, note=by_time("at once"))
    yield Figure(f"{name} by {CLIENTS} clients", ratio("clients", "computed"), "", note=by_time("clients"))


async def embedded(store: str, load: Load) -> Cost:
    async with open_engine(jobs, store=store, max_concurrent=0) as engine:
        return await cost(engine, load, time.process_time)


def durable(load: Load) -> Cost:
    with tempfile.TemporaryDirectory(prefix="greenroom-") as folder:
        return trio.run(embedded, f"sqlite:///{Path(folder)}/engine.db", load)


def over_websocket(load: Load, store: str = "memory:") -> Cost:
    with Program("serving", store) as server:
        return trio.run(of_client, server, load)


def durable_over_websocket(load: Load) -> Cost:
    with tempfile.TemporaryDirectory(prefix="greenroom-") as folder:
        return over_websocket(load, f"sqlite:///{Path(folder)}/engine.db")


async def of_client(server: Program, load: Load) -> Cost:
    async with connect(f"ws://127.0.0.1:{server.port}", follow=False) as client:
        await client.set_max_concurrent(0)
        return await cost(client, load, lambda: time.process_time() + server.computed)


async def cost(engine: RunEngine, load: Load, computed: Callable[[], float]) -> Cost:
    await engine.submit_many(runs("first", 2))  # create what is created only once
    gc.collect()
    start, before = time.perf_counter(), computed()
    await load(engine)
    return Cost(time.perf_counter() - start, computed() - before)


def runs(name: str, count: int) -> Any:
    return [{"job": "nothing", "handle": f"{name} {number}"} for number in range(count)]


async def together(engine: RunEngine) -> None:
    await engine.submit_many(runs("then", RUNS))


async def at_once(engine: RunEngine) -> None:
    await submit_by(engine, RUNS)


async def by_clients(engine: RunEngine) -> None:
    await submit_by(engine, CLIENTS)


async def submit_by(engine: RunEngine, clients: int) -> None:
    async def client(first: int) -> None:
        for number in range(first, RUNS, clients):
            await engine.submit("nothing", handle=f"then {number}")

    async with trio.open_nursery() as nursery:
        for first in range(clients):
            nursery.start_soon(client, first)
