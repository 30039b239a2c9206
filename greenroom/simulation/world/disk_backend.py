"""The backends of a simulated disk's store: dictionaries, or a real SQLite database in memory.

Both inject the same kinds of trouble into a commit. With SQLite the trouble appears below the store, as
errors of single statements and of COMMIT, so that the store's code for errors and retries is simulated as
well.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import msgspec
import trio

from ...persistence.addresses import Address
from ...persistence.database import DatabaseManager
from ...persistence.failures import StoreBroken, StoreDown
from ...persistence.holders import Holder
from ...persistence.leasekeeping import Told
from ...persistence.locks import StoreLock
from ...persistence.memory import MemoryStore
from ...persistence.sqlstore import SqlStore
from ...persistence.store import Batch, RunWrite, Store
from ...persistence.storelease import EngineLease
from ...persistence.versions import migrate_file
from ...protocol.events import Event
from ...protocol.records import RunRecord

if TYPE_CHECKING:
    from .disk import Moments

T = TypeVar("T")

Trouble = Literal[
    "crash_before", "crash_within", "crash_after", "lost_request", "lost_reply", "refused", "broken"
]
"""The kinds of trouble at a commit: the process dies before, within or after it; the connection is lost, so
that the outcome is unknown to the engine (`lost_request`: not committed; `lost_reply`: committed); the commit
is refused for a transient reason; or the store is permanently broken."""

_MOST_STATEMENTS = 6


class MemoryBackend:
    """A store in dictionaries. Its caller copies all values, so no object is shared with the disk."""

    def __init__(self) -> None:
        self._store = MemoryStore()

    async def store(self) -> Store:
        await self._store.close()
        return self._store

    async def commit(self, store: Store, batch: Batch, trouble: Trouble | None, moments: Moments) -> None:
        if trouble in ("broken", "refused", "lost_request"):
            moments.fails(f"a commit fails: {trouble}")
        if trouble == "broken":
            raise StoreBroken("the simulated store is broken")
        if trouble in ("refused", "lost_request"):
            raise _down(trouble)
        if trouble in ("crash_before", "crash_within"):
            moments.dies(f"crash {trouble[6:]} a commit")
        await store.commit(batch)
        moments.made()
        if trouble == "crash_after":
            moments.dies("crash after a commit")
        if trouble == "lost_reply":
            moments.fails("a commit was made, but its reply is lost")
            raise _down(trouble)


class SqliteBackend:
    """An SQLite database in memory. It outlives the engines that use it."""

    def __init__(self, random: Random, ttl: float = math.inf) -> None:
        self.ttl = ttl
        """Seconds until the lease expires. If it is finite, an engine cannot find out whether the process
        that holds the lease is alive."""
        self._random = random
        self._connection = sqlite3.connect(":memory:", isolation_level=None, factory=_Connection)
        self._connection.executescript("PRAGMA foreign_keys=ON; PRAGMA cache_size=-64000")

    async def store(self) -> Store:
        self._connection.rollback()
        return SqlStore(
            "sqlite:///:memory:",
            in_threads=False,
            connect=lambda _: self._connection,
            make_lease=self._lease,
        )

    async def migrate(self) -> None:
        """Create the tables, as an administrator does before the nodes of a cluster start."""
        database = DatabaseManager("sqlite:///:memory:", in_threads=False, connect=lambda _: self._connection)
        await database.open()
        await database.run(lambda connection: migrate_file(connection, database.name))
        await database.close()

    def store_of_node(
        self, address: str, clock: Callable[[], float], is_cut_off: Callable[[], bool]
    ) -> SqlStore:
        """The store of a node of a cluster, next to those of other nodes. `clock` is the node's."""
        return SqlStore(
            "sqlite:///:memory:",
            in_threads=False,
            member=address,
            connect=lambda _: self._connection,
            make_lease=partial(self._lease, clock=clock, is_cut_off=is_cut_off),
        )

    def renew(self, store: Store, sent: float) -> Told:
        """Renew a process's lease on its store."""
        assert isinstance(store, SqlStore), "`store` returns no other kind"
        return store.engine_lease.renew_now(sent)

    def _lease(
        self,
        addresses: tuple[Address, ...],
        lock: StoreLock,
        *,
        member: str | None,
        clock: Callable[[], float] = trio.current_time,
        is_cut_off: Callable[[], bool] = lambda: False,
        **_: object,
    ) -> EngineLease:
        return EngineLease(
            addresses,
            lock,
            ttl=self.ttl,
            in_threads=False,
            wall_clock=trio.current_time,
            clock=clock,
            member=member,
            name=lambda _: Holder(f"{self._random.getrandbits(128):032x}"[:16]),
            alive=lambda *_: None if self.ttl < math.inf else False,
            connection=_LeaseConnection(self._connection, is_cut_off),
        )

    async def commit(self, store: Store, batch: Batch, trouble: Trouble | None, moments: Moments) -> None:
        task = trio.lowlevel.current_task()
        commit = _Commit(trouble, self._random.randrange(_MOST_STATEMENTS), moments)
        self._connection.commits[task] = commit
        try:
            await store.commit(batch)
        finally:
            del self._connection.commits[task]


