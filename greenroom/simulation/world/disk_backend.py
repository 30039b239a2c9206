"""What a simulated disk keeps a store on: dictionaries, or a real SQLite database in memory.

Both do the same things to a commit that the disk has trouble for. With SQLite the trouble comes from below
the store, as errors of single statements and of COMMIT, so that the code which sorts them out and tries again
is simulated as well.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import msgspec
import trio

from ...persistence.addresses import Address
from ...persistence.failures import StoreBroken, StoreDown
from ...persistence.holders import Holder
from ...persistence.leasekeeping import Told
from ...persistence.locks import StoreLock
from ...persistence.memory import MemoryStore
from ...persistence.sqlstore import SqlStore
from ...persistence.store import Batch, RunWrite, Store
from ...persistence.storelease import EngineLease
from ...protocol.events import Event
from ...protocol.records import RunRecord

if TYPE_CHECKING:
    from .disk import Moments

T = TypeVar("T")

Trouble = Literal[
    "crash_before", "crash_within", "crash_after", "lost_request", "lost_reply", "refused", "broken"
]
"""What can come to a commit: the process dies before, within or after it; the connection is lost and nobody
knows whether it was made (it was not: `lost_request`; it was: `lost_reply`); it is refused for a passing
reason; or the store is broken for good."""

_MOST_STATEMENTS = 6


class MemoryBackend:
    """Dictionaries. Values are copied on their way in and out, so nobody shares them with the disk."""

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
            moments.fails("a commit was made, but the reply is lost")
            raise _down(trouble)


class SqliteBackend:
    """A database of SQLite that lives in memory, through all lives of its engines."""

    def __init__(self, random: Random, ttl: float = math.inf) -> None:
        self.ttl = ttl
        """Of the lease. Where it has an end, nobody can know of a holder whether it lives."""
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

    def renew(self, store: Store, sent: float) -> Told:
        """Renew the lease of a process on its store."""
        assert isinstance(store, SqlStore), "it was made here"
        return store.engine_lease.renew_now(sent)

    def _lease(self, addresses: tuple[Address, ...], lock: StoreLock, **_: object) -> EngineLease:
        return EngineLease(
            addresses,
            lock,
            ttl=self.ttl,
            in_threads=False,
            wall_clock=trio.current_time,
            name=lambda _: Holder(f"{self._random.getrandbits(128):032x}"[:16]),
            alive=lambda *_: None if self.ttl < math.inf else False,
            connection=_LeaseConnection(self._connection),
        )

    async def commit(self, store: Store, batch: Batch, trouble: Trouble | None, moments: Moments) -> None:
        task = trio.lowlevel.current_task()
        errand = _Errand(trouble, self._random.randrange(_MOST_STATEMENTS), moments)
        self._connection.errands[task] = errand
        try:
            await store.commit(batch)
        finally:
            del self._connection.errands[task]


Backend = MemoryBackend | SqliteBackend


class _LeaseConnection:
    """The one connection, for the lease."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def cursor(self) -> Any:
        return self._connection.cursor()

    def drop(self) -> None:
        pass

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Errand:
    """A batch on its way through the connection. Trouble comes once; `again` works."""

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
    """The one connection to the database. Closing it does nothing: it is the disk, not the process."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.errands: dict[trio.lowlevel.Task, _Errand] = {}  # by the task that commits a batch

    @property
    def errand(self) -> _Errand | None:
        return self.errands.get(trio.lowlevel.current_task()) if trio.lowlevel.in_trio_task() else None

    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(factory or _Cursor)

    def commit(self) -> None:
        errand = self.errand if self.in_transaction else None
        if errand is not None:
            try:
                errand.before_commit()
            except sqlite3.Error:
                self.rollback()
                raise
        super().commit()
        if errand is not None:
            errand.after_commit()

    def close(self) -> None:
        self.rollback()


class _Cursor(sqlite3.Cursor):
    """Lets the errand know of each statement that writes."""

    def execute(self, sql: str, parameters: Any = (), /) -> Self:
        self._tell(sql)
        return super().execute(sql, parameters)

    def executemany(self, sql: str, rows: Iterable[Any], /) -> Self:
        self._tell(sql)
        return super().executemany(sql, rows)

    def _tell(self, sql: str) -> None:
        connection = self.connection
        if isinstance(connection, _Connection) and connection.errand is not None and not _only_looks(sql):
            connection.errand.before_statement(sql)


def _only_looks(sql: str) -> bool:
    return sql.lstrip()[:6].upper() in ("SELECT", "PRAGMA", "BEGIN")


def _down(trouble: Trouble) -> StoreDown:
    return StoreDown(f"the simulated store is down: {trouble}", outcome_known=trouble == "refused")


def copied(value: T, kind: Any) -> T:
    """A value of a type through the codec: equal, and nothing of it shared."""
    copy: T = msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=kind)
    return copy


def copied_batch(batch: Batch) -> Batch:
    """The same for a batch."""
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
