"""Executors, compared with the engine's own process: jobs that compute, jobs that do nothing, memory.

Every round measures all sides, one after the other. All engines are open all the time, and an engine without
runs costs nothing. A rate is that of the fastest round: it depends least on what else the machine does.
Processor time is that of all threads of a process.

The jobs that compute need two processors; the others need two only for the executor to work at the same time
as its engine.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median

import msgspec
import trio

from greenroom import Engine, Jobs, Run, open_engine
from greenroom.gateway import GatewayConfig, Limits, open_gateway

from .figures import Figure
from .processes import processor_time

COMPUTING = 80  # runs in each round
CONCURRENT = 4  # of them, on two processors
RUNS = 2_000  # that do nothing, in each round
CLIENTS = 100
ALONE = 100  # runs one at a time, in each round
ROUNDS = 7

QUICK = {"ROUNDS": 3, "COMPUTING": 40, "RUNS": 1_000, "ALONE": 50}

SECONDS = 0.02
"""The processor time of a body that computes."""

_ATTACH_TIMEOUT = 60.0

jobs = Jobs()


@jobs.job("nothing")
async def nothing(run: Run) -> None:
    pass


@jobs.job("computes")
async def computes(run: Run) -> None:
    compute()


@jobs.job("computes in a thread")
def computes_in_thread(run: Run) -> None:
    compute()


def compute() -> None:
    """Use the processor for 20 ms."""
    end = time.thread_time() + SECONDS
    while time.thread_time() < end:
        pass


class Side(msgspec.Struct):
    """An engine, and what its runs cost in each round: elapsed seconds, and seconds of processor time of the
    engine's process and of its executor's, per run. `alone` are the seconds of single runs."""

    engine: Engine
    executor: int | None = None  # the id of its executor's process
    passed: list[float] = []
    computed: list[float] = []
    executing: list[float] = []
    alone: list[float] = []

    @property
    def rate(self) -> float:
        """Runs per second in the fastest round."""
        return 1 / min(self.passed)

    @property
    def p50(self) -> float:
        """Milliseconds from submit to result, of a single run."""
        return median(self.alone) * 1e3


def measure() -> Iterator[Figure]:
    """All figures."""
    logging.getLogger("greenroom").setLevel(logging.ERROR)
    yield from trio.run(measure_computing)
    for store in ("memory", "SQLite"):
        yield from trio.run(measure_nothing, store)
    yield from trio.run(measure_memory)


# Jobs that compute.


async def measure_computing() -> list[Figure]:
    figures = []
    async with (
        open_engine(jobs, "memory:", max_concurrent=CONCURRENT) as own,
        open_engine(jobs, "memory:", max_concurrent=CONCURRENT, executors=2) as children,
    ):
        for job, kind in (("computes", "async"), ("computes in a thread", "in threads")):
            sides = {"in-process": Side(own), "executors=2": Side(children)}
            for number in range(ROUNDS):
                for side in in_turns(sides, number):
                    await execute(side, job, COMPUTING, CONCURRENT)
            for name, side in sides.items():
                note = f"the bodies have used {side.rate * SECONDS:.2f} processors"
                figures.append(Figure(f"bodies of 20 ms, {kind}: {name}", side.rate, "runs/s", note=note))
            ratio = sides["executors=2"].rate / sides["in-process"].rate
            figures.append(Figure(f"bodies of 20 ms, {kind}: executors=2 / in-process", ratio, "", ">=", 1.7))
    return figures


# Jobs that do nothing.


async def measure_nothing(store: str) -> list[Figure]:
    async with sides_of(store) as sides:
        for side in sides.values():  # create what is created only once
            await execute(side, "nothing", RUNS // 4, CLIENTS)
        for side in sides.values():
            side.passed, side.computed, side.executing = [], [], []
        for number in range(ROUNDS):
            for side in in_turns(sides, number):
                await execute(side, "nothing", RUNS, CLIENTS)
                await execute_alone(side)
        return list(compare(store, sides))


def compare(store: str, sides: dict[str, Side]) -> Iterator[Figure]:
    own = sides["in-process"]
    for name, side in sides.items():
        note = f"processor time of a run: {min(side.computed) * 1e6:.0f} µs in the engine"
        if side.executor is not None:
            note += f", {min(side.executing) * 1e6:.0f} µs in the executor"
        yield Figure(f"{store}: {name}", side.rate, "runs/s", note=note)
    for name, side in sides.items():
        if side is own:
            continue
        required = name == "executors=1"
        yield Figure(
            f"{store}: {name} / in-process",
            side.rate / own.rate,
            "",
            ">=" if required else None,
            0.5 if required else None,
            note=f"by the engine's processor time {min(own.computed) / min(side.computed):.2g}",
        )
        yield Figure(
            f"{store}, one run at a time, p50: {name} - in-process",
            side.p50 - own.p50,
            "ms",
            "<=" if required else None,
            1.5 if required else None,
            note=f"{side.p50:.2f} ms, and {own.p50:.2f} ms in-process",
        )


@asynccontextmanager
async def sides_of(store: str) -> AsyncIterator[dict[str, Side]]:
    """An engine without executors, one with a child process, and one with an executor over a WebSocket."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="greenroom-")))

        def url(name: str) -> str:
            return "memory:" if store == "memory" else f"sqlite:///{folder / name}.db"

        own = await stack.enter_async_context(open_engine(jobs, url("own"), max_concurrent=CLIENTS))
        before = child_processes()
        child = await stack.enter_async_context(
            open_engine(jobs, url("child"), max_concurrent=CLIENTS, executors=1)
        )
        (local,) = child_processes() - before
        remote = await stack.enter_async_context(
            open_engine(jobs, url("remote"), max_concurrent=CLIENTS, executors=0)
        )
        limits = Limits(rate=1e9, burst=1_000_000_000)
        gateway = await stack.enter_async_context(open_gateway(remote, GatewayConfig(port=0, limits=limits)))
        process = await stack.enter_async_context(executor(gateway.port, folder, remote))
        yield {
            "in-process": Side(own),
            "executors=1": Side(child, local),
            "`greenroom executor`": Side(remote, process.pid),
        }


