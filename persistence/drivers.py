"""The drivers of each kind of database: how to connect, session settings, and how a transaction begins.

This file contains all differences between SQLite, PostgreSQL and MySQL or MariaDB below SQL. It connects
instead of SQLAlchemy, so that one address and several are handled alike. Therefore it also sets what
SQLAlchemy's dialects set for a URL.

Everything here blocks: `persistence/database.py` and `persistence/locks.py` call it in worker threads.
"""

from __future__ import annotations

import math
import socket
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from sqlalchemy import Connection

from .addresses import Address, Kind
from .failures import NoAddressAnswers, Refusal, StoreBroken, missing_driver
from .timelimits import TimeLimit

CONNECT_TIMEOUT = 5
"""The time limit for connecting to one address, including the log-in, in seconds. Also the time limit for the
check whether a connection is alive."""

CALL_TIMEOUT = 10.0
"""The time limit of a call to a server, in seconds: a transaction including its commit."""

SQLALCHEMY_URL: dict[Kind, str] = {
    "sqlite": "sqlite+pysqlite://",
    "postgresql": "postgresql+psycopg://",
    "mysql": "mysql+pymysql://",
}

BEGIN: dict[tuple[Kind, bool], tuple[str, ...]] = {
    # A writer takes its lock first: if it read first, it would fail instead of waiting for another writer.
    ("sqlite", False): ("BEGIN IMMEDIATE",),
    ("sqlite", True): ("BEGIN",),
    ("postgresql", False): (),  # the drivers of servers begin transactions
    ("postgresql", True): ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",),
    ("mysql", False): (),
    ("mysql", True): ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",),
}
"""The statements that begin a transaction, by kind and by whether it is read-only."""

IDLE_IN_TRANSACTION = 60.0
"""Seconds after which a server ends a transaction whose client was cut off, and releases its row locks."""

_USUAL_CACHE = "PRAGMA cache_size=-64000"
_SMALL_CACHE = "PRAGMA cache_size=-8000"

# A dead peer is detected within a minute, also while waiting for its answer.
_KEEPALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}

# The same on the server's side, or a lost connection would keep its locks there for hours.
_SETTINGS = "; ".join(f"SET tcp_{name} = {value}" for name, value in _KEEPALIVE.items())


def driver(kind: Kind) -> ModuleType:
    """Return the driver's module. Raises `StoreBroken` with the remedy if it is not installed."""
    try:
        return import_module({"sqlite": "sqlite3", "postgresql": "psycopg", "mysql": "pymysql"}[kind])
    except ImportError as error:
        raise missing_driver(kind, error) from error


def connect(
    addresses: Sequence[Address], *, name: str | None = None, idle: float = IDLE_IN_TRANSACTION
) -> Any:
    """Connect to the first address that accepts a connection, in this order. No transaction has begun.

    `name` is the application name that the server shows, instead of the address's. The server ends a
    transaction after `idle` seconds without a statement (MySQL and MariaDB: every session).
    """
    [kind] = {address.kind for address in addresses}
    module = driver(kind)
    if kind == "sqlite":
        return _connect_sqlite(addresses[0])
    connect_one = _connect_postgresql if kind == "postgresql" else _connect_mysql
    refusals: list[Refusal] = []
    for address in addresses:
        try:
            return connect_one(module, address, name, idle)
        except Exception as error:
            refusals.append(Refusal(address, error))
    raise NoAddressAnswers(refusals)


def call_timeout(address: Address) -> float:
    """Return the time limit of a call for this address, in seconds; at least its limit for one statement."""
    given = address.parameters
    chosen: float = given.get("call_timeout", max(CALL_TIMEOUT, given.get("command_timeout", 0)))
    return chosen


def fileno(kind: Kind, connection: Any) -> int:
    """Return the file descriptor of the socket of a connection to a server."""
    return int(connection.fileno() if kind == "postgresql" else connection._sock.fileno())


def autocommit(kind: Kind, connection: Any) -> None:
    """Make each statement of a connection to a server a transaction of its own."""
    if kind == "postgresql":
        connection.autocommit = True
    else:
        connection.autocommit(True)


def refuse_a_failed_transaction(kind: Kind, connection: Any) -> None:
    """Raise for a failed transaction: PostgreSQL answers its COMMIT with a ROLLBACK and reports success."""
    if kind == "postgresql" and connection.info.transaction_status.name == "INERROR":
        raise StoreBroken("cannot commit the transaction: one of its statements failed")


@contextmanager
def reading_once(connection: Connection) -> Iterator[None]:
    """In the block, SQLite caches little: what reads a whole store needs each page once."""
    if connection.dialect.name != "sqlite":
        yield
        return
    connection.exec_driver_sql(_SMALL_CACHE)
    try:
        yield
    finally:
        connection.exec_driver_sql(_USUAL_CACHE)


