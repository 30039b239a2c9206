"""The store of a cluster as one node sees it: next to the leader, or as the leader.

All nodes use one SQLite database in memory. The lease and the fence of its term are the real ones; the store
has its own clock, and so has each node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ....persistence.lease import Lease
from ....persistence.sqlstore import SqlStore
from ....persistence.store import Batch
from ..disk import DiskStore, Moments, Owner, SimulatedDisk
from ..disk_backend import SqliteBackend


class NodeProcess(Owner, Protocol):
    """The process of a node. `name` includes the number of its life."""

    name: str
    address: str
    clock: Callable[[], float]


class NodeStore(DiskStore):
    """See the module's docstring. `Node` uses one for reading, and each of its engines another one."""

    def __init__(self, disk: SimulatedDisk, process: NodeProcess) -> None:
        super().__init__(disk, process)
        self._process = process

    @property
    def term(self) -> int:
        """The term of its lease."""
        assert isinstance(self._store, SqlStore), "the store is open"
        return self._store.engine_lease.term

    @property
    def has_lease(self) -> bool:
        """Whether its lease is good."""
        assert isinstance(self._store, SqlStore), "the store is open"
        return self._process.clock() < self._store.engine_lease.acts_until

    async def open_to_read(self) -> None:
        """See `SqlStore.open_to_read`."""
        await self._reach()
        store = await self._make_store()
        await store.open_to_read()
        self._store = store

    async def stored_epoch(self) -> str | None:
        """See `SqlStore.stored_epoch`."""
        await self._reach()
        assert isinstance(self._store, SqlStore), "the store is open"
        return await self._store.stored_epoch()

    async def leased_to(self) -> Lease | None:
        """See `SqlStore.leased_to`."""
        await self._reach()
        assert isinstance(self._store, SqlStore), "the store is open"
        return await self._store.leased_to()

    async def _make_store(self) -> SqlStore:
        backend = self._disk._backend
        assert isinstance(backend, SqliteBackend), "a leased disk has no other"
        return backend.store_of_node(self._process.address, self._process.clock, self._is_cut_off)

    def _is_cut_off(self) -> bool:
        disk = self._disk
        return disk.down or disk.no_renewals or self._process in disk.cut_off or self._process.dead

    def _moments(self, batch: Batch) -> Moments:
        return _LeadersMoments(self._disk, self._process, batch, self.term)


class _LeadersMoments(Moments):
    """The moments of a commit of a leader."""

    def __init__(self, disk: SimulatedDisk, process: NodeProcess, batch: Batch, term: int) -> None:
        super().__init__(disk, process, batch)
        self._process = process
        self._term = term

    def made(self) -> None:
        self._disk.rules.cluster.commits(self._process.name, self._term, self._batch.events)
        super().made()
