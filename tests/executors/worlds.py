"""Engines without executors of their own, for tests with scripted executors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from greenroom import Engine, Jobs, Run, Ticket
from greenroom.persistence.sqlstore import SqlStore
from greenroom.protocol.records import RunRecord, Snapshot
from tests.stores.lives import Crash, Mortal
from tests.support import open_engine, until

from .scripted import ScriptedExecutor, connections

TTL = 30.0


def some_jobs() -> Jobs:
    """Jobs that only executors execute: `work` has two attempts, `once` has one, `resumable` resumes, and
    `stubborn` is abandoned one second after it was requested to end."""
    jobs = Jobs()

    async def body(run: Run, params: dict[str, Any]) -> None:
        raise AssertionError("executes only in executors")

    jobs.job("work", max_attempts=2, backoff=0)(body)
    jobs.job("once")(body)
    jobs.job("resumable", resumable=True)(body)
    jobs.job("stubborn", grace=1)(body)
    jobs.job("gpu", needs=["gpu"], max_attempts=3)(body)
    return jobs


class World:
    """An engine, and the connections to it."""

    def __init__(self, engine: Engine, nursery: trio.Nursery) -> None:
        self.engine = engine
        self.nursery = nursery

    async def executor(self, name: str = "e1", *jobs: Any, **fields: Any) -> ScriptedExecutor:
        """An executor that is attached; it has all jobs."""
        start, beat = fields.pop("start", f"process of {name}"), fields.pop("beat", 5.0)
        executor = ScriptedExecutor(self.engine, name, start=start, beat=beat)
        answer = await self.attach(executor, *jobs, **fields)
        assert answer["type"] == "attached", answer
        return executor

    async def attach(self, executor: ScriptedExecutor, *jobs: Any, **fields: Any) -> Any:
        """Attach an executor, or attach it again."""
        executor.engine = self.engine
        return await executor.attach(self.nursery, *(jobs or ALL_JOBS), **fields)

    async def begin(
        self, executor: ScriptedExecutor, job: str = "work", handle: str = "h", **options: Any
    ) -> tuple[Ticket, dict[str, Any]]:
        """Submit a run, and receive its body at this executor."""
        ticket = await self.engine.submit(job, handle=handle, params={}, **options)
        return ticket, await executor.receive("execute")

    async def run(self, ticket: Ticket) -> RunRecord:
        """The record of a run."""
        return (await self.engine.snapshot()).runs[ticket.id]

    async def until(self, predicate: Callable[[Snapshot], object]) -> Snapshot:
        return await until(self.engine, predicate)

    async def until_status(self, ticket: Ticket, status: str) -> RunRecord:
        snapshot = await self.until(lambda now: now.runs[ticket.id].status == status)
        return snapshot.runs[ticket.id]

    def executors(self) -> dict[str, str]:
        """The status of each executor, as the engine lists them."""
        return {each.id: each.status for each in self.engine.executors._registry.list()}


ALL_JOBS = ("work", "once", "resumable", "stubborn", "gpu")


@asynccontextmanager
async def world(jobs: Jobs | None = None, store: Any = "memory:", **options: Any) -> AsyncIterator[World]:
    """An engine that executes nothing itself."""
    options = {"executors": 0, "executor_ttl": TTL, "shutdown_timeout": 0} | options
    async with (
        open_engine(jobs or some_jobs(), store, **options) as engine,
        connections() as nursery,
    ):
        yield World(engine, nursery)


class Lives:
    """Engines that follow each other on one store."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder / 'store.db'}"
        self.folder = folder

    def clean(self, jobs: Jobs | None = None, **options: Any) -> Any:
        """An engine that shuts down at the end of the block."""
        return world(jobs, SqlStore(self.url, in_threads=False), **self._options(options))

    @asynccontextmanager
    async def crash(self, jobs: Jobs | None = None, **options: Any) -> AsyncIterator[World]:
        """An engine that is killed at the end of the block."""
        mortal: Any = Mortal(SqlStore(self.url, in_threads=False))
        try:
            async with world(jobs, mortal, **self._options(options)) as life:
                yield life
                await trio.testing.wait_all_tasks_blocked()
                mortal.dead = True
                await life.engine.set_params("committed next", None)
                pytest.fail("the engine continued without its store")
        except* Crash:
            pass

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"data_dir": self.folder, "clock": lambda: 1_700_000_000 + trio.current_time()} | options
