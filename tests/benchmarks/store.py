"""Durable runs, compared with the engine in memory and bare sqlite3: throughput, latency, opening, big files.

SQLite syncs every commit to the disk (`synchronous=FULL`), so time is elapsed time, and the disk of the
temporary folder matters as much as the engine. The compared programs alternate in one execution, and medians
are taken. The lower bound is bare sqlite3, which writes the same rows in batches of the same size. On
servers, round trips are counted.
"""

from __future__ import annotations

import gc
import logging
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median, quantiles

import msgspec
import pytest
import trio

from greenroom import open_engine
from greenroom.persistence.migrating import upgrade
from greenroom.persistence.sqlstore import SqlStore
from greenroom.persistence.store import Store
from greenroom.protocol.states import Status
from tests.servers import MariaDB, PostgreSQL
from tests.stores.story import begin, created, moved
from tests.stores.test_round_trips import counted

from .bare import Floor, RecordingStore, fill, statements_of
from .figures import Figure
from .memory import jobs
from .opening import Opening

HANDLES = 1_000
RUNS = 10 * HANDLES  # in each round
ROUNDS = 5
MAX_CONCURRENT = 100
ALONE = 400  # runs one at a time, in each round
QUEUED = 100_000
FINISHED = 1_000_000
BATCHES = (10, 1_000)  # runs in a batch

QUICK = {"ROUNDS": 3, "FINISHED": 100_000}


def measure() -> Iterator[Figure]:
    """All figures."""
    logging.getLogger("greenroom").setLevel(logging.ERROR)
    for measured in (measure_throughput, measure_latency, measure_opening, measure_past):
        with tempfile.TemporaryDirectory(prefix="greenroom-") as folder:
            yield from measured(Path(folder))
    yield from measure_round_trips()


# Throughput.


class Pace(msgspec.Struct):
    """The throughput: runs per elapsed second, and per second of processor time."""

    rate: float
    computed: float


def measure_throughput(folder: Path) -> Iterator[Figure]:
    memory: list[Pace] = []
    durable: list[Pace] = []
    floor: list[float] = []
    sizes: list[int] = []
    for number in range(ROUNDS):
        store = RecordingStore(f"sqlite:///{folder}/engine{number}.db")
        turns = [
            lambda: memory.append(trio.run(run_clients, "memory:")),
            lambda store=store: durable.append(trio.run(run_clients, store)),
        ]
        for turn in turns if number % 2 else reversed(turns):  # so that no side is always the first
            turn()
        floor.append(write_again(store, folder / f"floor{number}.db"))
        sizes += [len(batch.events) for batch in store.batches]
        for file in folder.iterdir():
            file.unlink()
    yield Figure(f"in memory, {HANDLES:,} clients", median(pace.rate for pace in memory), "runs/s")
    yield Figure("the same, durable on SQLite", median(pace.rate for pace in durable), "runs/s")
    pairs = list(zip(durable, memory, strict=True))
    yield Figure(
        "durable / in memory",
        median(one.rate / other.rate for one, other in pairs),
        "",
        ">=",
        0.4,
        note=f"by processor time {median(one.computed / other.computed for one, other in pairs):.2g}; "
        f"{mean(sizes):.0f} events in a commit",
    )
    yield Figure("the floor: the same rows by bare sqlite3", median(floor), "runs/s")
    ratio = median(pace.rate / bare for pace, bare in zip(durable, floor, strict=True))
    yield Figure("durable / the floor", ratio, "")


