"""Which runs a query asks for, as conditions of SQL: their statuses, and patterns of names."""

from __future__ import annotations

from collections.abc import Set

from sqlalchemy import Column, ColumnElement, Connection, TextClause, func, or_, true

from ..protocol.patterns import Patterns, Within
from ..protocol.states import Status
from . import schema


def conditions_of_status(statuses: Set[Status]) -> list[ColumnElement[bool] | TextClause]:
    """The status of a run is one of these. A database uses the index of some rows only for a query that
    repeats its condition."""
    conditions: list[ColumnElement[bool] | TextClause] = [schema.runs.c.status.in_(sorted(statuses))]
    if Status.SUCCEEDED not in statuses:
        conditions.append(schema.NOT_SUCCEEDED)
    return conditions


def conditions_within(connection: Connection, within: Within | None) -> list[ColumnElement[bool]]:
    """What the handle and the lane of a run must fit."""
    if within is None:
        return []
    columns = ((schema.runs.c.handle, within.handles), (schema.runs.c.lane, within.lanes))
    return [_fits(connection, column, allowed) for column, allowed in columns if allowed is not None]


def _fits(connection: Connection, column: Column[str], allowed: Patterns) -> ColumnElement[bool]:
    """No LIKE, which takes capitals for small letters in SQLite. MySQL has names as bytes."""
    if "" in allowed.prefixes:
        return true()
    in_bytes = connection.dialect.name in ("mysql", "mariadb")
    begins = [
        func.substr(column, 1, len(prefix.encode() if in_bytes else prefix), type_=column.type) == prefix
        for prefix in allowed.prefixes
    ]
    return or_(column.in_(sorted(allowed.names)), *begins)
