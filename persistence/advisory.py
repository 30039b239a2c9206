"""The lock of a store on a server: an advisory lock, held by a separate connection.

The server holds the lock, so it excludes a second engine on any machine. It ends with its connection, so the
engine must query whether it still holds the lock. It does not work through a connection pooler in transaction
mode.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import Any

from .addresses import Address, Kind
from .drivers import CONNECT_TIMEOUT, connect, fileno
from .failures import StoreDown, classify, failure, in_use
from .timelimits import TimeLimit


class ServerLock:
    """The lock of one store, on the first of its servers that answers. Its methods block.

    `holder` is the application name of its connection, which the server shows as the holder of the lock.
    """

    def __init__(self, addresses: tuple[Address, ...], *, holder: str) -> None:
        self._addresses = addresses
        self._name = str(addresses[0])
        self._holder = holder
        self._dialect: _PostgresqlLock | _MysqlLock
        self._dialect = _PostgresqlLock() if addresses[0].kind == "postgresql" else _MysqlLock()
        self._connection: Any = None
        self._held = False  # whether the connection had the lock at the last check
        self._session: int | None = None  # the server's id of the connection, also of a lost one
        self._ends_when_idle: Any = None  # the connection with an idle timeout

    def acquire(self) -> None:
        if self.check():
            return
        before = self._session
        try:
            self._connection = connect(self._addresses, name=self._holder)
            with self._limited():
                holder = self._dialect.acquire(self._connection)
                self._session = self._dialect.session(self._connection)
            self._held = holder is None
        except Exception as error:
            self.release()
            failed = failure(error, self._name, committing=False)
            if failed is None:
                raise
            raise failed from error
        if holder is None:
            return
        self.release()
        session, description = holder
        self._session = before
        if session is not None and session == before:
            raise StoreDown(
                f"the store is unavailable: {self._name}: a lost connection of this engine still holds "
                f"its lock ({description})"
            )
        raise in_use(self._addresses[0], description)

    def check(self) -> bool:
        if self._connection is None:
            return False
        try:
            with self._limited():
                held = self._dialect.is_held(self._connection)
        except Exception as error:
            if classify(error) is None:
                raise
            held = False
        if not held:
            self.release()
        return held

    def connection(self, idle: float) -> Any:
        """Return the lock's connection, for short statements, each in its own transaction.

        Replaces a lost connection. The new one may not get the lock, if another engine has it: the lease
        decides. From the first call on, the server closes the connection after `idle` seconds without a
        statement. Otherwise it would keep the lock for hours after the client's machine has failed.
        """
        if self._connection is None:
            connection = connect(self._addresses, name=self._holder)
            self._held = self._dialect.acquire(connection) is None
            self._session = self._dialect.session(connection)
            self._connection = connection
        elif not self._held:
            self._held = self._dialect.acquire(self._connection) is None
        if self._ends_when_idle is not self._connection:
            self._dialect.end_when_idle(self._connection, idle)
            self._ends_when_idle = self._connection
        return self._connection

    def drop(self) -> None:
        """Close a failed connection; the next call connects again."""
        connection, self._connection = self._connection, None
        self._ends_when_idle = None
        if connection is not None:
            with suppress(Exception):  # the connection has failed already
                connection.close()

    def abort(self) -> None:
        """Make a call that waits for the server fail immediately. Can be called from another thread."""
        connection = self._connection
        if connection is not None:
            shut_down(self._addresses[0].kind, connection)

    def release(self) -> None:
        """Release the lock explicitly, which is faster than by closing the connection."""
        if self._connection is not None:
            try:
                try:
                    with self._limited():
                        self._dialect.release(self._connection)
                finally:
                    connection, self._connection = self._connection, None
                    connection.close()
            except Exception as error:
                if classify(error) is None:
                    raise

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """Close the connection if the server does not answer in time."""
        with TimeLimit(CONNECT_TIMEOUT) as limit:
            with suppress(OSError, AttributeError):  # a closed connection has no socket, and fails below
                limit.start(fileno(self._addresses[0].kind, self._connection))
            yield


Holder = tuple[int | None, str]
"""The server's id of a session, if known, and a description of the session."""


