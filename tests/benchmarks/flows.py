"""Flows on SQLite: steps compared with plain runs, nodes with bare calls of their worker, and waiting flows.

SQLite syncs every commit to the disk. The compared programs alternate in one execution, and medians are
taken. The worker is `greenroom worker`, in its own process; the bare call uses the same HTTP client, over one
connection that is kept alive.
"""

from __future__ import annotations

import gc
import logging
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx
import trio

from greenroom import Engine, Jobs, open_engine
from greenroom.protocol.events import RunStateChanged
from greenroom.protocol.states import Status

from . import memory
from .figures import Figure
from .processes import Program

HANDLES = 1_000
STEPS = 10  # of each flow
RUNS = 5 * HANDLES  # plain ones, in each round
FLOWS = HANDLES
ROUNDS = 5
MAX_CONCURRENT = 100
CALLS = 300  # of the worker, in each round
WAITING = 10_000
SIGNALS = 300
BUSY = 10  # clients that submit plain runs at the same time

QUICK = {"ROUNDS": 3, "WAITING": 2_000}

jobs = Jobs()
jobs.job("nothing")(memory.nothing)


@jobs.function("same")
async def same(given: Any) -> Any:
    """Return the input: a function that costs almost nothing, to measure only the step."""
    return given


def measure() -> Iterator[Figure]:
    """All figures."""
    logging.getLogger("greenroom").setLevel(logging.ERROR)
    for measured in (measure_steps, measure_push, measure_waiting):
        with tempfile.TemporaryDirectory(prefix="greenroom-") as folder:
            yield from measured(Path(folder))


# Steps.


def chain(kind: dict[str, Any], length: int) -> dict[str, Any]:
    """A flow of equal nodes, one after the other."""
    node = kind | {"prep": {"input_key": "$params.given"}, "post": {"output_key": "result"}}
    return {
        "start": "1",
        "nodes": {str(number): node for number in range(1, length + 1)},
        "edges": [
            {"from": str(number), "action": "default", "to": str(number + 1)} for number in range(1, length)
        ],
    }


def measure_steps(folder: Path) -> Iterator[Figure]:
    plain: list[float] = []
    walked: list[float] = []
    for number in range(ROUNDS):
        turns = [
            lambda: plain.append(trio.run(run_plain, f"sqlite:///{folder}/engine.db")),
            lambda: walked.append(trio.run(run_flows, f"sqlite:///{folder}/engine.db")),
        ]
        for turn in turns if number % 2 else reversed(turns):  # so that no side is always the first
            turn()
            for file in folder.iterdir():
                file.unlink()
    yield Figure(f"plain durable runs, {HANDLES:,} clients", median(plain), "runs/s")
    yield Figure(f"steps of local functions, {STEPS} in a flow", median(walked), "steps/s")
    ratio = median(steps / runs for steps, runs in zip(walked, plain, strict=True))
    yield Figure("steps / plain runs", ratio, "", ">=", 0.5)


