"""Which version the tables of a database have, and whether this code knows it."""

from __future__ import annotations

from sqlalchemy import Connection, column, inspect, select, table

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
