"""The SQL text and the execution of a commit's statements, for each kind of database.

`persistence/writes.py` lists the statements by name. A batch takes a small constant number of round trips,
independent of its size. SQLite has no round trips, and PostgreSQL's driver pipelines the executions of one
statement. MySQL's driver combines rows for INSERT only, so an UPDATE of many rows is one statement that joins
a table of the new values. For SQLite, the text of a statement never changes, so the driver prepares it once.
Many new rows are one INSERT there, because the driver releases the interpreter's lock for each statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any

import attrs
from sqlalchemy import Table

from .addresses import Kind

Row = tuple[Any, ...]

_KEYS_AT_ONCE = 500
_ROWS_AT_ONCE = 64
_BYTES_AT_ONCE = 4 << 20


@attrs.frozen(eq=False)
class Insert:
    """Add rows: each has the values of these columns, the first of which is the key."""

    table: Table
    columns: tuple[str, ...]


@attrs.frozen(eq=False)
class Delete:
    """Remove the rows whose column is one of the keys."""

    table: Table
    column: str


@attrs.frozen(eq=False)
class Update:
    """Set columns of the rows with these keys if they satisfy the condition: each row has the values and then
    the key."""

    table: Table
    key: str
    columns: tuple[str, ...]
    where: str = ""


class Statements:
    """Executes statements with a driver's cursor, in the SQL of its database."""

    def __init__(self, kind: Kind, cursor: Any) -> None:
        self._kind = kind
        self._cursor = cursor

    def insert(self, what: Insert, rows: list[Row]) -> None:
        """Add rows."""
        if not rows:
            return
        sql = _insert(what, self._kind)
        if self._kind == "sqlite" and len(rows) >= _ROWS_AT_ONCE:
            whole = len(rows) // _ROWS_AT_ONCE * _ROWS_AT_ONCE
            for start in range(0, whole, _ROWS_AT_ONCE):
                self._one(_insert_many(what), _flat(rows[start : start + _ROWS_AT_ONCE]))
            rows = rows[whole:]
        if rows:
            self._many(sql, rows)

    def replace(self, what: Insert, rows: dict[Any, Row]) -> None:
        """Add rows by their keys, or replace existing ones."""
        if self._kind == "sqlite":
            if rows:
                self._many(_upsert(what), list(rows.values()))
            return
        self._delete(what.table, what.columns[0], list(rows))
        self.insert(what, list(rows.values()))

    def delete(self, what: Delete, keys: Sequence[Any]) -> None:
        """Remove rows."""
        self._delete(what.table, what.column, keys)

    def update(self, what: Update, rows: list[Row]) -> int:
        """Set columns; returns the number of rows that exist and satisfy the condition."""
        if not rows:
            return 0
        if self._kind == "mysql":
            return sum(self._one(_update_joined(what, len(some)), _flat(some)) for some in _portions(rows))
        return self._many(_update(what, self._kind), rows)

    def one(self, sql: str, parameters: Row = ()) -> int:
        """Execute one statement with parameters marked `?`; returns the number of matched rows."""
        return self._one(self._marked(sql), parameters)

    def many(self, sql: str, rows: list[Row]) -> None:
        """Execute one statement for each row of parameters marked `?`."""
        if rows:
            self._many(self._marked(sql), rows)

    def _marked(self, sql: str) -> str:
        return sql if self._kind == "sqlite" else sql.replace("?", "%s")

    def _delete(self, table: Table, column: str, keys: Sequence[Any]) -> None:
        if self._kind == "sqlite":
            if keys:
                self._many(_delete(table, column, 1, "sqlite"), [(key,) for key in keys])
            return
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            some = tuple(keys[start : start + _KEYS_AT_ONCE])
            self._one(_delete(table, column, len(some), self._kind), some)

    def _many(self, sql: str, rows: list[Row]) -> int:
        if len(rows) == 1:
            return self._one(sql, rows[0])
        self._cursor.executemany(sql, rows)
        return int(self._cursor.rowcount)

    def _one(self, sql: str, parameters: Row) -> int:
        self._cursor.execute(sql, parameters)
        return int(self._cursor.rowcount)


def status_in(statuses: Sequence[str]) -> str:
    """Return the condition of a compare-and-set."""
    return "status IN (" + ", ".join(f"'{status}'" for status in sorted(statuses)) + ")"


@cache
def _insert(what: Insert, kind: Kind) -> str:
    names = ", ".join(_name(column, kind) for column in what.columns)
    return f"INSERT INTO {what.table.name} ({names}) VALUES ({_marks(len(what.columns), kind)})"


@cache
def _insert_many(what: Insert) -> str:
    """Return the INSERT of `_ROWS_AT_ONCE` rows for SQLite."""
    others = f", ({_marks(len(what.columns), 'sqlite')})" * (_ROWS_AT_ONCE - 1)
    return _insert(what, "sqlite") + others


@cache
def _upsert(what: Insert) -> str:
    key, *others = (_name(column, "sqlite") for column in what.columns)
    sets = ", ".join(f"{name} = excluded.{name}" for name in others)
    return f"{_insert(what, 'sqlite')} ON CONFLICT ({key}) DO UPDATE SET {sets}"


@cache
def _update(what: Update, kind: Kind) -> str:
    mark = _marks(1, kind)
    sets = ", ".join(f"{_name(column, kind)} = {mark}" for column in what.columns)
    where = f" AND {what.where}" if what.where else ""
    return f"UPDATE {what.table.name} SET {sets} WHERE {_name(what.key, kind)} = {mark}{where}"


def _update_joined(what: Update, count: int) -> str:
    names = [_name(column, "mysql") for column in (*what.columns, what.key)]
    table = what.table.name
    first = "SELECT " + ", ".join(f"%s AS {name}" for name in names)
    other = f"SELECT {_marks(len(names), 'mysql')}"
    fresh = " UNION ALL ".join([first, *[other] * (count - 1)])
    *columns, key = names
    sets = ", ".join(f"{table}.{name} = fresh.{name}" for name in columns)
    where = f" WHERE {table}.{what.where}" if what.where else ""
    return f"UPDATE {table} JOIN ({fresh}) AS fresh ON {table}.{key} = fresh.{key} SET {sets}{where}"


def _delete(table: Table, column: str, count: int, kind: Kind) -> str:
    return f"DELETE FROM {table.name} WHERE {_name(column, kind)} IN ({_marks(count, kind)})"


def _marks(count: int, kind: Kind) -> str:
    return ", ".join(["?" if kind == "sqlite" else "%s"] * count)


def _name(column: str, kind: Kind) -> str:
    return f"`{column}`" if kind == "mysql" else f'"{column}"'


def _flat(rows: list[Row]) -> Row:
    return tuple(chain.from_iterable(rows))


def _portions(rows: list[Row]) -> Iterator[list[Row]]:
    """Yield the rows in chunks that fit in one packet."""
    portion: list[Row] = []
    size = 0
    for row in rows:
        length = sum(len(value) if isinstance(value, str) else 16 for value in row)
        if portion and size + length > _BYTES_AT_ONCE:
            yield portion
            portion, size = [], 0
        portion.append(row)
        size += length
    yield portion
