"""The engine in memory, compared with bare trio channels: throughput, long queues, memory, idle subscribers.

Everything executes in one process. The jobs do nothing, so only the engine is measured. All settings are the
defaults, including garbage collection, with one exception: warnings are not logged, because each run of a
long queue would cause one after two seconds.

Nothing here waits for other programs, so time is the processor time of this process. On an idle machine that
is the elapsed time (the last figure is the ratio of the two), and on a busy machine it is nearly the same.
The compared programs alternate, and medians are taken.
"""

from __future__ import annotations

import gc
import logging
import math
import os
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import msgspec
import trio

from greenroom import Engine, Jobs, Run, Ticket, open_engine

from .figures import Figure

HANDLES = 1_000
RUNS = 10 * HANDLES  # in each round
ROUNDS = 5
MAX_CONCURRENT = 100
SHORT, LONG = 1_000, 100_000
SHORT_TIMES = 5  # before the long one, and as many again after it
TRACED = 5_000
IDLE_RUNS = 3_000

QUICK = {"ROUNDS": 3, "LONG": 20_000, "SHORT_TIMES": 3}

clock = time.process_time
jobs = Jobs()


@jobs.job("nothing")
async def nothing(run: Run) -> None:
    pass


def measure() -> Iterator[Figure]:
    """All figures. The queues come first: only a fresh process shows how much memory they take."""
    logging.getLogger("greenroom").setLevel(logging.ERROR)
    start, computed = time.perf_counter(), clock()
    yield from measure_queue()
    yield from measure_throughput()
    yield from measure_subscriber_memory()
    share = (clock() - computed) / (time.perf_counter() - start)
    yield Figure(
        "processor time / time that passed", share, "", note="below 1: other programs used the processor, too"
    )


# A long queue and a short one.


def measure_queue() -> Iterator[Figure]:
    short = [trio.run(queue_and_drain, SHORT) for _ in range(SHORT_TIMES)]
    long = trio.run(queue_and_drain, LONG)
    short += [trio.run(queue_and_drain, SHORT) for _ in range(SHORT_TIMES)]
    drained = {SHORT: median(one.drained for one in short) / SHORT, LONG: long.drained / LONG}
    submitted = {SHORT: median(one.submitted for one in short) / SHORT, LONG: long.submitted / LONG}
    for count, seconds in drained.items():
        yield Figure(f"cost of a run, {count:,} queued", seconds * 1e6, "µs")
    yield Figure(
        "cost of a run in the long queue / in the short one",
        drained[LONG] / drained[SHORT],
        "",
        "<=",
        1.2,
        note=f"of the former, Python's garbage collection took {long.collecting / LONG * 1e6:.0f} µs",
    )
    for count, seconds in submitted.items():
        yield Figure(f"time per submit, up to {count:,} queued", seconds * 1e6, "µs")
    yield Figure(
        f"memory per queued run with its own handle, {LONG:,} queued",
        long.resident / LONG / 1024,
        "KB",
        "<=",
        10,
        note="what the process grew by; " + trio.run(what_holds_memory, TRACED),
    )


class Backlog(msgspec.Struct):
    """The cost of queueing and draining."""

    submitted: float  # seconds
    drained: float  # seconds
    drained_in: float  # elapsed seconds of the draining
    collecting: float  # seconds of the draining that garbage collection took
    resident: int  # bytes by which the queue made the process grow


async def queue_and_drain(count: int) -> Backlog:
    """Submit runs on as many handles to a paused engine, then open it and wait for them all."""
    gc.collect()
    before = resident()
    async with open_engine(jobs, store="memory:", max_concurrent=0) as engine:
        start = clock()
        tickets = await submit_all(engine, count)
        submitted = clock() - start
        grown = resident() - before
        with garbage_collections() as collecting:
            start, began = clock(), time.perf_counter()
            await engine.set_max_concurrent(MAX_CONCURRENT)
            for ticket in tickets:
                await ticket.result()
            drained, drained_in = clock() - start, time.perf_counter() - began
    return Backlog(submitted, drained, drained_in, sum(collecting), grown)


@contextmanager
def garbage_collections() -> Iterator[list[float]]:
    """The seconds that each garbage collection took, while the block lasts."""
    took: list[float] = []
    start = 0.0

    def note(phase: str, _: object) -> None:
        nonlocal start
        if phase == "start":
            start = clock()
        else:
            took.append(clock() - start)

    gc.callbacks.append(note)
    try:
        yield took
    finally:
        gc.callbacks.remove(note)


async def submit_all(engine: Engine, count: int, handle: str = "handle") -> list[Ticket]:
    """Submit from many concurrent tasks, as a server does."""
    tickets: list[Ticket] = []

    async def client(first: int) -> None:
        for number in range(first, count, HANDLES):
            tickets.append(await engine.submit("nothing", handle=f"{handle} {number}"))

    async with trio.open_nursery() as nursery:
        for first in range(min(count, HANDLES)):
            nursery.start_soon(client, first)
    return tickets


