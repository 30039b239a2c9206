"""An engine that executes no bodies itself, and an executor that executes them over a link in memory.

The executor has the same `Jobs` as the engine and the same event loop, also under a test's mock clock. It is
attached as a child process is: it uses the engine's data folder, and ends with the engine.
"""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

import greenroom
from greenroom import Engine, Jobs
from greenroom.actors.executors.child_links import ChildLinks
from greenroom.actors.executors.connection import MemoryConnection, connection_pair
from greenroom.executor.executor import Executor, Identity
from greenroom.executor.failures import ProcessEnding
from greenroom.persistence.files import DiskFiles, Files
from greenroom.protocol.events import ExecutorChanged

_TTL = 1e9
"""So long that no beats are due within a test: each would be a step of a mock clock."""


@asynccontextmanager
async def open_linked(jobs: Jobs, store: Any, **options: Any) -> AsyncIterator[Engine]:
    """Like `greenroom.open_engine`, with one executor. If that fails, its error is raised at the end."""
    error: BaseException | None = None
    async with trio.open_nursery() as nursery:
        executor = _Linked(jobs, _files(options.get("data_dir", "data")))
        try:
            async with greenroom.open_engine(
                jobs, store, executors=0, executor_ttl=_TTL, **options
            ) as engine:
                nursery.start_soon(executor.run, engine)
                await _attached(engine)
                yield engine
        except BaseException as raised:  # raised below: the nursery would make a group of it
            error = raised
        executor.scope.cancel()
    error = executor.failure or error
    if error is not None:
        raise error


def _files(data_dir: str | os.PathLike[str] | Files) -> Files:
    if isinstance(data_dir, str | os.PathLike):
        return DiskFiles(data_dir, in_threads=False)
    return data_dir


async def _attached(engine: Engine) -> None:
    async for event in engine.events():
        if isinstance(event, ExecutorChanged) and event.status == "attached":
            return


class _Linked:
    """The executor and its link. They end when `scope` is cancelled, after the engine."""

    def __init__(self, jobs: Jobs, files: Files) -> None:
        self.scope = trio.CancelScope(shield=True)
        self.failure: BaseException | None = None
        identity = Identity(node="local-1", start="p1")
        self._executor = Executor(jobs, self._connect, identity, files, random=random.Random(1))

    async def run(self, engine: Engine) -> None:
        """Execute bodies for this engine."""
        self._links = ChildLinks(engine.executors._registry)
        with self.scope:
            async with trio.open_nursery() as self._nursery:
                try:
                    await self._executor.run()
                except Exception as error:
                    self.failure = error.__cause__ if isinstance(error, ProcessEnding) else error
                    self._links.died("local-1", "has failed")

    async def _connect(self) -> MemoryConnection:
        ours, theirs = connection_pair()
        self._nursery.start_soon(self._links.serve, ours)
        await trio.lowlevel.checkpoint()
        return theirs
