"""The disk of a simulated machine: a store and files that outlive engines, with injected faults.

Committed data survives a crash, all other data is lost. The calls of an engine whose process has died never
return. Values are copied when they are written and read, so that no object is shared with the disk.
"""

from __future__ import annotations

import errno
import math
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from random import Random
from typing import Any, Concatenate, NoReturn, ParamSpec, Protocol, TypeVar

import trio

from ...persistence.failures import StoreDown
from ...persistence.flows import FlowRunPage, StoredFlow
from ...persistence.leasekeeping import Failed, Told
from ...persistence.sqlstore import SqlStore
from ...persistence.store import Batch, Checkpoint, Found, LeaseWatch, Retention, Store, Stored
from ...persistence.webhooks import DueWebhook, WebhookCounts
from ...protocol.errors import Conflict
from ...protocol.events import Event, InterruptClosed
from ...protocol.flow.records import NodeRun, VersionRow
from ...protocol.records import RunRecord
from ...protocol.webhooks import Webhook
from ..rules.rules import Rules
from .crash import cancelled
from .disk_backend import Backend, SqliteBackend, Trouble, copied, copied_batch
from .files import DiskFiles, StoredFile

P = ParamSpec("P")
T = TypeVar("T")


class Owner(Protocol):
    """A process with an engine."""

    dead: bool

    def opened(self, stored: Stored) -> None:
        """Check what its engine read when it opened the store."""

    def die(self, why: str) -> None:
        """Kill the process immediately. A caller inside the process must not continue."""


class SimulatedDisk:
    """See the module's docstring. Attributes can be set at any time, and apply from the next operation on."""

    def __init__(
        self,
        backend: Backend,
        random: Random,
        rules: Rules,
        committed: Callable[[Batch], None],
        fault: Callable[[str], None],
    ) -> None:
        self.down = False
        """Nothing can be read or written."""
        self.full = False
        """Nothing can be written."""
        self.cut_off: set[Owner] = set()
        """The processes that cannot reach the disk."""
        self.no_renewals = False
        """No lease can be renewed, but everything else works."""
        self.late_answers = 0.0
        """Seconds from a renewal of the lease to its reply."""
        self.delay: tuple[float, float] | None = None
        """Seconds that an operation takes: minimum and maximum."""
        self.delete_delay: tuple[float, float] | None = None
        """Seconds that deleting files takes: minimum and maximum."""
        self.deleting: Counter[str] = Counter()
        """The runs whose files are being deleted."""
        self.rates: dict[Trouble, float] = {}
        """The probability of each trouble at a commit, from 0 to 1."""
        self.files: dict[tuple[str, str], StoredFile] = {}
        """Finished files, by handle and path."""
        self.parts: dict[tuple[str, str, str], StoredFile] = {}
        """Unfinished files, by handle, path and run."""
        self.undeleted: set[tuple[str, ...]] = set()
        """The keys of files and parts that an engine tried to delete, and the disk failed to."""
        self.rules = rules
        """The rules that check every commit."""
        rules.model.deleting = self.deleting
        self.injured = False
        """Whether any fault has occurred since the engine was started."""
        self._backend = backend
        self._random = random
        self._committed = committed
        self._fault = fault
        self._holder: DiskStore | None = None
        self._planned: deque[Trouble | None] = deque()
        self._under_way = 0
        self._outage = False

    def fail_commit(self, trouble: Trouble, *, after: int = 0) -> None:
        """Inject trouble into the next commit, or into the one that follows `after` other commits."""
        while len(self._planned) <= after:
            self._planned.append(None)
        self._planned[after] = trouble

    def repair(self) -> None:
        """Remove all faults and delays, also those planned for later commits."""
        self.down = self.full = self.no_renewals = False
        self.delay = self.delete_delay = None
        self.late_answers = 0.0
        self.rates = {}
        self._planned.clear()

    @property
    def leased(self) -> bool:
        """Whether the engine on it holds a lease that can expire."""
        return isinstance(self._backend, SqliteBackend) and self._backend.ttl < math.inf

    async def migrate(self) -> None:
        """Create the tables of a leased disk."""
        assert isinstance(self._backend, SqliteBackend), "a leased disk has no other backend"
        await self._backend.migrate()

    def is_of(self, owner: Owner) -> bool:
        """Whether this process has the disk, and no other has taken it over."""
        return self._holder is None or self._holder._owner is owner

    @property
    def at_rest(self) -> bool:
        """Whether no slow operation is in progress, and the last commit has not failed."""
        return not (self._under_way or self._outage)

    def store_of(self, owner: Owner) -> DiskStore:
        """The store as one process sees it."""
        return DiskStore(self, owner)

    def files_of(self, owner: Owner) -> DiskFiles:
        """The files as one process sees them."""
        return DiskFiles(self, owner)

    # For `DiskStore` and `DiskFiles`.

    async def reach(self, owner: Owner) -> None:
        """Wait until an operation reaches the disk. For a dead process this never returns."""
        await trio.lowlevel.checkpoint()
        if self.delay is not None and not owner.dead:
            self._under_way += 1
            try:
                await trio.sleep(self._random.uniform(*self.delay))
            finally:
                self._under_way -= 1
                self.rules.model.disturbed = trio.current_time()
        if owner.dead:
            await trio.sleep_forever()

    async def take_time_to_delete(self, runs: Sequence[str]) -> None:
        """Wait as long as deleting files of these runs takes."""
        if self.delete_delay is None:
            return
        self.deleting.update(runs)
        try:
            await trio.sleep(self._random.uniform(*self.delete_delay))
        finally:
            for run in runs:
                self.deleting[run] -= 1
                if not self.deleting[run]:
                    del self.deleting[run]

    def fails(self, why: str) -> None:
        """Record an injected fault."""
        self.injured = True
        self.rules.model.disturbed = trio.current_time()
        self._fault(why)

    def refuse_file(self, what: str, writes: bool) -> None:
        """Raise `OSError` if an operation on files fails now."""
        if self.down:
            self.fails(f"cannot {what}: the disk is down")
            raise OSError(errno.EIO, "the simulated disk is down")
        if self.full and writes:
            self.fails(f"cannot {what}: the disk is full")
            raise OSError(errno.ENOSPC, "the simulated disk is full")

    def next_trouble(self) -> Trouble | None:
        """The trouble for the commit that starts now, if any."""
        planned = self._planned.popleft() if self._planned else None
        if planned is None and self.rates:
            draw = self._random.random()
            for trouble, rate in self.rates.items():
                draw -= rate
                if draw < 0:
                    return trouble
        return planned

    def refuse(self, why: str) -> StoreDown:
        """The error for an operation that fails for a transient reason."""
        self.fails(why)
        return StoreDown(f"the simulated store is unavailable: {why}")


