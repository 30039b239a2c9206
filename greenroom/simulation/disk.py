"""A simulated machine's disk: a store and files that outlive engines, and that fail as a scenario wants it.

What was committed survives a crash, what was not is gone. An engine whose process has died reaches nothing
any more: its calls never return. Values are copied on their way to the disk and back, so that nobody shares
them with it.
"""

from __future__ import annotations

import errno
import math
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Literal, Protocol

import trio

from ..persistence.failures import StoreBroken, StoreDown
from ..persistence.memory import MemoryStore
from ..persistence.store import Batch, Checkpoint, Retention, RunQuery, Store, Stored
from ..protocol.events import Event, InterruptClosed
from ..protocol.records import RunRecord
from .files import DiskFiles, StoredFile

Trouble = Literal[
    "crash_before", "crash_within", "crash_after", "lost_request", "lost_reply", "refused", "broken"
]
"""What can come to a commit: the process dies before, within or after it; the connection is lost and nobody
knows whether it was made (it was not: `lost_request`; it was: `lost_reply`); it is refused for a passing
reason; or the store is broken for good."""


class Owner(Protocol):
    """The process that uses the disk."""

    dead: bool

    def die(self, why: str) -> None:
        """The process dies here and now."""

    def opened(self, stored: Stored) -> None:
        """It has opened the store, and found this in it."""


class SimulatedDisk:
    """See the module's text. Set the attributes at any time; they hold from the next operation on."""

    def __init__(
        self, store: Store, random: Random, committed: Callable[[Batch], None], fault: Callable[[str], None]
    ) -> None:
        self.down = False
        """Nothing can be read or written."""
        self.full = False
        """Nothing can be written."""
        self.delay: tuple[float, float] | None = None
        """Seconds that an operation takes, from and to."""
        self.rates: dict[Trouble, float] = {}
        """How likely a commit meets with what, from 0 to 1."""
        self.files: dict[tuple[str, str], StoredFile] = {}
        """Finished files, by handle and path."""
        self.parts: dict[tuple[str, str, str], StoredFile] = {}
        """Unfinished ones, by handle, path and run."""
        self.commits = 0
        self._store = store
        self._random = random
        self._committed = committed
        self._fault = fault
        self._holder: Owner | None = None
        self._planned: deque[Trouble | None] = deque()
        self._under_way = 0
        self._outage = False

    def fail_commit(self, trouble: Trouble, *, after: int = 0) -> None:
        """Have the next commit meet with trouble, or the one `after` so many others."""
        while len(self._planned) <= after:
            self._planned.append(None)
        self._planned[after] = trouble

    def repair(self) -> None:
        """From now on everything works, at once."""
        self.down = self.full = False
        self.delay = None
        self.rates = {}
        self._planned.clear()

    @property
    def at_rest(self) -> bool:
        """Whether no commit is under way, and the last one has not failed."""
        return not (self._under_way or self._outage)

    def store_of(self, owner: Owner) -> DiskStore:
        """The store as one process sees it."""
        return DiskStore(self, owner)

    def files_of(self, owner: Owner) -> DiskFiles:
        """The files as one process sees them."""
        return DiskFiles(self, owner)

    # For the two views.

    async def reach(self, owner: Owner) -> None:
        """Come to the disk; a dead process never does."""
        await trio.lowlevel.checkpoint()
        if self.delay is not None:
            await trio.sleep(self._random.uniform(*self.delay))
        if owner.dead:
            await trio.sleep_forever()

    def refuse_file(self, what: str, writes: bool) -> None:
        """Raise if an operation on files can't be done now."""
        if self.down:
            self._fault(f"can't {what}: the disk is down")
            raise OSError(errno.EIO, "the simulated disk is down")
        if self.full and writes:
            self._fault(f"can't {what}: the disk is full")
            raise OSError(errno.ENOSPC, "the simulated disk is full")

    def next_trouble(self) -> Trouble | None:
        """What the commit that begins now meets with."""
        planned = self._planned.popleft() if self._planned else None
        if planned is None and self.rates:
            draw = self._random.random()
            for trouble, rate in self.rates.items():
                draw -= rate
                if draw < 0:
                    return trouble
        return planned

    def refuse(self, why: str, *, outcome_known: bool = True) -> StoreDown:
        """The error for an operation that fails for a passing reason."""
        self._fault(why)
        self._outage = True
        return StoreDown(f"the simulated store is unavailable: {why}", outcome_known=outcome_known)


