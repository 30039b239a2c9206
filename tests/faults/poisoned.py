"""The program that is killed by one of its runs: an engine on a file, with a poison run and healthy ones."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from pathlib import Path
from typing import Any

import trio

from greenroom import Engine, Jobs, Run, Ticket, open_engine
from greenroom.errors import GreenroomError, RunEnded
from greenroom.protocol.events import RunStateChanged
from greenroom.protocol.states import Status

KILLED = 70
"""The exit code of a process that its poison run has killed."""

HEALTHY = 3
_PATIENCE = 60.0

jobs = Jobs()
waits = threading.Event()  # the poison run waits without its slot
begun: list[str] = []  # the healthy runs
gone = trio.Event()  # the poison run has ended


def _kill() -> None:
    os._exit(KILLED)


def _kill_while_it_waits() -> None:
    waits.wait()
    _kill()


@jobs.job("executing", resumable=True)
async def executing(run: Run, params: dict[str, Any]) -> None:
    _kill()


@jobs.job("waiting", resumable=True)
async def waiting(run: Run, params: dict[str, Any]) -> None:
    threading.Thread(target=_kill_while_it_waits, daemon=True).start()
    while True:
        await run.next_message(release_slot=True)


@jobs.job("saving", resumable=True)
async def saving(run: Run, params: dict[str, Any]) -> None:
    for number in range(3):
        await run.save_checkpoint(number)
    _kill()


@jobs.job("healthy", resumable=True, lane="healthy")
async def healthy(run: Run, params: dict[str, Any]) -> str:
    begun.append(run.id)
    await gone.wait()
    return "done"


async def _follow(engine: Engine, poison: str, after: int) -> None:
    async for event in engine.events(after=after):
        if isinstance(event, RunStateChanged) and event.run == poison and event.to is Status.SUSPENDED:
            waits.set()


async def _submit(engine: Engine, job: str, handle: str) -> Ticket:
    return await engine.submit(job, handle=handle, request_id=handle)


async def work(folder: Path, job: str, *, first: bool) -> list[tuple[str, str | None]]:
    """Continue until every run has ended, unless the process is killed; return how they ended. The healthy
    ones execute when the process dies for the first time, and then after the poison run has ended."""
    store, lanes = f"sqlite:///{folder}/store.db", {"healthy": HEALTHY if first else 0}
    async with open_engine(jobs, store, max_concurrent=9, lanes=lanes, data_dir=folder / "data") as engine:
        runs = [await _submit(engine, "healthy", f"healthy{number}") for number in range(HEALTHY)]
        while first and len(begun) < HEALTHY:
            await trio.lowlevel.checkpoint()
        after = (await engine.snapshot()).seq
        poison = await _submit(engine, job, "poison")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_follow, engine, poison.id, after)
            with contextlib.suppress(GreenroomError):  # it accepts no messages, or has ended
                await engine.inject(poison.id, "go on")
            with contextlib.suppress(RunEnded):
                await poison.result()
            gone.set()
            await engine.set_concurrency("healthy", HEALTHY)
            for run in runs:
                await run.result()
            nursery.cancel_scope.cancel()
        records = [await engine.get_run(run.id) for run in [poison, *runs]]
        return [(record.status, record.reason) for record in records]


def main(folder: Path, job: str, first: bool) -> None:
    """The program, in a separate process; exits with code 0 if only the poison run failed as killed."""
    logging.getLogger("greenroom").setLevel(logging.CRITICAL)

    async def run() -> list[tuple[str, str | None]]:
        with trio.fail_after(_PATIENCE):
            return await work(folder, job, first=first)

    assert trio.run(run) == [("failed", "killed"), *[("succeeded", None)] * HEALTHY]
