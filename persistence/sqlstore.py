"""The store on a SQL database: SQLite, PostgreSQL, MySQL or MariaDB.

One engine has a store at a time. It holds a lease in the store (`persistence/storelease.py`), and each batch
advances `last_seq` only if the term of the lease is still its own. A lock is the quick first check.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

import trio
from sqlalchemy import Connection, select, update

from . import schema
from .addresses import Address
from .database import LONG_CALL, Connect, DatabaseManager
from .drivers import connect as open_connection
from .drivers import reading_once
from .elections import Election
from .failures import StoreBroken
from .lease import TTL, Lease, Wait
from .locks import StoreLock
from .pruning import prune
from .reading import (
    read_all,
    read_checkpoint,
    read_closed_interrupt,
    read_events,
    read_files,
    read_history,
    read_run,
)
from .reading_flows import (
    read_flow,
    read_flow_runs,
    read_node_runs,
    read_request_ids,
    read_version,
    read_versions,
)
from .reading_webhooks import (
    count_webhooks,
    read_dead_webhooks,
    read_due_webhooks,
    read_failing_webhooks,
    read_webhook,
)
from .searching import read_runs, read_runs_of_requests, search_runs
from .statements import Statements
from .store import Batch, Retention, Stored
from .storelease import EngineLease
from .traces import LockTrace, Trace, Witness, contradiction
from .versions import migrate_file, require_version
from .writes import LAST_COMMIT
from .writing import write_batch

logger = logging.getLogger("greenroom")

P = ParamSpec("P")
T = TypeVar("T")

_CHECKED_EVERY = 5.0
"""Seconds after which an idle engine checks whether its SQLite file still exists."""

_LARGE = 1000
"""For each of this many events and memos, a batch gets the time limit of a call once more."""

_A_MOMENT = 0.05
"""Seconds to wait after the expiry of a lease, so that it has expired by every clock."""


def _reads(
    function: Callable[Concatenate[Connection, P], T],
) -> Callable[Concatenate[SqlStore, P], Coroutine[Any, Any, T]]:
    """Return a method of the store that calls a query function in a transaction."""

    async def read(self: SqlStore, /, *arguments: P.args, **options: P.kwargs) -> T:
        return await self._database.read(lambda connection: function(connection, *arguments, **options))

    return read


class SqlStore:
    """A store with the addresses `stores`, primary first, and a lease of `lease_ttl` seconds (15).

    `member` is the address of a node of a cluster, which the lease shows to the other nodes: one node after
    the other then opens the store. It gets the lease there, unless it has won an `election`. `connect` and
    `make_lease` are for simulation.
    """

    def __init__(
        self,
        stores: str | Sequence[str],
        *,
        lease_ttl: float | None = None,
        in_threads: bool = True,
        member: str | None = None,
        election: Election | None = None,
        connect: Connect | None = None,
        make_lease: Callable[..., EngineLease] = EngineLease,
    ) -> None:
        if connect is None:
            connect = open_connection if member is None else _connect_member(lease_ttl or TTL)
        self._database = DatabaseManager(stores, in_threads=in_threads, connect=connect)
        self._lock = StoreLock(self._database.addresses, in_threads=in_threads, shared=member is not None)
        self._lease = make_lease(
            self._database.addresses,
            self._lock,
            ttl=lease_ttl,
            in_threads=in_threads,
            wall_clock=time.time,
            member=member,
            election=election,
        )
        self._is_member = member is not None
        self._epoch = ""
        self._witnesses: list[Witness] = []
        self._accepts = False
        self._trace: LockTrace | None = None  # of a SQLite file
        first = self._database.addresses[0]
        if first.kind == "sqlite" and not first.in_memory:
            self._trace = LockTrace(f"{first.path}.lock")
            # With less than full syncing, a crash of the machine can lose the last commits.
            if first.parameters.get("synchronous") != "normal":
                self._witnesses.append(self._trace)

    def when_damaged(self, tell: Callable[[StoreBroken], None]) -> None:
        """Call `tell` when a call, also a read, finds that the stored data is damaged."""
        self._database.when_damaged = tell

    def expect(self, witness: Witness | None, *, accept: bool) -> None:
        """At the opening, refuse a store that contradicts the witness, or `accept` it as it is."""
        if witness is not None and not self._database.addresses[0].in_memory:
            self._witnesses.append(witness)
        self._accepts = accept

    @property
    def address(self) -> Address:
        """Its first address."""
        return self._database.addresses[0]

    @property
    def in_threads(self) -> bool:
        """Whether it works in threads, so that files of the engine can, too."""
        return self._database.in_threads

    @property
    def engine_lease(self) -> EngineLease:
        """The lease, also if it never expires because no other engine can open the store."""
        return self._lease

    @property
    def lease(self) -> EngineLease | None:
        return None if self._lease.ttl == math.inf else self._lease

    async def open(self, epoch: str, max_concurrent: int, now: float) -> Stored:
        await self._lock.acquire()
        await self._database.open()
        self._lease.begin()

        def take(connection: Connection, *, patient: bool = True) -> Wait | None:
            if self._database.kind == "sqlite":
                migrate_file(connection, self._database.name)
            require_version(connection, self._database.name)
            wait = self._lease.look(connection, patient=patient)
            if wait is not None:
                return wait
            self._compare(connection, epoch)
            if connection.execute(select(schema.meta.c.id)).first() is None:
                connection.execute(schema.meta.insert(), _first_row(epoch, max_concurrent))
            self._lease.take(connection)
            return None

        first = partial(take, patient=not self._is_member)  # a node follows the holder instead
        wait = await self._database.with_retry(first, limit=LONG_CALL)
        if wait is not None:
            logger.warning(
                "the store %s is leased to %s, which may have died: waiting %.1f s for the lease to expire",
                self._database.name,
                wait.holder,
                wait.seconds,
            )
            await trio.sleep(wait.seconds + _A_MOMENT)
            await self._database.with_retry(partial(take, patient=False), limit=LONG_CALL)
        self._lease.start()  # the lease is renewed from here on, however long reading takes

        def read(connection: Connection) -> Stored:
            with reading_once(connection):
                return read_all(connection, now)

        stored = await self._database.with_retry(read, limit=LONG_CALL)
        self._epoch = stored.epoch
        await self._database.read(lambda _: self._note(stored.last_seq))
        return stored

    async def open_to_read(self) -> None:
        """Open the store only for reading, next to the engine that has it."""
        await self._database.open()
        await self._database.read(lambda connection: require_version(connection, self._database.name))

    async def stored_epoch(self) -> str | None:
        """Return the epoch that is in the store; `None` if no engine has opened it yet."""
        return await self._database.read(
            lambda connection: connection.execute(select(schema.meta.c.epoch)).scalar()
        )

    async def leased_to(self) -> Lease | None:
        """Return the lease as it is in the store, of whichever engine."""
        return await self._database.read(self._lease.read)

    def _compare(self, connection: Connection, epoch: str) -> None:
        """Raise `StoreBroken` if the store contradicts a witness. An accepted one gets a new epoch, so that
        clients of the old one get a snapshot."""
        row = connection.execute(select(schema.meta.c.epoch, schema.meta.c.last_seq)).first()
        found = None if row is None else Trace(row.epoch, row.last_seq)
        problem = contradiction(self._database.name, found, self._witnesses)
        if problem is None:
            return
        if not self._accepts:
            raise StoreBroken(problem)
        logger.warning("the store %s is accepted as it is, under a new epoch", self._database.name)
        connection.execute(update(schema.meta).values(epoch=epoch))

    def _note(self, seq: int) -> None:
        if self._trace is not None:
            self._trace.note(Trace(self._epoch, seq))

    @property
    def check_every(self) -> float:
        if self._database.kind != "sqlite" or self._database.addresses[0].in_memory or not self.in_threads:
            return math.inf
        return _CHECKED_EVERY

    async def check(self) -> None:
        if self._database.kind == "sqlite":
            await self._database.check()  # the lease reports its own loss

    async def commit(self, batch: Batch) -> None:
        engine, term = self._lease.fence

        def write(cursor: Any) -> None:
            write_batch(batch, engine, term, Statements(self._database.kind, cursor))

        def write_unless_done(cursor: Any) -> None:
            if not self._is_committed(cursor, batch):
                write(cursor)

        share = 1 + (len(batch.events) + len(batch.memos)) / _LARGE
        await self._database.commit(
            write,
            again=write_unless_done,
            limit=self._database.call_timeout * share,
            then=partial(self._note, batch.after),
        )

    async def committed(self, batch: Batch) -> bool:
        def look(connection: Connection) -> bool:
            return self._is_committed(connection.connection.cursor(), batch)

        if self._database.kind == "sqlite":
            return await self._database.read(look)
        # This waits for a transaction that is still open on the server: its COMMIT may be in flight.
        return await self._database.run(look)

    run = _reads(read_run)
    runs = _reads(read_runs)
    search = _reads(search_runs)
    history = _reads(read_history)
    events = _reads(read_events)
    files = _reads(read_files)
    checkpoint = _reads(read_checkpoint)
    closed_interrupt = _reads(read_closed_interrupt)
    version = _reads(read_version)
    flow = _reads(read_flow)
    flow_runs = _reads(read_flow_runs)
    versions = _reads(read_versions)
    node_runs = _reads(read_node_runs)
    request_ids = _reads(read_request_ids)
    runs_of_requests = _reads(read_runs_of_requests)
    due_webhooks = _reads(read_due_webhooks)
    webhook = _reads(read_webhook)
    dead_webhooks = _reads(read_dead_webhooks)
    failing_webhooks = _reads(read_failing_webhooks)
    count_webhooks = _reads(count_webhooks)

    async def prune(self, retention: Retention, now: float, most: int) -> int:
        return await self._database.run(
            lambda connection: prune(connection, retention, now, most), limit=LONG_CALL
        )

    async def close(self) -> None:
        try:
            await self._lease.stop()
        finally:
            try:
                await self._database.close()
            finally:
                if self._trace is not None:
                    self._trace.close()
                await self._lock.release()

    def _is_committed(self, cursor: Any, batch: Batch) -> bool:
        """Whether the batch is committed. Raises `StoreBroken` if the last seq is neither the one before nor
        the one after the batch, or if another engine has the store."""
        cursor.execute(LAST_COMMIT if self._database.kind == "sqlite" else f"{LAST_COMMIT} FOR UPDATE")
        last_seq, engine = cursor.fetchone()
        if engine != self._lease.fence[0] or last_seq not in (batch.before, batch.after):
            raise StoreBroken(
                f"the store {self._database.name} is at seq {last_seq}, but this engine is at "
                f"{batch.before}: another engine has written to it, or it is an outdated copy"
            )
        return bool(last_seq == batch.after) and bool(batch.events)


def _connect_member(lease_ttl: float) -> Connect:
    """Connections of a node. The transaction of a leader that is paused must end before its lease expires,
    because it keeps the row locked that the next leader must update."""
    return partial(open_connection, idle=2 / 3 * lease_ttl)


def _first_row(epoch: str, max_concurrent: int) -> dict[str, object]:
    return {
        "id": 1,
        "schema_version": schema.SCHEMA_VERSION,
        "epoch": epoch,
        "last_seq": 0,
        "max_concurrent": max_concurrent,
        "draining": False,
    }