class DiskStore:
    """What one engine sees of the store (`persistence.store.Store`)."""

    def __init__(self, disk: SimulatedDisk, owner: Owner) -> None:
        self._disk = disk
        self._owner = owner
        self._store = disk._store

    async def _reach(self) -> Store:
        await self._disk.reach(self._owner)
        if self._disk.down:
            raise self._disk.refuse("the disk is down")
        return self._store

    async def open(self, epoch: str, max_concurrent: int, now: float) -> Stored:
        store = await self._reach()
        disk = self._disk
        if disk._holder is not None and disk._holder.dead:
            await store.close()  # the process that had it has died, and its hold on the store with it
        stored = await store.open(epoch, max_concurrent, now)
        disk._holder = self._owner
        disk._outage = False
        self._owner.opened(stored)
        return stored

    @property
    def check_every(self) -> float:
        return math.inf

    async def check(self) -> None:
        await self._reach()

    async def commit(self, batch: Batch) -> None:
        disk = self._disk
        disk._under_way += 1
        try:
            await self._commit(batch)
        finally:
            disk._under_way -= 1

    async def _commit(self, batch: Batch) -> None:
        store, disk = await self._reach(), self._disk
        if disk.full and (batch.events or batch.memos):
            raise disk.refuse("the disk is full")
        trouble = disk.next_trouble()
        if trouble == "broken":
            disk._fault("the store breaks")
            raise StoreBroken("the simulated store is broken")
        if trouble == "refused":
            raise disk.refuse("a commit is refused")
        if trouble == "lost_request":
            raise disk.refuse("a commit is lost before it was made", outcome_known=False)
        if trouble in ("crash_before", "crash_within"):
            await self._die(f"crash {trouble[6:]} a commit")
        await store.commit(batch)
        disk.commits += 1
        disk._outage = False
        disk._committed(batch)
        if trouble == "crash_after":
            await self._die("crash after a commit")
        if trouble == "lost_reply":
            raise disk.refuse("a commit was made, but the reply is lost", outcome_known=False)
        await disk.reach(self._owner)

    async def _die(self, why: str) -> None:
        self._owner.die(why)
        await trio.sleep_forever()

    async def committed(self, batch: Batch) -> bool:
        committed = await (await self._reach()).committed(batch)
        if committed:
            self._disk._outage = False
        return committed

    async def run(self, id: str) -> RunRecord | None:
        return await (await self._reach()).run(id)

    async def runs(self, query: RunQuery) -> list[RunRecord]:
        return await (await self._reach()).runs(query)

    async def history(self, run: str) -> list[Event]:
        return await (await self._reach()).history(run)

    async def events(self, after: int, limit: int) -> list[Event]:
        return await (await self._reach()).events(after, limit)

    async def checkpoint(self, handle: str, job: str) -> Checkpoint | None:
        return await (await self._reach()).checkpoint(handle, job)

    async def closed_interrupt(self, id: str) -> InterruptClosed | None:
        return await (await self._reach()).closed_interrupt(id)

    async def prune(self, retention: Retention, now: float, most: int) -> int:
        return await (await self._reach()).prune(retention, now, most)

    async def close(self) -> None:
        await self._disk.reach(self._owner)
        await self._store.close()
        self._disk._holder = None


def make_store(kind: Literal["memory", "sqlite"]) -> Store:
    """The store inside of the disk."""
    assert kind == "memory"
    return MemoryStore()