def shut_down(kind: Kind, connection: Any) -> None:
    """Make a call on this connection fail immediately, from another thread."""
    with (
        suppress(Exception),  # it may just be closing
        socket.socket(fileno=os.dup(fileno(kind, connection))) as opened,
    ):
        opened.shutdown(socket.SHUT_RDWR)


class _PostgresqlLock:
    """PostgreSQL's locks belong to a database; the key also depends on the schema."""

    def acquire(self, connection: Any) -> Holder | None:
        """Take the lock, or return its holder."""
        connection.autocommit = True
        key = self._key(connection)
        [taken] = connection.execute("SELECT pg_try_advisory_lock(%s)", [key]).fetchone()
        if taken:
            return None
        found = connection.execute(
            "SELECT pid, application_name, host(client_addr), "
            "to_char(backend_start, 'YYYY-MM-DD HH24:MI:SS TZ') "
            "FROM pg_locks JOIN pg_stat_activity USING (pid) "
            "WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND datname = current_database() "
            "AND database = datid AND (classid::bigint << 32 | objid::bigint) = %s",
            [key],
        ).fetchone()
        if found is None:
            return None, "which has just ended: retry"
        pid, name, host, since = found
        words = [
            name or "unnamed application",
            f"from {host}" if host else "",
            f"since {since}" if since else "",
        ]
        return pid, f"{', '.join(filter(None, words))}; server process {pid}"

    def is_held(self, connection: Any) -> bool:
        [held] = connection.execute(
            "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 "
            "AND pid = pg_backend_pid() AND (classid::bigint << 32 | objid::bigint) = %s)",
            [self._key(connection)],
        ).fetchone()
        return bool(held)

    def release(self, connection: Any) -> None:
        connection.execute("SELECT pg_advisory_unlock_all()")

    def end_when_idle(self, connection: Any, seconds: float) -> None:
        if connection.info.server_version >= 140_000:  # an older one relies on its keepalives
            connection.execute(f"SET idle_session_timeout = '{math.ceil(seconds)}s'")

    def session(self, connection: Any) -> int:
        return int(connection.info.backend_pid)

    @staticmethod
    def _key(connection: Any) -> int:
        [schema] = connection.execute("SELECT current_schema()").fetchone()
        return int.from_bytes(_digest(schema or ""), "big", signed=True)


class _MysqlLock:
    """MySQL's locks belong to the server, so the name of the lock contains the database."""

    def acquire(self, connection: Any) -> Holder | None:
        """Take the lock, or return its holder."""
        connection.autocommit(True)
        with connection.cursor() as cursor:
            # The connection is idle between checks, and must not be closed for that.
            cursor.execute("SET SESSION wait_timeout = 31536000")
            name = self._name(cursor)
            cursor.execute("SELECT GET_LOCK(%s, 0)", [name])
            if cursor.fetchone() == (1,):
                return None
            cursor.execute(
                "SELECT id, user, host FROM information_schema.processlist WHERE id = IS_USED_LOCK(%s)",
                [name],
            )
            found = cursor.fetchone()
        if found is None:
            return None, "not visible to this user"
        session, user, host = found
        return int(session), f"user {user} from {host}; server connection {session}"

    def is_held(self, connection: Any) -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT IS_USED_LOCK(%s) = CONNECTION_ID()", [self._name(cursor)])
            return bool(cursor.fetchone() == (1,))

    def end_when_idle(self, connection: Any, seconds: float) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION wait_timeout = %s", [math.ceil(seconds)])

    def release(self, connection: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT RELEASE_LOCK(%s)", [self._name(cursor)])

    def session(self, connection: Any) -> int:
        return int(connection.thread_id())

    @staticmethod
    def _name(cursor: Any) -> str:
        cursor.execute("SELECT DATABASE()")
        [database] = cursor.fetchone()
        return f"greenroom:{_digest(database).hex()}"


def _digest(name: str) -> bytes:
    return blake2b(f"greenroom store {name}".encode(), digest_size=8).digest()