def resident() -> int:
    """Bytes of memory that the process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def what_holds_memory(count: int) -> str:
    """The memory of a queued run by the module that allocated it, traced in a smaller queue."""
    async with open_engine(jobs, store="memory:", max_concurrent=0) as engine:
        await submit_all(engine, HANDLES, "earlier")  # so that what is created once exists already
        tracemalloc.start()
        tickets = await submit_all(engine, count)
        gc.collect()
        held = tracemalloc.take_snapshot()
        tracemalloc.stop()
        await engine.clear_lane("main")
    del tickets
    sizes: defaultdict[str, int] = defaultdict(int)
    for statistic in held.statistics("filename"):
        path = Path(statistic.traceback[0].filename)
        sizes["trio" if "trio" in path.parts else path.stem] += statistic.size
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:6]
    parts = ", ".join(f"{name} {size / count / 1024:.2g}" for name, size in largest)
    return f"by the module that allocated it, KB: {parts}"


# Throughput.


def measure_throughput() -> Iterator[Figure]:
    bare, plain, followed = [], [], []
    turns = [
        lambda: bare.append(trio.run(run_bare)),
        lambda: plain.append(trio.run(run_engine, False)),
        lambda: followed.append(trio.run(run_engine, True)),
    ]
    for number in range(ROUNDS):
        for turn in turns if number % 2 else reversed(turns):  # so that no side is always the first
            turn()
    yield Figure("bare trio channels, 8 hops for a run there and back", median(bare), "runs/s")
    yield Figure("the engine", median(plain), "runs/s")
    ratio = median(engine / channels for engine, channels in zip(plain, bare, strict=True))
    yield Figure("the engine / bare channels", ratio, "", ">=", 0.45)
    ratio = median(one / other for one, other in zip(followed, plain, strict=True))
    yield Figure("with a subscriber that never reads / without", ratio, "", ">=", 0.9)


async def run_engine(subscribed: bool) -> float:
    """Runs per second: each client repeatedly submits on its own handle and waits for the result."""
    gc.collect()
    async with open_engine(jobs, store="memory:", max_concurrent=MAX_CONCURRENT) as engine:
        subscriber = engine.events() if subscribed else None

        async def client(handle: str) -> None:
            for _ in range(RUNS // HANDLES):
                ticket = await engine.submit("nothing", handle=handle)
                await ticket.result()

        start = clock()
        async with trio.open_nursery() as nursery:
            for number in range(HANDLES):
                nursery.start_soon(client, f"handle {number}")
        took = clock() - start
        del subscriber
    return RUNS / took


async def run_bare() -> float:
    """The same with trio's memory channels only. A run passes from its client to the supervisor, its handle,
    the lane and its own task, and back the same way; all tasks exist from the start."""
    gc.collect()
    to_supervisor, supervisor_gets = trio.open_memory_channel[int](math.inf)
    to_lane, lane_gets = trio.open_memory_channel[int](math.inf)
    to_handle, handle_gets = _channels()
    to_run, run_gets = _channels()
    to_client, client_gets = _channels()
    # On the way back, ~n represents run n.

    async def supervisor() -> None:
        async for n in supervisor_gets:
            (to_handle[n] if n >= 0 else to_client[~n]).send_nowait(n)

    async def handle(n: int) -> None:
        async for name in handle_gets[n]:
            (to_lane if name >= 0 else to_supervisor).send_nowait(name)

    async def lane() -> None:
        async for n in lane_gets:
            (to_run[n] if n >= 0 else to_handle[~n]).send_nowait(n)

    async def run(n: int) -> None:
        async for name in run_gets[n]:
            to_lane.send_nowait(~name)

    async def client(n: int) -> None:
        for _ in range(RUNS // HANDLES):
            to_supervisor.send_nowait(n)
            await client_gets[n].receive()

    async with trio.open_nursery() as actors:
        actors.start_soon(supervisor)
        actors.start_soon(lane)
        for n in range(HANDLES):
            actors.start_soon(handle, n)
            actors.start_soon(run, n)
        start = clock()
        async with trio.open_nursery() as clients:
            for n in range(HANDLES):
                clients.start_soon(client, n)
        took = clock() - start
        actors.cancel_scope.cancel()
    return RUNS / took


def _channels() -> tuple[list[trio.MemorySendChannel[int]], list[trio.MemoryReceiveChannel[int]]]:
    pairs = [trio.open_memory_channel[int](math.inf) for _ in range(HANDLES)]
    return [send for send, _ in pairs], [receive for _, receive in pairs]


# A subscriber that never reads.


def measure_subscriber_memory() -> Iterator[Figure]:
    trio.run(traced_growth, False)  # create what is created only once
    without, with_one = trio.run(traced_growth, False), trio.run(traced_growth, True)
    yield Figure(
        f"memory of a subscriber that never reads, {IDLE_RUNS:,} runs later",
        (with_one - without) / 1024,
        "KB",
        "<=",
        32,
        note=f"a list of the events alone would take {3 * IDLE_RUNS * 8 / 1024:,.0f} KB",
    )


async def traced_growth(subscribed: bool) -> int:
    """Bytes by which an engine grows over some runs, more than its ring of events holds."""
    async with open_engine(jobs, store="memory:", max_concurrent=MAX_CONCURRENT) as engine:
        gc.collect()
        tracemalloc.start()
        subscriber = engine.events() if subscribed else None
        for _ in range(IDLE_RUNS):  # one after the other, so that it is the same each time
            ticket = await engine.submit("nothing", handle="handle", warn_after=math.inf)
            await ticket.result()
        del ticket
        gc.collect()
        growth, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        del subscriber
    return growth
