"""Which version the tables of a database have, and whether this code knows it."""

from __future__ import annotations

from sqlalchemy import Connection, Table, column, func, inspect, select, table, update
from sqlalchemy.schema import CreateColumn

from . import schema
from .failures import newer_version, older_version

_ALEMBIC_VERSION = table("alembic_version", column("version_num"))
"""Alembic's own table, on servers."""


def found_version(connection: Connection) -> int | None:
    """The version of the tables; `None` if there are none of ours."""
    tables = inspect(connection).get_table_names()
    if schema.meta.name not in tables:
        return None
    found = connection.scalar(select(schema.meta.c.schema_version))
    if found is None and _ALEMBIC_VERSION.name in tables:  # no engine has opened it yet
        revision = connection.scalar(select(_ALEMBIC_VERSION.c.version_num))
        return int(revision) if revision is not None else None
    return schema.SCHEMA_VERSION if found is None else found


def require_version(connection: Connection, store: str) -> None:
    """Refuse tables that are not of the version that this code knows."""
    found = found_version(connection)
    if found is None or found < schema.SCHEMA_VERSION:
        raise older_version(store, "none" if found is None else found, schema.SCHEMA_VERSION)
    if found > schema.SCHEMA_VERSION:
        raise newer_version(store, found, schema.SCHEMA_VERSION)


def migrate_file(connection: Connection, store: str) -> None:
    """Make the tables of a SQLite database, or bring those of an older version to this one. It is part of the
    transaction, so that all of it is there afterwards or nothing. A newer version is refused, untouched."""
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
    """Make the numbers of events and messages SQLite's own row numbers, and let go of indexes that have more
    than is looked for."""
    for numbered in (schema.events, schema.messages):
        _rewrite(connection, numbered)
    for name in ("runs_by_status", "runs_by_end", "runs_by_place"):
        connection.exec_driver_sql(f"DROP INDEX IF EXISTS {name}")


def _rewrite(connection: Connection, wanted: Table) -> None:
    """Make a table anew, with the rows that it has. That takes the time and the room to write them again."""
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
    """Add the columns and indexes that tables of an older version lack."""
    inspector = inspect(connection)
    for wanted in schema.metadata.sorted_tables:
        there = {column["name"] for column in inspector.get_columns(wanted.name)}
        for added in wanted.columns:
            if added.name not in there:
                specification = CreateColumn(added).compile(dialect=connection.dialect)
                connection.exec_driver_sql(f"ALTER TABLE {wanted.name} ADD COLUMN {specification}")
        for index in wanted.indexes:
            index.create(connection, checkfirst=True)
