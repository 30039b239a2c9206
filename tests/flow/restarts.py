"""Engines that crash: a store that fails from one of its commits on, or when the test says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import trio
import trio.testing

import greenroom
from greenroom import Engine, Jobs
from greenroom.persistence.memory import MemoryStore
from greenroom.persistence.store import Batch, Store

_START = 1_700_000_000.0


class Crash(Exception):
    """From the store's view, the process has crashed."""


class Mortal:
    """A store that fails at its `at`th commit once it is `armed`, or at the next one if it is `dead`."""

    def __init__(
        self, store: Store, at: int | None = None, when: Literal["before", "after"] = "before"
    ) -> None:
        self.store = store
        self.commits = 0
        self.armed = False
        self.dead = False
        self._at = at
        self._when = when

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def commit(self, batch: Batch) -> None:
        self.commits += self.armed
        if self.dead:
            raise Crash
        if not self.armed or self.commits != self._at:
            await self.store.commit(batch)
            return
        self.dead = True
        if self._when == "after":
            await self.store.commit(batch)
        raise Crash


def wall_clock() -> float:
    """Unix seconds that continue from one engine to the next."""
    return _START + trio.current_time()


class Lives:
    """Engines on one store in memory, one after the other."""

    def __init__(self, jobs: Jobs, **options: Any) -> None:
        self.store = MemoryStore()
        self._jobs = jobs
        self._options = {"clock": wall_clock, "shutdown_timeout": 0.1, **options}

    @asynccontextmanager
    async def clean(self, **options: Any) -> AsyncIterator[Engine]:
        """An engine that shuts down in order."""
        async with greenroom.open_engine(self._jobs, self.store, **{**self._options, **options}) as engine:
            yield engine

    @asynccontextmanager
    async def crash(self, **options: Any) -> AsyncIterator[Engine]:
        """An engine that crashes when the block is left."""
        mortal: Any = Mortal(self.store)
        try:
            async with greenroom.open_engine(self._jobs, mortal, **{**self._options, **options}) as engine:
                yield engine
                await trio.testing.wait_all_tasks_blocked(0.01)  # pending changes are committed
                mortal.dead = True
                await engine.set_params("whatever is committed next", None)
        except Crash:
            return
        raise AssertionError("the engine went on without its store")
