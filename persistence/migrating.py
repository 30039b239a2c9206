"""The schema of a store, from outside of an engine: which version it has, whether it is sound, and upgrades.

A server's tables are made and upgraded here, by command, from the revisions in `persistence/migrations/`.
A SQLite database needs none of that: the engine makes its tables when it opens it. Alembic's own table tells
which revision a server has; `meta.schema_version`, which an engine looks at, is brought to the same number in
the same transaction.
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
"""Seconds for a migration: somebody waits for it, and it may have to rewrite every row."""


@asynccontextmanager
async def opened(
    stores: str | Iterable[str], *, alone: bool, make: bool = False
) -> AsyncIterator[DatabaseManager]:
    """A store's database for a command. `alone`: refused while an engine has the store. `make`: a SQLite
    file that isn't there is made; else that is an error."""
    database = DatabaseManager(stores)
    [first, *_] = database.addresses
    if first.in_memory:
        raise Invalid("a store in memory is gone with its process: name a file or a server")
    if first.kind == "sqlite" and not make and not first.path.exists():
        raise StoreBroken(f"the store {database.name} is not there: check its path")
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
    """An engine's lease counts where its lock is not seen: it may be cut off from the server just now."""
    if inspect(connection).has_table(schema.leases.name):
        refuse_if_held(connection, address, lock)


async def upgrade(stores: str | Iterable[str]) -> int | None:
    """Make or upgrade the tables; returns the version that there was."""

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
    """The schema version that the store has; `None` if it has none of our tables."""
    async with opened(stores, alone=False) as database:
        return await database.read(found_version)


async def check(stores: str | Iterable[str]) -> list[str]:
    """What is wrong with the store's tables: nothing, or a line for each fault. Raises if its version does
    not fit."""

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
            return [contradiction(database.name, found, [lock_trace]) or "the store has changed meanwhile"]
        return [str(difference) for difference in differences(connection, database.kind)]

    async with opened(stores, alone=False) as database:
        lock_trace = LockTrace(f"{database.addresses[0].path}.lock")
        is_synced = database.addresses[0].parameters.get("synchronous") != "normal"
        known = lock_trace.trace() if is_synced else None  # before the look: an engine may be committing
        return await database.read(look, limit=LONG_CALL)


async def prune_all(stores: str | Iterable[str], retention: Retention, now: float) -> int:
    """Forget everything that need not be kept; returns how many runs and events that were."""

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
    """In what a server's tables differ from those that this code knows, as Alembic sees it."""
    migration = _alembic("alembic.runtime.migration", kind)

    def is_ours(name: str | None, what: str, parents: object) -> bool:
        return what != "table" or name in schema.metadata.tables

    context = migration.MigrationContext.configure(connection, opts={"include_name": is_ours})
    found: list[Any] = _alembic("alembic.autogenerate", kind).compare_metadata(context, schema.metadata)
    return found


def _run_revisions(connection: Connection, kind: Kind) -> None:
    """Bring a server's tables to the newest revision."""
    context = _alembic("alembic.runtime.migration", kind).MigrationContext.configure(connection)
    script = _alembic("alembic.script", kind).ScriptDirectory(_REVISIONS, version_locations=[_REVISIONS])
    before = context.get_current_revision()
    newer = list(script.iterate_revisions("heads", before or "base"))
    with _alembic("alembic.operations", kind).Operations.context(context):
        for revision in reversed(newer):
            revision.module.upgrade()
            context.stamp(script, revision.revision)


def _alembic(module: str, kind: Kind) -> Any:
    """A module of Alembic, which comes with the drivers of servers only."""
    try:
        return import_module(module)
    except ImportError as error:
        extra = "postgres" if kind == "postgresql" else "mysql"
        raise StoreBroken(
            f'Alembic is missing ({error}): install it with pip install "greenroom[{extra}]"'
        ) from error
