"""One load on an engine of the version that is imported: `python -m tests.benchmarks.loads LOAD`.

The load and the result are JSON. Each load has its own process, so that none inherits the memory of another,
and so that versions can alternate. The module uses only names that older versions have, too.
"""

from __future__ import annotations

import gc
import logging
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec
import trio

import greenroom
from greenroom import Engine, Ticket, open_engine
from greenroom.persistence.migrating import upgrade

from . import memory
from .memory import garbage_collections, jobs


class Load(msgspec.Struct, frozen=True):
    """A load. `steady`: each client repeatedly submits a run on a new handle and waits for its result.
    `reused`: the same, but each client always uses its own handle; `bare`: `reused` with bare channels.
    `burst`: the clients submit all their runs, each on a new handle, and then wait for them. `backlog`: all
    runs are queued before the first of them starts; repeated `times` times. `alone`: one run at a time."""

    kind: Literal["steady", "reused", "bare", "burst", "backlog", "alone"]
    store: str = "memory"  # or "sqlite", or the address of an empty database
    runs: int = 1
    clients: int = 1
    limit: int = 100
    times: int = 1


class Took(msgspec.Struct, frozen=True):
    """The cost: seconds per run. `median` is the median of single runs, if they execute one at a time."""

    version: str  # the folder from which it was imported
    passed: float
    computed: float  # processor time, of all threads
    collecting: float  # the part of it that garbage collection took
    median: float = 0.0


class Stopwatch:
    """Measures a block: elapsed time, processor time, and the part of garbage collection."""

    def __enter__(self) -> Stopwatch:
        gc.collect()
        self._watch = garbage_collections()
        self._collections = self._watch.__enter__()
        self._start, self._computed = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *error: object) -> None:
        self.passed = time.perf_counter() - self._start
        self.computed = time.process_time() - self._computed
        self._watch.__exit__(None, None, None)
        self.collecting = sum(self._collections)

    def took(self, runs: int, median: float = 0.0) -> Took:
        passed, computed, collecting = self.passed / runs, self.computed / runs, self.collecting / runs
        return Took(version(), passed, computed, collecting, median)


def version() -> str:
    """The folder that the package was imported from."""
    return str(Path(greenroom.__file__).parents[1])


async def carry_out(load: Load, store: str) -> Took:
    async with open_engine(jobs, store=store, max_concurrent=load.limit) as engine:
        if load.kind == "alone":
            return await one_at_a_time(engine, load.runs)
        apply = burst if load.kind == "burst" else steady
        await apply(engine, load.clients, max(1, load.runs // 4), "first")  # create what is created only once
        with Stopwatch() as watch:
            await apply(engine, load.clients, load.runs, "then")
        return watch.took(load.runs)


async def steady(engine: Engine, clients: int, runs: int, name: str) -> None:
    async def client(first: int) -> None:
        for number in range(first, runs, clients):
            ticket = await engine.submit("nothing", handle=f"{name} {number}")
            await ticket.result()

    async with trio.open_nursery() as nursery:
        for first in range(clients):
            nursery.start_soon(client, first)


async def burst(engine: Engine, clients: int, runs: int, name: str) -> None:
    tickets: list[Ticket] = []

    async def client(first: int) -> None:
        for number in range(first, runs, clients):
            tickets.append(await engine.submit("nothing", handle=f"{name} {number}"))

    async with trio.open_nursery() as nursery:
        for first in range(clients):
            nursery.start_soon(client, first)
    for ticket in tickets:
        await ticket.result()


async def one_at_a_time(engine: Engine, runs: int) -> Took:
    single: list[float] = []
    await steady(engine, 1, runs // 4, "first")
    with Stopwatch() as watch:
        for _ in range(runs):
            start = time.perf_counter()
            ticket = await engine.submit("nothing", handle="handle")
            await ticket.result()
            single.append(time.perf_counter() - start)
    return watch.took(runs, median(single))


def beside_channels(load: Load) -> Took:
    """Execute a load that the benchmark `memory` implements."""
    memory.HANDLES, memory.RUNS, memory.MAX_CONCURRENT = load.clients, load.runs, load.limit
    start = time.perf_counter()
    rate = trio.run(memory.run_bare) if load.kind == "bare" else trio.run(memory.run_engine, False)
    return Took(version(), (time.perf_counter() - start) / load.runs, 1 / rate, 0.0)


def drain(load: Load) -> Took:
    """Drain several backlogs; returns the medians."""
    memory.MAX_CONCURRENT = load.limit
    drained = [trio.run(memory.queue_and_drain, load.runs) for _ in range(load.times)]
    passed = median(one.drained_in for one in drained) / load.runs
    computed = median(one.drained for one in drained) / load.runs
    collecting = median(one.collecting for one in drained) / load.runs
    return Took(version(), passed, computed, collecting)


def main(load: Load) -> Took:
    if load.kind in ("bare", "reused"):
        return beside_channels(load)
    if load.kind == "backlog":
        return drain(load)
    if load.store == "memory":
        return trio.run(carry_out, load, "memory:")
    if load.store != "sqlite":
        trio.run(upgrade, load.store)
        return trio.run(carry_out, load, load.store)
    with tempfile.TemporaryDirectory(prefix="greenroom-") as folder:
        return trio.run(carry_out, load, f"sqlite:///{folder}/engine.db")


if __name__ == "__main__":
    logging.getLogger("greenroom").setLevel(logging.ERROR)
    took = main(msgspec.json.decode(sys.argv[1], type=Load))
    sys.stdout.buffer.write(msgspec.json.encode(took))