@asynccontextmanager
async def executor(port: int, folder: Path, engine: Engine) -> AsyncIterator[subprocess.Popen[bytes]]:
    """An executor over a WebSocket."""
    command = [sys.executable, "-m", "greenroom", "executor", f"{__name__}:jobs", "--slots", str(CLIENTS)]
    command += ["--url", f"ws://127.0.0.1:{port}", "--data-dir", str(folder), "--log-level", "error"]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[2])  # noqa: ASYNC220  # fast enough
    try:
        with trio.fail_after(_ATTACH_TIMEOUT):
            async for event in engine.events(after=0):
                if event.type == "executor_changed":
                    break
        yield process
    finally:
        process.kill()
        process.wait()


# Memory.


async def measure_memory() -> list[Figure]:
    before = child_processes()
    async with open_engine(jobs, "memory:", max_concurrent=CLIENTS, executors=2) as engine:
        await execute(Side(engine), "nothing", RUNS // 4, CLIENTS)
        uses = [memory(process) for process in child_processes() - before]
    shared = median(use["Rss"] for use in uses) - median(use["Pss"] for use in uses)
    return [
        Figure(
            "memory of a child process",
            median(use["Pss"] for use in uses) / 1024,
            "MB",
            note=f"with half of what two of them share; {shared / 1024:.3g} MB more without that",
        )
    ]


def memory(process: int) -> dict[str, int]:
    """The memory of a process, in KB: `Rss` is all of it; `Pss` contains shared pages in equal parts."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
    return {name: int(size) for name, size, _ in (line.replace(":", "").split() for line in lines)}


# Loads.


def in_turns(sides: dict[str, Side], number: int) -> list[Side]:
    """All sides, so that none is always the first."""
    order = list(sides.values())
    return order if number % 2 else order[::-1]


async def execute(side: Side, job: str, runs: int, clients: int) -> None:
    """Execute runs; each client submits one after the other."""

    async def client(first: int) -> None:
        for _ in range(first, runs, clients):
            ticket = await side.engine.submit(job, handle=f"handle {first}")
            await ticket.result()

    computed, executing = time.process_time(), executor_time(side)
    start = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for first in range(clients):
            nursery.start_soon(client, first)
    side.passed.append((time.perf_counter() - start) / runs)
    side.computed.append((time.process_time() - computed) / runs)
    side.executing.append((executor_time(side) - executing) / runs)


async def execute_alone(side: Side) -> None:
    """Execute one run at a time."""
    for _ in range(ALONE):
        start = time.perf_counter()
        ticket = await side.engine.submit("nothing", handle="handle")
        await ticket.result()
        side.alone.append(time.perf_counter() - start)


def executor_time(side: Side) -> float:
    return 0.0 if side.executor is None else processor_time(side.executor)


def child_processes() -> set[int]:
    """The processes that this one has started."""
    tasks = Path(f"/proc/{os.getpid()}/task")
    return {int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()}