def _connect_sqlite(address: Address) -> sqlite3.Connection:
    connection = sqlite3.connect(
        address.database,
        timeout=5,
        isolation_level=None,  # no BEGIN by the driver, only those above
        check_same_thread=False,  # the pool passes it between threads, one at a time
    )
    try:
        connection.execute("PRAGMA busy_timeout=5000")
        [mode] = connection.execute("PRAGMA journal_mode=WAL").fetchone()
        if mode != "wal" and not address.in_memory:
            raise StoreBroken(
                f"cannot use the store {address}: its file system does not support SQLite's write-ahead log "
                "(network file systems do not); move it to a local disk"
            )
        connection.execute(f"PRAGMA synchronous={address.parameters.get('synchronous', 'full')}")
        connection.execute(_USUAL_CACHE)
        # Up to 32 MB in the -wal file: page writes coalesce there, and the database is synced less often.
        connection.execute("PRAGMA wal_autocheckpoint=8000")
        connection.execute("PRAGMA foreign_keys=ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_postgresql(psycopg: Any, address: Address, name: str | None, idle: float) -> Any:
    given = address.parameters
    verified = "verify-full" if "ssl_ca" in given else "require" if "ssl_cert" in given else None
    timeout = given.get("command_timeout")
    connection = psycopg.connect(
        host=address.host,
        port=address.port,
        user=address.user,
        password=address.password,
        dbname=address.database,
        connect_timeout=CONNECT_TIMEOUT,
        application_name=name or given.get("application_name", "greenroom"),
        options=f"-c statement_timeout={round(timeout * 1000)}" if timeout else None,
        sslmode=given.get("sslmode", verified),
        sslrootcert=given.get("ssl_ca"),
        sslcert=given.get("ssl_cert"),
        sslkey=given.get("ssl_key", given.get("ssl_cert")),
        target_session_attrs="read-write",  # refuse a standby, and try the next address
        tcp_user_timeout=60_000,
        **_KEEPALIVE,
    )
    with TimeLimit(CONNECT_TIMEOUT) as limit:
        limit.start(connection.fileno())
        try:
            limit_idle = f"SET idle_in_transaction_session_timeout = '{math.ceil(idle * 1000)}ms'"
            connection.execute(f"{limit_idle}; {_SETTINGS}")
            connection.commit()
        except BaseException:
            connection.close()
            raise
    return connection


def _connect_mysql(pymysql: Any, address: Address, name: str | None, idle: float) -> Any:
    given = address.parameters
    verify = True if "ssl_ca" in given else None
    connection = pymysql.connect(
        host=address.host,
        port=address.port or 0,
        user=address.user,
        password=(address.password or "").encode(),  # the driver would encode a str as Latin-1
        database=address.database,
        charset="utf8mb4",
        init_command=given.get("init_command"),
        program_name=name or given.get("program_name", "greenroom"),
        sql_mode="TRADITIONAL",  # strict: an invalid value is an error, independent of the server's default
        # Count matched rows, not changed rows: compare-and-sets rely on it.
        client_flag=import_module("pymysql.constants.CLIENT").FOUND_ROWS,
        ssl_ca=given.get("ssl_ca"),
        ssl_cert=given.get("ssl_cert"),
        ssl_key=given.get("ssl_key"),
        ssl_verify_cert=verify,
        ssl_verify_identity=verify,
        defer_connect=True,
    )
    opened = _socket(address)
    # The driver's own timeouts would apply to every later statement.
    with TimeLimit(CONNECT_TIMEOUT) as limit:
        limit.start(opened.fileno())
        try:
            connection.connect(opened)
            with connection.cursor() as cursor:
                # No gap locks, which cause deadlocks: consistent reads use a read-only transaction.
                cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
                # Ends the sessions of a process that was cut off; the pool replaces idle connections.
                cursor.execute(f"SET SESSION wait_timeout = {math.ceil(idle)}")
        except Exception as error:
            opened.close()
            if limit.exceeded:
                raise TimeoutError(f"timed out after {CONNECT_TIMEOUT} s") from error
            raise
    return connection


def _socket(address: Address) -> socket.socket:
    path = address.parameters.get("unix_socket")
    if path is not None:
        if not hasattr(socket, "AF_UNIX"):
            raise OSError(f"this system has no Unix sockets (unix_socket={path}): use a host and a port")
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connected.settimeout(CONNECT_TIMEOUT)
            connected.connect(path)
        except BaseException:
            connected.close()
            raise
        return connected
    connected = socket.create_connection((address.host or "localhost", address.port or 3306), CONNECT_TIMEOUT)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("IDLE", 30), ("INTVL", 10), ("CNT", 3)):
        if hasattr(socket, f"TCP_KEEP{option}"):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_KEEP{option}"), value)
    return connected