Backend = MemoryBackend | SqliteBackend


class _LeaseConnection:
    """The only connection, as the lease uses it."""

    def __init__(self, connection: sqlite3.Connection, is_cut_off: Callable[[], bool]) -> None:
        self._connection = connection
        self._is_cut_off = is_cut_off

    def cursor(self) -> Any:
        if self._is_cut_off():
            raise sqlite3.OperationalError("the simulated disk is down")
        return self._connection.cursor()

    def drop(self) -> None:
        pass

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Commit:
    """The commit of one batch through the connection. Trouble occurs once; a retry succeeds."""

    def __init__(self, trouble: Trouble | None, statement: int, moments: Moments) -> None:
        self._trouble = trouble
        self._left = 0 if trouble == "crash_before" else statement
        self._moments = moments
        self._made = False

    def before_statement(self, sql: str) -> None:
        if self._trouble in ("crash_before", "crash_within", "refused", "broken"):
            if self._left == 0:
                self._strike()
            self._left -= 1

    def before_commit(self) -> None:
        if self._trouble in ("crash_before", "crash_within", "refused", "broken", "lost_request"):
            self._strike()

    def after_commit(self) -> None:
        if not self._made:
            self._made = True
            self._moments.made()
        if self._trouble in ("crash_after", "lost_reply"):
            self._strike()

    def _strike(self) -> None:
        trouble, self._trouble = self._trouble, None
        assert trouble is not None
        if trouble.startswith("crash"):
            self._moments.dies(f"crash {trouble[6:]} a commit")
        self._moments.fails(f"a commit fails: {trouble}")
        code, text = _ERRORS[trouble]
        error = sqlite3.OperationalError(text)
        error.sqlite_errorcode = code
        raise error


_ERRORS = {
    "refused": (sqlite3.SQLITE_BUSY, "database is locked"),
    "broken": (sqlite3.SQLITE_CORRUPT, "database disk image is malformed"),
    "lost_request": (sqlite3.SQLITE_IOERR, "disk I/O error"),
    "lost_reply": (sqlite3.SQLITE_IOERR, "disk I/O error"),
}


class _Connection(sqlite3.Connection):
    """The only connection to the database. Closing it only rolls back, because the database must survive."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.commits: dict[trio.lowlevel.Task, _Commit] = {}  # by the task that commits a batch

    @property
    def current(self) -> _Commit | None:
        return self.commits.get(trio.lowlevel.current_task()) if trio.lowlevel.in_trio_task() else None

    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(factory or _Cursor)

    def commit(self) -> None:
        current = self.current if self.in_transaction else None
        if current is not None:
            try:
                current.before_commit()
            except sqlite3.Error:
                self.rollback()
                raise
        super().commit()
        if current is not None:
            current.after_commit()

    def close(self) -> None:
        self.rollback()


class _Cursor(sqlite3.Cursor):
    """Calls `_Commit.before_statement` before each statement that writes."""

    def execute(self, sql: str, parameters: Any = (), /) -> Self:
        self._announce(sql)
        return super().execute(sql, parameters)

    def executemany(self, sql: str, rows: Iterable[Any], /) -> Self:
        self._announce(sql)
        return super().executemany(sql, rows)

    def _announce(self, sql: str) -> None:
        connection = self.connection
        if isinstance(connection, _Connection) and connection.current is not None and not _only_reads(sql):
            connection.current.before_statement(sql)


def _only_reads(sql: str) -> bool:
    return sql.lstrip()[:6].upper() in ("SELECT", "PRAGMA", "BEGIN")


def _down(trouble: Trouble) -> StoreDown:
    return StoreDown(f"the simulated store is down: {trouble}", outcome_known=trouble == "refused")


def copied(value: T, kind: Any) -> T:
    """A deep copy of a value, made by encoding and decoding it."""
    copy: T = msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=kind)
    return copy


def copied_batch(batch: Batch) -> Batch:
    """A deep copy of a batch."""
    writes = {
        id: RunWrite(
            _record.decode(_encode(write.record)),
            write.expected,
            write.terms,
            write.created,
            write.ended,
            write.holds_handle,
        )
        for id, write in batch.runs.items()
    }
    events = [_event.decode(_encode(event)) for event in batch.events]
    return Batch(batch.before, events, writes, [copied(memo, type(memo)) for memo in batch.memos])


_encode = msgspec.msgpack.Encoder().encode
_event: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)
_record = msgspec.msgpack.Decoder(RunRecord)