async def run_clients(store: str | Store) -> Pace:
    """Each client repeatedly submits on its own handle and waits for the result."""
    gc.collect()
    async with open_engine(jobs, store=store, max_concurrent=MAX_CONCURRENT) as engine:

        async def client(handle: str) -> None:
            for _ in range(RUNS // HANDLES):
                ticket = await engine.submit("nothing", handle=handle)
                await ticket.result()

        start, computed = time.perf_counter(), time.process_time()
        async with trio.open_nursery() as nursery:
            for number in range(HANDLES):
                nursery.start_soon(client, f"handle {number}")
        return Pace(RUNS / (time.perf_counter() - start), RUNS / (time.process_time() - computed))


def write_again(store: RecordingStore, path: Path) -> float:
    """Runs per second if only their rows are written."""
    groups = [statements_of(batch) for batch in store.batches]
    floor = Floor(path)
    took = sum(floor.write(group) for group in groups)
    floor.close()
    return RUNS / took


# One run at a time.


class Alone(msgspec.Struct):
    """Runs one at a time. Seconds."""

    runs: list[float]
    commits: list[float]  # of the same rows, by bare sqlite3
    computed: float  # processor time of one run
    commits_per_run: float


def measure_latency(folder: Path) -> Iterator[Figure]:
    rounds = [measure_alone(folder / str(number)) for number in range(ROUNDS)]
    for name, part, most in (("p50", 0.5, 2.8), ("p99", 0.99, 12)):
        run = median(percentile(one.runs, part) for one in rounds)
        bare = median(percentile(one.commits, part) for one in rounds)
        yield Figure(f"from submit to result, one at a time, {name}", run * 1e3, "ms")
        yield Figure(f"one bare commit, {name}", bare * 1e3, "ms")
        ratio = median(percentile(one.runs, part) / percentile(one.commits, part) for one in rounds)
        note = ""
        if name == "p50":
            computed = median(one.computed for one in rounds) * 1e3
            commits = median(one.commits_per_run for one in rounds)
            note = f"{commits:.2g} commits for a run, and {computed:.2g} ms of processor time"
        yield Figure(f"from submit to result / one bare commit, {name}", ratio, "", "<=", most, note=note)


def measure_alone(path: Path) -> Alone:
    """After each run, bare sqlite3 writes the same rows: so a disk that is slow for a while affects both
    equally."""
    floor = Floor(path.with_suffix(".floor"))
    alone = trio.run(run_alone, RecordingStore(f"sqlite:///{path}.db"), floor)
    floor.close()
    return alone


async def run_alone(store: RecordingStore, floor: Floor) -> Alone:
    gc.collect()
    alone = Alone([], [], 0.0, 0.0)
    async with open_engine(jobs, store=store, max_concurrent=MAX_CONCURRENT) as engine:
        for batch in store.batches:
            floor.write(statements_of(batch))
        for _ in range(ALONE):
            store.batches.clear()
            start, computed = time.perf_counter(), time.process_time()
            ticket = await engine.submit("nothing", handle="handle")
            await ticket.result()
            alone.runs.append(time.perf_counter() - start)
            alone.computed += (time.process_time() - computed) / ALONE
            alone.commits += [floor.write(statements_of(batch)) for batch in store.batches]
    alone.commits_per_run = len(alone.commits) / ALONE
    return alone


def percentile(values: list[float], part: float) -> float:
    """The value below which this fraction of all values is."""
    return quantiles(values, n=100, method="inclusive")[round(part * 100) - 1]


# Opening.


def measure_opening(folder: Path) -> Iterator[Figure]:
    fill(folder / "queued.db", jobs, QUEUED, finished=False)
    openings = [open_copy(folder / "queued.db") for _ in range(ROUNDS)]
    name = f"opening a store with {QUEUED:,} queued runs"
    computed = median(opening.computed for opening in openings)
    yield Figure(
        name,
        median(opening.seconds for opening in openings),
        "s",
        "<=",
        5,
        note=f"{computed:.2g} s of processor time; the file is in the system's cache",
    )
    resident = max(opening.resident for opening in openings)
    yield Figure(f"{name}: memory", resident / 1e9, "GB", "<=", 1.2)


def open_copy(path: Path) -> Opening:
    """Open a copy of the file, because opening changes a file."""
    copy = path.with_suffix(".copy")
    shutil.copyfile(path, copy)
    try:
        return open_file(copy)
    finally:
        for left in copy.parent.glob(f"{copy.name}*"):
            left.unlink()


def open_file(path: Path) -> Opening:
    """Open it in a separate process."""
    command = [sys.executable, "-m", f"{__package__}.opening", str(path)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    return msgspec.json.decode(done.stdout, type=Opening)


# Files with many finished runs.


def measure_past(folder: Path) -> Iterator[Figure]:
    path = folder / "past.db"
    fill(path, jobs, FINISHED, finished=True)
    size = path.stat().st_size
    with_past: list[Pace] = []
    without: list[Pace] = []
    turns = [
        lambda: with_past.append(trio.run(run_clients, f"sqlite:///{path}")),
        lambda: without.append(trio.run(run_clients, f"sqlite:///{folder}/{len(without)}.db")),
    ]
    for number in range(ROUNDS):
        for turn in turns if number % 2 else reversed(turns):
            turn()
    pairs = list(zip(with_past, without, strict=True))
    yield Figure(
        f"with {FINISHED:,} finished runs in the file / with none",
        median(one.rate / other.rate for one, other in pairs),
        "",
        ">=",
        0.8,
        note=f"{size / 1e9:.2g} GB; "
        f"by processor time {median(one.computed / other.computed for one, other in pairs):.2g}",
    )
    opening = open_file(path)
    note = f"{opening.resident / 1e6:.0f} MB of memory"
    yield Figure(f"opening a store with {FINISHED:,} finished runs", opening.seconds, "s", note=note)


# Servers.


def measure_round_trips() -> Iterator[Figure]:
    for kind, name in ((PostgreSQL, "PostgreSQL"), (MariaDB, "MariaDB")):
        try:
            server = kind()
        except pytest.skip.Exception as error:
            print(error, file=sys.stderr)
            continue
        try:
            server.initialize()
            server.start()
            trips = trio.run(count_round_trips, server.fresh_database())
        finally:
            server.close()
        few, many = BATCHES
        for step, counts in trips.items():
            yield Figure(
                f"{name}: round trips for a batch of {many:,} runs that {step}",
                counts[many],
                "",
                "<=",
                counts[few] + 2,
                note=f"{counts[few]} for {few} runs; this includes the checks of the pool",
            )


async def count_round_trips(url: str) -> dict[str, dict[int, int]]:
    """The round trips by the content of the batch and by its size."""
    await upgrade(url)
    took: dict[str, dict[int, int]] = {"are queued": {}, "start": {}, "end": {}}
    with counted(url) as (watched, turns):
        store = SqlStore(watched)
        story = await begin(store)
        for size in BATCHES:
            queued = [created(f"{size:08}{n:024}", place=n) for n in range(size)]
            running = [moved(event, Status.RUNNING, attempt=1, interactive=True) for event in queued]
            ended = [moved(event, Status.SUCCEEDED, result=None) for event in running]
            for step, events in zip(took, (queued, running, ended), strict=True):
                before = turns.count
                await story.tell(*events)
                took[step][size] = turns.count - before
        await store.close()
    return took