async def run_plain(store: str) -> float:
    """Each client submits on its own handle, waits for the result, and does so again: runs per second."""
    async with open_engine(jobs, store=store, max_concurrent=MAX_CONCURRENT) as engine:

        async def client(handle: str) -> None:
            for _ in range(RUNS // HANDLES):
                await (await engine.submit("nothing", handle=handle)).result()

        return RUNS / await _all_clients(client)


async def run_flows(store: str) -> float:
    """Each client does the same with flows: steps per second."""
    async with open_engine(jobs, store=store, max_concurrent=MAX_CONCURRENT) as engine:
        await engine.flows.publish("chain", chain({"kind": "local", "func": "same"}, STEPS))

        async def client(handle: str) -> None:
            for _ in range(FLOWS // HANDLES):
                ticket = await engine.flows.start("chain", handle=handle, params={"given": 1})
                await ticket.result()

        return FLOWS * STEPS / await _all_clients(client)


async def _all_clients(client: Any) -> float:
    gc.collect()
    start = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for number in range(HANDLES):
            nursery.start_soon(client, f"handle {number}")
    return time.perf_counter() - start


# A worker.


def measure_push(folder: Path) -> Iterator[Figure]:
    with Program("working") as worker:
        bare, called = trio.run(call_worker, f"sqlite:///{folder}/engine.db", worker.port)
    yield Figure("the bare call of a worker", median(bare) * 1000, "ms")
    yield Figure("a node that is executed by it, durable", median(called) * 1000, "ms")
    yield Figure("what the node adds", (median(called) - median(bare)) * 1000, "ms")


async def call_worker(store: str, port: int) -> tuple[list[float], list[float]]:
    """One call after the other, bare and by flows in turn: seconds for each."""
    bare: list[float] = []
    called: list[float] = []
    url = f"http://127.0.0.1:{port}"
    async with open_engine(jobs, store=store) as engine, httpx.AsyncClient(trust_env=False) as client:
        await engine.workers.register("worker", url, ["sum"])
        await engine.flows.publish("calls", chain({"kind": "executor", "service": "sum"}, STEPS))
        for _ in range(ROUNDS):
            for _ in range(CALLS):
                start = time.perf_counter()
                answer = await client.post(f"{url}/exec/sum", json={"input": [1, 2], "params": {}})
                assert answer.json()["result"] == 3
                bare.append(time.perf_counter() - start)
            await engine.workers.heartbeat("worker")
            for _ in range(CALLS // STEPS):
                start = time.perf_counter()
                ticket = await engine.flows.start("calls", params={"given": [1, 2]})
                await ticket.result()
                called.append((time.perf_counter() - start) / STEPS)
    return bare, called


# Waiting.


def measure_waiting(folder: Path) -> Iterator[Figure]:
    resident, delays, rate = trio.run(wait_and_signal, f"sqlite:///{folder}/engine.db")
    yield Figure(f"memory of a flow that waits, {WAITING:,} of them", resident / 1024, "KB", "<=", 15)
    p99 = quantiles(delays, n=100)[98] if len(delays) > 1 else delays[0]
    yield Figure("from a signal until its flow resumes, p50", median(delays) * 1000, "ms")
    yield Figure(
        "the same, p99", p99 * 1000, "ms", "<=", 50, note=f"during {rate:,.0f} plain durable runs per second"
    )


async def wait_and_signal(store: str) -> tuple[float, list[float], float]:
    """Bytes per waiting flow, seconds from each signal until its flow has a slot again, and plain runs per
    second at the same time. Exactly the flows that received a signal resume."""
    waits = {"kind": "wait_event", "params": {"signal_key": "$shared.flag"}}
    async with open_engine(jobs, store=store, max_concurrent=MAX_CONCURRENT, shutdown_timeout=0) as engine:
        await engine.flows.publish("waits", {"start": "w", "nodes": {"w": waits}, "edges": []})
        await _begin_to_wait(engine, WAITING // 20)  # what is created once does not count for a flow
        before = memory.resident()
        ids = await _begin_to_wait(engine, WAITING)
        resident = (memory.resident() - before) / WAITING
        delays, rate = await _signal_beside_load(engine, ids)
        _, still = await engine.flows.tasks(status="suspended")
        assert still == WAITING + WAITING // 20 - SIGNALS
        return resident, delays, rate


async def _begin_to_wait(engine: Engine, count: int) -> list[str]:
    ids: list[str] = []

    async def start() -> None:
        ids.append((await engine.flows.start("waits")).id)

    events = engine.events()
    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(start)
    waiting = 0
    while waiting < count:
        async for event in events:
            if isinstance(event, RunStateChanged) and event.reason == "signal":
                waiting += 1
                if waiting == count:
                    break
    gc.collect()
    return ids


async def _signal_beside_load(engine: Engine, ids: list[str]) -> tuple[list[float], float]:
    delays: list[float] = []
    done = 0

    async def load(handle: str) -> None:
        nonlocal done
        while True:
            await (await engine.submit("nothing", handle=handle)).result()
            done += 1

    async with trio.open_nursery() as nursery:
        for number in range(BUSY):
            nursery.start_soon(load, f"busy {number}")
        events, began = engine.events(), time.perf_counter()
        for id in random.Random(0).sample(ids, SIGNALS):
            start = time.perf_counter()
            await engine.signal(id, "flag", True)
            async for event in events:
                if isinstance(event, RunStateChanged) and event.run == id and event.to is Status.RUNNING:
                    break
            delays.append(time.perf_counter() - start)
        rate = done / (time.perf_counter() - began)
        nursery.cancel_scope.cancel()
    return delays, rate
