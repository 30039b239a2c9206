"""Engines that restart, and executors that outlive them, over links in memory: for mock time.

All are real; only the processes and the network are missing.
"""

from __future__ import annotations

import copy
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import trio

from greenroom import Engine, Jobs, open_engine
from greenroom.actors.executors.connection import Connection, connection_pair
from greenroom.executor.executor import Executor, Identity
from greenroom.persistence.files import DiskFiles
from greenroom.persistence.memory import MemoryStore
from greenroom.protocol.events import ExecutorChanged

TTL = 30.0


class Lives:
    """The engine that is open at the moment, if any, and the executors that connect to it."""

    def __init__(self, jobs: Jobs, folder: Path, nursery: trio.Nursery) -> None:
        self.jobs = jobs
        self.folder = folder
        self.store = MemoryStore()
        self.engine: Engine | None = None
        self.reachable = True
        self._nursery = nursery
        self._connections: set[Connection] = set()

    @asynccontextmanager
    async def engine_opened(self, **options: Any) -> AsyncIterator[Engine]:
        """An engine, until the block ends in order, or by `kill`."""
        options = {"shutdown_timeout": 0, "executor_ttl": TTL, "data_dir": self.folder / "data"} | options
        async with open_engine(self.jobs, self.store, executors=0, **options) as engine:
            self.engine = engine
            try:
                yield engine
            finally:
                self.engine = None

    async def kill(self) -> None:
        """Nothing that the engine does from now on has an effect, as after SIGKILL; leave its block next."""
        self.store = copy.deepcopy(self.store)
        await self.store.close()
        self.engine = None
        await self.cut()

    async def cut(self) -> None:
        """Close all connections."""
        for connection in list(self._connections):
            await connection.aclose()

    def start_executor(
        self, name: str = "e1", jobs: Jobs | None = None, folder: str = "", **options: Any
    ) -> trio.CancelScope:
        """Start an executor; returns the scope that kills it."""
        files = DiskFiles(self.folder / (folder or name), in_threads=False)
        identity = Identity(node=name, start=f"{name}-{random.random()}", slots=8, folder=folder)
        executor = Executor(
            jobs or self.jobs, self._connect, identity, files, random=random.Random(1), **options
        )
        scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                await executor.run()

        self._nursery.start_soon(run)
        return scope

    async def _connect(self) -> Connection:
        await trio.lowlevel.checkpoint()
        if self.engine is None or not self.reachable:
            raise OSError("engine unreachable")
        ours, theirs = connection_pair()
        self._connections |= {ours, theirs}
        self._nursery.start_soon(self.engine.executors.serve, ours)
        return theirs


L = TypeVar("L", bound=Lives)


@asynccontextmanager
async def lives(jobs: Jobs, folder: Path, made: type[L]) -> AsyncIterator[L]:
    """Everything that was started ends with the block."""
    async with trio.open_nursery() as nursery:
        yield made(jobs, folder, nursery)
        nursery.cancel_scope.cancel()


async def attached(engine: Engine, name: str = "e1") -> None:
    """Wait until an executor is attached."""
    async for event in engine.events(after=0):
        if isinstance(event, ExecutorChanged) and event.executor == name and event.status == "attached":
            return
