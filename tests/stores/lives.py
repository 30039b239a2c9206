"""Successive engines on one store ("lives"), each ended by a shutdown or by a crash.

After each restart the events are checked: the events after the last one that a client saw before the end,
folded over the client's state, are exactly the engine's first snapshot.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from greenroom import Engine, Jobs, Ticket, open_engine
from greenroom.persistence.store import Batch, Store
from greenroom.protocol.events import Event
from greenroom.protocol.fold import fold
from greenroom.protocol.records import Snapshot

from .conftest import Place

PATIENCE = 60.0
_START = 1_700_000_000.0


class Crash(Exception):
    """Raised in place of a crash of the process."""


class Mortal:
    """A store of a process that dies: after its death, it commits nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.dead = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, batch: Batch) -> None:
        if self.dead:
            raise Crash
        await self._store.commit(batch)


class Lives:
    """All engines of one test. Their clock continues from one to the next."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.place = place
        self.folder = folder
        self.seen: list[Event] = []
        self.last: Snapshot | None = None
        self.died = trio.Event()

    def clean(self, jobs: Jobs, **options: Any) -> AbstractAsyncContextManager[Engine]:
        """An engine that shuts down."""
        return self._open(jobs, self.place.store(), None, options)

    def crash(self, jobs: Jobs, **options: Any) -> AbstractAsyncContextManager[Engine]:
        """An engine that crashes at the end of the block."""
        mortal = Mortal(self.place.store())
        return self._open(jobs, mortal, mortal, options)  # type: ignore[arg-type]

    async def cling(self) -> None:
        """Ignore a cancellation until the process dies."""
        with trio.CancelScope(shield=True):
            await self.died.wait()

    @asynccontextmanager
    async def _open(
        self, jobs: Jobs, store: Store, mortal: Mortal | None, options: dict[str, Any]
    ) -> AsyncIterator[Engine]:
        options = {"data_dir": self.folder, "shutdown_timeout": 0.1, "clock": _wall_clock} | options
        followed = trio.Event()
        self.died = trio.Event()
        async with trio.open_nursery() as nursery:
            try:
                async with open_engine(jobs, store, **options) as engine:
                    first = await self._check(engine)
                    nursery.start_soon(self._follow, engine, first, followed)
                    yield engine
                    if mortal is not None:
                        await trio.testing.wait_all_tasks_blocked(0.01)  # a started commit is completed
                        mortal.dead = True
                        self.died.set()
                        await engine.set_params("whatever is committed next", None)
                        pytest.fail("the engine went on without its store")
            except Crash:
                assert mortal is not None
            with trio.fail_after(PATIENCE):
                await followed.wait()

    async def _check(self, engine: Engine) -> Snapshot:
        first = await engine.snapshot()
        if self.last is not None:
            events = engine.events(after=self.last.seq)
            with trio.fail_after(PATIENCE):
                since = [await anext(events) for _ in range(first.seq - self.last.seq)]
            assert [event.seq for event in since] == list(range(self.last.seq + 1, first.seq + 1))
            folded = fold(self.last, since)  # type: ignore[arg-type]
            assert folded == first
            assert list(folded.runs) == list(first.runs)
            self.seen += since  # type: ignore[arg-type]
        return first

    async def _follow(self, engine: Engine, first: Snapshot, followed: trio.Event) -> None:
        events: list[Any] = [event async for event in engine.events(after=first.seq)]
        self.last = fold(first, events)
        self.seen += events
        followed.set()


def _wall_clock() -> float:
    return _START + trio.current_time()


async def wait_until(engine: Engine, predicate: Callable[[Snapshot], object]) -> Snapshot:
    """Wait for a condition by polling, because not every condition has an event."""
    with trio.fail_after(PATIENCE):
        while not predicate(snapshot := await engine.snapshot()):  # noqa: ASYNC110
            await trio.sleep(0.01)
    return snapshot


async def wait_for(engine: Engine, run: Ticket | str, *statuses: str) -> Snapshot:
    """Wait until a run has one of these statuses."""
    id = run if isinstance(run, str) else run.id
    return await wait_until(engine, lambda now: id in now.runs and now.runs[id].status in statuses)


ENDED = ("succeeded", "failed", "cancelled", "timed_out", "rejected")


async def ended(engine: Engine, *runs: Ticket | str) -> Any:
    """Wait until the runs have ended; returns the last one."""
    for run in runs:
        now = await wait_for(engine, run, *ENDED)
        id = run if isinstance(run, str) else run.id
    return now.runs[id]
