"""The schema version of a database, and the upgrade of a SQLite database."""

from __future__ import annotations

from sqlalchemy import Connection, Table, column, func, inspect, select, table, update
from sqlalchemy.schema import CreateColumn

from . import schema
from .failures import newer_version, older_version

_ALEMBIC_VERSION = table("alembic_version", column("version_num"))
"""Alembic's own table, on servers."""


def found_version(connection: Connection) -> int | None:
    """Return the version of the tables; `None` if there are no tables of Greenroom."""
    tables = inspect(connection).get_table_names()
    if schema.meta.name not in tables:
        return None
    found = connection.scalar(select(schema.meta.c.schema_version))
    if found is None and _ALEMBIC_VERSION.name in tables:  # no engine has opened it yet
        revision = connection.scalar(select(_ALEMBIC_VERSION.c.version_num))
        return int(revision) if revision is not None else None
    return schema.SCHEMA_VERSION if found is None else found


def require_version(connection: Connection, store: str) -> None:
    """Raise `StoreBroken` for tables of another version than the supported one."""
    found = found_version(connection)
    if found is None or found < schema.SCHEMA_VERSION:
        raise older_version(store, "none" if found is None else found, schema.SCHEMA_VERSION)
    if found > schema.SCHEMA_VERSION:
        raise newer_version(store, found, schema.SCHEMA_VERSION)


def migrate_file(connection: Connection, store: str) -> None:
    """Create the tables of a SQLite database, or upgrade those of an older version, within the transaction.

    A newer version is refused, and nothing is changed.
    """
    found = found_version(connection)
    if found is not None and found > schema.SCHEMA_VERSION:
        raise newer_version(store, found, schema.SCHEMA_VERSION)
    schema.metadata.create_all(connection)
    if found is not None and found < schema.SCHEMA_VERSION:
        if found < 4:
            _rewrite_for_version_4(connection)
        _add_columns_and_indexes(connection)
        if found < 4:
            highest = select(func.coalesce(func.max(schema.runs.c.place), 0)).scalar_subquery()
            connection.execute(update(schema.meta).values(last_place=highest))
    connection.execute(update(schema.meta).values(schema_version=schema.SCHEMA_VERSION))


def _rewrite_for_version_4(connection: Connection) -> None:
    """Use the seq of events and messages as SQLite's row id, and drop indexes that contain unneeded rows."""
    for numbered in (schema.events, schema.messages):
        _rewrite(connection, numbered)
    for name in ("runs_by_status", "runs_by_end", "runs_by_place"):
        connection.exec_driver_sql(f"DROP INDEX IF EXISTS {name}")


def _rewrite(connection: Connection, wanted: Table) -> None:
    """Recreate a table with its rows. This needs the time and the disk space to write all of them again."""
    old = f"{wanted.name}_before"
    connection.exec_driver_sql(f"ALTER TABLE {wanted.name} RENAME TO {old}")
    for index in wanted.indexes:
        connection.exec_driver_sql(f"DROP INDEX IF EXISTS {index.name}")
    wanted.create(connection)
    columns = ", ".join(f'"{column.name}"' for column in wanted.columns)
    connection.exec_driver_sql(
        f"INSERT INTO {wanted.name} ({columns}) SELECT {columns} FROM {old} ORDER BY seq"
    )
    connection.exec_driver_sql(f"DROP TABLE {old}")


def _add_columns_and_indexes(connection: Connection) -> None:
    """Add the columns and indexes that are missing in tables of an older version."""
    inspector = inspect(connection)
    for wanted in schema.metadata.sorted_tables:
        existing = {column["name"] for column in inspector.get_columns(wanted.name)}
        for added in wanted.columns:
            if added.name not in existing:
                specification = CreateColumn(added).compile(dialect=connection.dialect)
                connection.exec_driver_sql(f"ALTER TABLE {wanted.name} ADD COLUMN {specification}")
        for index in wanted.indexes:
            index.create(connection, checkfirst=True)