def _read(
    method: Callable[Concatenate[Any, P], Awaitable[T]], kind: Any, *, needed: bool = False
) -> Callable[Concatenate[DiskStore, P], Coroutine[Any, Any, T]]:
    """A method that calls the store's method of the same name, which only reads. `needed`: an engine that
    cannot read this stops until it can."""

    async def read(self: DiskStore, /, *arguments: P.args, **options: P.kwargs) -> T:
        await self._reach(stops=needed)
        found: T = await getattr(self._opened, method.__name__)(*arguments, **options)
        return copied(found, kind)

    return read


class DiskStore:
    """The store as one engine sees it (`persistence.store.Store`)."""

    def __init__(self, disk: SimulatedDisk, owner: Owner) -> None:
        self._disk = disk
        self._owner = owner
        self._store: Store | None = None
        self._lease = DiskLease(disk, owner) if disk.leased else None

    async def open(self, epoch: str, max_concurrent: int, now: float) -> Stored:
        disk = self._disk
        disk.injured = False
        await self._reach()
        self._store = await self._make_store()
        opened = await self._store.open(epoch, max_concurrent, now)
        disk._holder = self
        stored = copied(opened, Stored)
        disk._outage = False
        self._owner.opened(stored)
        if self._lease is not None:
            self._lease.begin(self._store)
        return stored

    async def _make_store(self) -> Store:
        disk, holder = self._disk, self._disk._holder
        if holder is None or holder._owner.dead or (disk.leased and holder._owner in disk.cut_off):
            return await disk._backend.store()
        raise Conflict("this simulated disk is in use by another engine: one engine per store")

    @property
    def lease(self) -> DiskLease | None:
        return self._lease

    @property
    def check_every(self) -> float:
        return math.inf

    async def check(self) -> None:
        await self._reach(stops=True)

    async def commit(self, batch: Batch) -> None:
        disk = self._disk
        disk._under_way += 1
        try:
            await self._commit(batch)
        finally:
            disk._under_way -= 1

    async def _commit(self, batch: Batch) -> None:
        disk = self._disk
        await self._reach(stops=True)
        if disk.full and (batch.events or batch.memos):
            disk._outage = True
            raise disk.refuse("the disk is full")
        batch = copied_batch(batch)
        await disk._backend.commit(self._opened, batch, disk.next_trouble(), self._moments(batch))
        await disk.reach(self._owner)

    def _moments(self, batch: Batch) -> Moments:
        return Moments(self._disk, self._owner, batch)

    async def committed(self, batch: Batch) -> bool:
        await self._reach()
        committed = await self._opened.committed(batch)
        if committed:
            self._disk._outage = False
        return committed

    run = _read(Store.run, RunRecord | None)
    runs = _read(Store.runs, list[RunRecord])
    search = _read(Store.search, Found)
    history = _read(Store.history, list[Event])
    events = _read(Store.events, list[Event])
    files = _read(Store.files, list[tuple[str, str]])
    checkpoint = _read(Store.checkpoint, Checkpoint | None, needed=True)
    closed_interrupt = _read(Store.closed_interrupt, InterruptClosed | None)
    version = _read(Store.version, VersionRow | None, needed=True)
    flow = _read(Store.flow, StoredFlow | None, needed=True)
    flow_runs = _read(Store.flow_runs, FlowRunPage)
    versions = _read(Store.versions, list[VersionRow])
    node_runs = _read(Store.node_runs, list[NodeRun])
    request_ids = _read(Store.request_ids, dict[str, str])
    runs_of_requests = _read(Store.runs_of_requests, set[str])
    due_webhooks = _read(Store.due_webhooks, list[DueWebhook])
    webhook = _read(Store.webhook, Webhook | None)
    dead_webhooks = _read(Store.dead_webhooks, list[Webhook])
    failing_webhooks = _read(Store.failing_webhooks, list[Webhook])
    count_webhooks = _read(Store.count_webhooks, WebhookCounts)

    async def prune(self, retention: Retention, now: float, most: int) -> int:
        await self._reach()
        return await self._opened.prune(retention, now, most)

    async def close(self) -> None:
        await self._disk.reach(self._owner)
        if self._store is not None:
            await self._store.close()
        if self._disk._holder is self:
            self._disk._holder = None

    @property
    def _opened(self) -> Store:
        assert self._store is not None, "the store is open"
        return self._store

    async def _reach(self, *, stops: bool = False) -> None:
        await self._disk.reach(self._owner)
        if self._disk.down or self._owner in self._disk.cut_off:
            self._disk._outage |= stops
            raise self._disk.refuse("the disk is down")


