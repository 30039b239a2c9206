"""Engines for tests: in memory, or on a SQLite file in a folder of the test. None outlives its test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from ..actors.engine.api import Engine
from ..actors.engine.open import open_engine
from ..actors.engine.watchdog import real_time
from ..actors.jobs import Jobs
from ..persistence.sqlstore import SqlStore


@attrs.frozen
class _Block:
    """The block of one open engine."""

    leave: trio.Event = attrs.Factory(trio.Event)
    left: trio.Event = attrs.Factory(trio.Event)


class Engines:
    """Opens engines for one trio test; the value of the fixture `greenroom_engine`."""

    def __init__(self, nursery: trio.Nursery, folder: Path) -> None:
        self._nursery = nursery
        self._folder = folder
        self._blocks: dict[Engine, _Block] = {}

    async def __call__(self, jobs: Jobs, store: Any = "memory:", **options: Any) -> Engine:
        """Open an engine. It is closed after the test, or by `close`.

        `store="sqlite"` is a SQLite file of the test: an engine that is opened later finds what it contains.
        Under a mock clock, this store uses no threads, so that the clock does not jump while one works.
        Any other store and the options are those of `greenroom.open_engine`, with two other defaults:
        `data_dir` is a folder of the test, and `shutdown_timeout` is 0, so that no body delays the end.
        """
        if store == "sqlite":
            store = SqlStore(_file(self._folder), in_threads=real_time())
        opened = open_engine(jobs, store, **_defaults(self._folder) | options)
        engine: Engine = await self._nursery.start(self._keep_open, opened)
        return engine

    async def close(self, engine: Engine) -> None:
        """Close an engine now, as leaving the block of `open_engine` does. Repeating it is harmless."""
        block = self._blocks.get(engine)
        if block is not None:
            block.leave.set()
            await block.left.wait()

    async def close_all(self) -> None:
        """Close the engines that are open, the last one first."""
        for engine in reversed(list(self._blocks)):
            await self.close(engine)

    async def _keep_open(
        self, opened: AbstractAsyncContextManager[Engine], task_status: trio.TaskStatus[Engine]
    ) -> None:
        block = _Block()
        async with opened as engine:
            self._blocks[engine] = block
            task_status.started(engine)
            try:
                await block.leave.wait()
            finally:
                del self._blocks[engine]
        block.left.set()


@asynccontextmanager
async def opening_engines(folder: Path) -> AsyncIterator[Engines]:
    """Let a test open engines. Those that are open at the end of the block are closed."""
    async with trio.open_nursery() as nursery:
        engines = Engines(nursery, folder)
        yield engines
        await engines.close_all()


class AioEngines:
    """Opens engines for one asyncio test; the value of the fixture `greenroom_aio_engine`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(
        self, jobs: Jobs, store: Any = "memory:", **options: Any
    ) -> AbstractAsyncContextManager[Any]:
        """Run an engine for as long as the block lasts; see `Engines` for the store and the options."""
        from .. import aio

        if store == "sqlite":
            store = _file(self._folder)
        return aio.open_engine(jobs, store, **_defaults(self._folder) | options)


def _file(folder: Path) -> str:
    return f"sqlite:///{(folder / 'greenroom.db').as_posix()}"


def _defaults(folder: Path) -> dict[str, Any]:
    return {"data_dir": folder / "data", "shutdown_timeout": 0}
