"""SQL conditions for the runs of a query: their statuses, and patterns of names."""

from __future__ import annotations

from collections.abc import Set

from sqlalchemy import Column, ColumnElement, Connection, TextClause, func, or_, true

from ..protocol.patterns import Patterns, Within
from ..protocol.states import Status
from . import schema


def conditions_of_status(statuses: Set[Status]) -> list[ColumnElement[bool] | TextClause]:
    """Return the conditions for a run's status. A database uses a partial index only if the query contains
    the condition of the index."""
    conditions: list[ColumnElement[bool] | TextClause] = [schema.runs.c.status.in_(sorted(statuses))]
    if Status.SUCCEEDED not in statuses:
        conditions.append(schema.NOT_SUCCEEDED)
    return conditions


def conditions_within(connection: Connection, within: Within | None) -> list[ColumnElement[bool]]:
    """Return the conditions for a run's handle and lane."""
    if within is None:
        return []
    columns = ((schema.runs.c.handle, within.handles), (schema.runs.c.lane, within.lanes))
    return [_fits(connection, column, allowed) for column, allowed in columns if allowed is not None]


def _fits(connection: Connection, column: Column[str], allowed: Patterns) -> ColumnElement[bool]:
    """Without LIKE, which ignores case in SQLite. Names are bytes in MySQL."""
    if "" in allowed.prefixes:
        return true()
    in_bytes = connection.dialect.name in ("mysql", "mariadb")
    begins = [
        func.substr(column, 1, len(prefix.encode() if in_bytes else prefix), type_=column.type) == prefix
        for prefix in allowed.prefixes
    ]
    return or_(column.in_(sorted(allowed.names)), *begins)