class DiskLease:
    """The lease of one engine (`persistence.store.StoreLease`). Renewals meet the same faults and delays as
    other operations on the disk."""

    def __init__(self, disk: SimulatedDisk, owner: Owner) -> None:
        self._disk = disk
        self._owner = owner
        self._store: Store | None = None
        self._watch: LeaseWatch | None = None
        self._begun = trio.Event()

    def begin(self, store: Store) -> None:
        """Start to keep the lease: the store is open."""
        self._store = store
        self._begun.set()

    @property
    def term(self) -> int:
        assert isinstance(self._store, SqlStore), "only an SQL store has a lease"
        return self._store.engine_lease.term

    def is_good(self) -> bool:
        return self._store is not None and self._store.lease is not None and self._store.lease.is_good()

    def watch(self, watch: LeaseWatch) -> None:
        self._watch = watch

    async def keep(self) -> None:
        await self._begun.wait()
        assert isinstance(self._store, SqlStore), "only an SQL store has a lease"
        lease = self._store.engine_lease
        assert self._watch is not None, "the engine watches its lease"
        lease.watch(self._watch)
        await lease.keep(self._renew)

    async def _renew(self, sent: float) -> Told:
        disk, backend = self._disk, self._disk._backend
        await disk.reach(self._owner)
        if disk.down or disk.no_renewals or self._owner in disk.cut_off:
            return Failed("the simulated disk is down")
        assert self._store is not None, "the store is open"
        assert isinstance(backend, SqliteBackend), "only the SQLite backend has a lease"
        reply = backend.renew(self._store, sent)
        if disk.late_answers:
            await trio.sleep(disk.late_answers)
        await disk.reach(self._owner)
        return reply


class Moments:
    """Callbacks of the disk for the moments of a commit."""

    def __init__(self, disk: SimulatedDisk, owner: Owner, batch: Batch) -> None:
        self._disk = disk
        self._owner = owner
        self._batch = batch

    def made(self) -> None:
        if not self._disk.is_of(self._owner):
            self._disk.rules.faults.append(
                "an engine commits although another engine has taken over its lease"
            )
        self._disk._outage = False
        self._disk._committed(self._batch)

    def dies(self, why: str) -> NoReturn:
        self._owner.die(why)
        raise cancelled()

    def fails(self, why: str) -> None:
        self._disk._outage = True
        self._disk.fails(why)
