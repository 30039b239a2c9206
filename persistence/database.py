"""Access to the databases SQLite, PostgreSQL, MySQL and MariaDB.

`DatabaseManager` uses SQLAlchemy's synchronous engine and its pool in worker threads, at most as many as
there are connections. A store passes functions that take a connection; each call is one transaction. Only
commits to SQLite bypass SQLAlchemy and use their own thread (`persistence/writer.py`). It knows no tables.

Errors of the database are raised as `StoreDown` or `StoreBroken` (`persistence/failures.py`). Errors of the
function are raised unchanged, after a rollback.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import trio
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import QueuePool, StaticPool

from .addresses import Address, parse_addresses
from .drivers import (
    BEGIN,
    CONNECT_TIMEOUT,
    SQLALCHEMY_URL,
    call_timeout,
    connect,
    driver,
    fileno,
    refuse_a_failed_transaction,
)
from .failures import StoreBroken, StoreDown, failure, timed_out
from .filewatch import FileWatch
from .retry import with_retry
from .timelimits import TimeLimit
from .writer import PlainConnection, WriterThread

T = TypeVar("T")
Connect = Callable[[Sequence[Address]], Any]

POOL_SIZE = 5
MAX_OVERFLOW = 10
LONG_CALL = 300.0
"""The time limit of a long call, in seconds: reading all pending runs, pruning."""
_READS = "greenroom_reads"


class DatabaseManager:
    """One store's database. `stores` are its addresses, primary first; the constructor checks them.

    With `in_threads=False`, calls block the event loop: for simulation and `:memory:`. `connect` connects to
    the first of the addresses that accepts a connection.
    """

    def __init__(
        self,
        stores: str | Iterable[str | Address],
        *,
        in_threads: bool = True,
        connect: Connect = connect,
    ) -> None:
        self._connect = connect
        self.addresses = parse_addresses(stores)
        self.kind = self.addresses[0].kind
        self.name = str(self.addresses[0])
        self.in_threads = in_threads
        self.when_damaged: Callable[[StoreBroken], None] | None = None
        """Called in trio's thread when an error shows that the stored data is damaged."""
        self._engine: Engine | None = None
        self._memory: Any = None  # the only connection to a SQLite database in memory
        self._anchor: Any = None
        self._files: FileWatch | None = None  # of a SQLite file
        connections = 1 if self.addresses[0].in_memory else POOL_SIZE + MAX_OVERFLOW
        self._readers = trio.CapacityLimiter(connections)
        self._writers = self._readers
        if self.kind == "sqlite" and connections > 1:
            # SQLite has one writer at a time. Here writers wait in order; SQLite's busy handler polls.
            self._writers = trio.CapacityLimiter(1)
            self._readers.total_tokens -= 1
        self._plain: PlainConnection | None = None  # for commits to SQLite
        self._thread: WriterThread | None = None  # which executes the commits
        self.call_timeout = max(call_timeout(address) for address in self.addresses)
        self._calls = threading.local()

    @property
    def engine(self) -> Engine:
        """SQLAlchemy's engine, while the database is open."""
        if self._engine is None:
            raise self._not_open()
        return self._engine

    def _not_open(self) -> StoreDown:
        return StoreDown(f"the store is unavailable: {self.name}: it is not open")

    async def open(self) -> None:
        """Create the pool, and test the database with one connection."""
        assert self._engine is None, f"{self.name} is already open"
        self._engine = await self._call(self._writers, self._make_engine)
        try:
            await self.read(lambda connection: connection.exec_driver_sql("SELECT 1").scalar())
            if self.kind == "sqlite" and not self.addresses[0].in_memory:
                await self._call(self._writers, self._watch_files)
            if self.kind == "sqlite":
                self._begin_commits()
        except BaseException:
            with trio.CancelScope(shield=True):
                await self.close()
            raise

    async def close(self) -> None:
        """Close all connections after the calls on them have ended. It can be called again."""
        engine, self._engine = self._engine, None
        if engine is None:
            return
        with trio.CancelScope(shield=True):
            for limiter in {self._readers, self._writers}:
                borrowers = [object() for _ in range(int(limiter.total_tokens))]
                for borrower in borrowers:
                    await limiter.acquire_on_behalf_of(borrower)
                for borrower in borrowers:
                    limiter.release_on_behalf_of(borrower)
            await self._call(self._writers, partial(self._dispose, engine))

    async def run(
        self,
        fn: Callable[[Connection], T],
        *,
        limit: float | None = None,
        then: Callable[[], object] | None = None,
    ) -> T:
        """Call the function in one transaction, which is rolled back if the function raises.

        If this raises `Cancelled`, the function was not called; once it is called, a cancel waits for it.
        The function must not catch errors of the database: a transaction cannot continue after one.
        If the server does not answer within `limit` seconds (`call_timeout` by default), raises `StoreDown`.
        After the commit, `then` is called in the same thread.
        """
        return await self._call(
            self._writers, partial(self._transaction, fn, reads=False, limit=limit, then=then)
        )

    async def read(self, fn: Callable[[Connection], T], *, limit: float | None = None) -> T:
        """Call the function in a read-only transaction, which sees one consistent state of the database."""
        return await self._call(self._readers, partial(self._transaction, fn, reads=True, limit=limit))

    async def check(self) -> None:
        """Raise `StoreBroken` if the database's file is not the one that was opened."""
        if self._files is not None:
            await self._call(self._readers, self._files.check)

    async def with_retry(
        self,
        fn: Callable[[Connection], T],
        *,
        again: Callable[[Connection], T] | None = None,
        limit: float | None = None,
        then: Callable[[], object] | None = None,
    ) -> T:
        """Like `run`, with retries after 1, 2 and 4 seconds for a transient error (a lost connection, a
        deadlock, a busy database), each in a new session.

        `fn` must be idempotent. If it is not, pass `again`: it is called instead of `fn` after a commit with
        an unknown outcome, and must first check whether that commit succeeded.
        """
        return await with_retry(
            partial(self.run, fn, limit=limit, then=then),
            partial(self.run, again or fn, limit=limit, then=then),
        )

    async def commit(
        self,
        fn: Callable[[Any], T],
        *,
        again: Callable[[Any], T] | None = None,
        limit: float | None = None,
        then: Callable[[], object] | None = None,
    ) -> T:
        """Like `with_retry`, for functions that take a cursor of the driver, without SQLAlchemy."""
        if self.kind == "sqlite":
            return await with_retry(
                partial(self._commit_plain, fn, then), partial(self._commit_plain, again or fn, then)
            )
        return await self.with_retry(
            lambda connection: fn(connection.connection.cursor()),
            again=None if again is None else lambda connection: again(connection.connection.cursor()),
            limit=limit,
            then=then,
        )

    async def _commit_plain(self, fn: Callable[[Any], T], then: Callable[[], object] | None) -> T:
        plain = self._plain
        if plain is None or self._engine is None:
            raise self._not_open()
        return await self._call(self._writers, partial(plain.transaction, fn, then), thread=self._thread)

    async def _call(
        self,
        limiter: trio.CapacityLimiter,
        function: Callable[[], T],
        *,
        thread: WriterThread | None = None,
    ) -> T:
        try:
            if not self.in_threads:
                await trio.lowlevel.checkpoint()
                return function()
            if thread is None:
                return await trio.to_thread.run_sync(function, limiter=limiter)
            try:
                limiter.acquire_nowait()
            except trio.WouldBlock:
                await limiter.acquire()
            try:
                return await thread.call(function)
            finally:
                limiter.release()
        except StoreBroken as error:
            if error.damaged and self.when_damaged is not None:
                self.when_damaged(error)
            raise

    def _make_engine(self) -> Engine:
        driver(self.kind)  # reports a missing driver with its remedy
        url = SQLALCHEMY_URL[self.kind]
        creator = partial(self._connect, self.addresses) if self.kind == "sqlite" else self._connect_limited
        if self.addresses[0].in_memory:
            self._memory = self._connect(self.addresses)
            creator = lambda: self._memory  # noqa: E731
            engine = create_engine(url, creator=creator, poolclass=StaticPool, hide_parameters=True)
        else:
            server = self.kind != "sqlite"
            engine = create_engine(
                url,
                creator=creator,
                poolclass=QueuePool,
                pool_size=POOL_SIZE,
                max_overflow=MAX_OVERFLOW,
                pool_timeout=30,
                pool_recycle=300 if server else -1,
                pool_pre_ping=server,
                hide_parameters=True,  # users' data must not appear in logs
            )
        event.listen(engine, "begin", self._begin)
        if self.kind != "sqlite":
            setattr(engine.dialect, "do_ping", partial(self._ping, engine.dialect.do_ping))  # noqa: B010
        return engine

    def _connect_limited(self) -> Any:
        """Connect, and limit the time of the queries that SQLAlchemy sends on its first connection."""
        connection = self._connect(self.addresses)
        self._calls.limit.start(fileno(self.kind, connection))
        return connection

    def _ping(self, ping: Callable[[Any], bool], connection: Any) -> bool:
        """Whether a connection from the pool is alive, which means that it answers in time."""
        with TimeLimit(CONNECT_TIMEOUT) as limit:
            limit.start(fileno(self.kind, connection))
            return ping(connection)

    def _watch_files(self) -> None:
        """Record which files were opened. One connection outside of the pool keeps SQLite from removing and
        recreating the `-wal`."""
        try:
            self._anchor = self._connect(self.addresses)
            self._anchor.execute("SELECT count(*) FROM sqlite_master").fetchone()
            self._files = FileWatch(self.addresses[0])
        except Exception as error:
            failed = failure(error, self.name, committing=False)
            if failed is None:
                raise
            raise failed from error

    def _begin_commits(self) -> None:
        in_memory = self.addresses[0].in_memory
        connect = (lambda: self._memory) if in_memory else partial(self._connect, self.addresses)
        self._plain = PlainConnection(connect, self.name, self._files, shared=in_memory)
        if self.in_threads and not in_memory:
            self._thread = WriterThread("greenroom writer")
            self._thread.start()

    def _dispose(self, engine: Engine) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()
        plain, self._plain = self._plain, None
        if plain is not None:
            plain.close()
        files, self._files = self._files, None
        engine.dispose()
        if self._anchor is not None:
            anchor, self._anchor = self._anchor, None
            anchor.close()
        if files is not None:
            files.close()

    def _begin(self, connection: Connection) -> None:
        for statement in BEGIN[self.kind, connection.get_execution_options().get(_READS, False)]:
            connection.exec_driver_sql(statement)

    def _transaction(
        self,
        fn: Callable[[Connection], T],
        *,
        reads: bool,
        limit: float | None = None,
        then: Callable[[], object] | None = None,
    ) -> T:
        committing = False
        with TimeLimit(limit or self.call_timeout) as time_limit:
            self._calls.limit = time_limit
            try:
                if self._files is not None:
                    self._files.check()
                with (
                    self.engine.connect() as connection
                ):  # which rolls back an uncommitted transaction at its end
                    if self.kind != "sqlite":
                        time_limit.start(fileno(self.kind, connection.connection.driver_connection))
                    connection = connection.execution_options(**{_READS: reads})
                    transaction = connection.begin()
                    result = fn(connection)
                    if not reads:
                        refuse_a_failed_transaction(self.kind, connection.connection.driver_connection)
                        committing = True
                        transaction.commit()
                        if self._files is not None:
                            self._files.check(outcome_known=False)
                        if then is not None:
                            then()
                    return result
            except Exception as error:
                failed = failure(error, self.name, committing=committing)
                if failed is None:
                    raise
                if time_limit.exceeded:
                    failed = timed_out(self.name, time_limit.seconds, outcome_known=not committing)
                raise failed from error
