"""Commands for a store's schema without an engine: its version, a check of its tables, and upgrades.

The tables of a server are created and upgraded here, by command, from the revisions in
`persistence/migrations/`. The engine creates and upgrades the tables of a SQLite database when it opens it.
Alembic's own table contains the revision of a server; the same transaction sets `meta.schema_version`, which
an engine checks, to the same number.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import trio
from sqlalchemy import Connection, inspect, select, update

from ..protocol.errors import Invalid
from . import schema
from .addresses import Address, Kind
from .database import LONG_CALL, DatabaseManager
from .failures import StoreBroken, newer_version
from .locks import StoreLock
from .pruning import prune
from .store import Retention
from .storelease import refuse_if_held
from .traces import LockTrace, Trace, contradiction, fits
from .versions import found_version, migrate_file, require_version

_REVISIONS = Path(__file__).with_name("migrations")
_PRUNED_AT_ONCE = 500
_NO_LIMIT = 365 * 86_400.0
"""The time limit of a migration, in seconds: practically none, because it can rewrite every row."""


@asynccontextmanager
async def opened(
    stores: str | Iterable[str], *, alone: bool, make: bool = False
) -> AsyncIterator[DatabaseManager]:
    """Open a store's database for a command.

    `alone`: refuse if an engine has the store. `make`: create a missing SQLite file, which else is an error.
    """
    database = DatabaseManager(stores)
    [first, *_] = database.addresses
    if first.in_memory:
        raise Invalid("a store in memory exists only in its process: use a file or a server")
    if first.kind == "sqlite" and not make and not first.path.exists():
        raise StoreBroken(f"the store {database.name} does not exist: check its path")
    lock = StoreLock(database.addresses)
    if alone:
        await lock.acquire()
    try:
        await database.open()
        try:
            if alone:
                await database.read(partial(_refuse_beside_engine, address=first, lock=lock))
            yield database
        finally:
            await database.close()
    finally:
        await lock.release()


def _refuse_beside_engine(connection: Connection, address: Address, lock: StoreLock) -> None:
    """Check the lease as well as the lock: the engine may be cut off from the server at the moment."""
    if inspect(connection).has_table(schema.leases.name):
        refuse_if_held(connection, address, lock)


async def upgrade(stores: str | Iterable[str]) -> int | None:
    """Create or upgrade the tables; returns the previous version."""

    def migrate(connection: Connection) -> int | None:
        before = found_version(connection)
        if database.kind == "sqlite":
            migrate_file(connection, database.name)
            return before
        if before is not None and before > schema.SCHEMA_VERSION:
            raise newer_version(database.name, before, schema.SCHEMA_VERSION)
        _run_revisions(connection, database.kind)
        connection.execute(update(schema.meta).values(schema_version=schema.SCHEMA_VERSION))
        return before

    async with opened(stores, alone=True, make=True) as database:
        return await database.run(migrate, limit=_NO_LIMIT)


async def current(stores: str | Iterable[str]) -> int | None:
    """Return the schema version of a store; `None` if it has no tables of Greenroom."""
    async with opened(stores, alone=False) as database:
        return await database.read(found_version)


async def check(stores: str | Iterable[str]) -> list[str]:
    """Check the store's tables; returns a line for each fault. Raises `StoreBroken` for another version."""

    def look(connection: Connection) -> list[str]:
        require_version(connection, database.name)
        if database.kind == "sqlite":
            fault = " ".join(connection.exec_driver_sql("PRAGMA quick_check(1)").scalars().all())
            if fault != "ok":
                return [f"the file is damaged, restore it from a backup ({fault})"]
            row = connection.execute(select(schema.meta.c.epoch, schema.meta.c.last_seq)).first()
            found = None if row is None else Trace(row.epoch, row.last_seq)
            if known is None or fits(found, known):
                return []
            return [
                contradiction(database.name, found, [lock_trace]) or "the store has changed during the check"
            ]
        return [str(difference) for difference in differences(connection, database.kind)]

    async with opened(stores, alone=False) as database:
        lock_trace = LockTrace(f"{database.addresses[0].path}.lock")
        is_synced = database.addresses[0].parameters.get("synchronous") != "normal"
        known = (
            lock_trace.trace() if is_synced else None
        )  # before reading the store: an engine may be committing
        return await database.read(look, limit=LONG_CALL)


async def prune_all(stores: str | Iterable[str], retention: Retention, now: float) -> int:
    """Delete everything that need not be kept; returns the number of deleted runs and events."""

    def some(connection: Connection) -> int:
        return prune(connection, retention, now, _PRUNED_AT_ONCE)

    async with opened(stores, alone=True) as database:
        await database.read(lambda connection: require_version(connection, database.name))
        forgotten = 0
        while count := await database.run(some, limit=LONG_CALL):
            forgotten += count
            await trio.lowlevel.checkpoint()
        return forgotten


def differences(connection: Connection, kind: Kind) -> list[Any]:
    """Return the differences that Alembic finds between a server's tables and `schema`."""
    migration = _alembic("alembic.runtime.migration", kind)

    def is_ours(name: str | None, what: str, parents: object) -> bool:
        return what != "table" or name in schema.metadata.tables

    context = migration.MigrationContext.configure(connection, opts={"include_name": is_ours})
    found: list[Any] = _alembic("alembic.autogenerate", kind).compare_metadata(context, schema.metadata)
    return found


def _run_revisions(connection: Connection, kind: Kind) -> None:
    """Upgrade a server's tables to the newest revision."""
    context = _alembic("alembic.runtime.migration", kind).MigrationContext.configure(connection)
    script = _alembic("alembic.script", kind).ScriptDirectory(_REVISIONS, version_locations=[_REVISIONS])
    before = context.get_current_revision()
    newer = list(script.iterate_revisions("heads", before or "base"))
    with _alembic("alembic.operations", kind).Operations.context(context):
        for revision in reversed(newer):
            revision.module.upgrade()
            context.stamp(script, revision.revision)


def _alembic(module: str, kind: Kind) -> Any:
    """Import a module of Alembic, which is installed only with the drivers of servers."""
    try:
        return import_module(module)
    except ImportError as error:
        extra = "postgres" if kind == "postgresql" else "mysql"
        raise StoreBroken(
            f'Alembic is not installed ({error}): install it with pip install "greenroom[{extra}]"'
        ) from error
