"""The statements that write many rows at once, for each kind of database.

A batch is a small constant number of round trips, whatever its size. SQLite has none, and PostgreSQL's driver
sends many executions of one statement in one go. MySQL's driver does so for INSERT only, so an UPDATE of many
rows becomes one statement there that joins a table of the new values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Table

from .addresses import Kind

Row = tuple[Any, ...]

_KEYS_AT_ONCE = 500
_BYTES_AT_ONCE = 4 << 20


class Statements:
    """Writes rows through a connection, in the words of its database."""

    def __init__(self, kind: Kind, connection: Connection) -> None:
        self._kind = kind
        # The driver's own cursor: a commit is a handful of statements that never change, for which all that
        # SQLAlchemy does between the two costs more than SQLite does.
        self._cursor = connection.connection.cursor()
        self._mark = "?" if kind == "sqlite" else "%s"

    def insert(self, table: Table, columns: Sequence[str], rows: list[Row]) -> None:
        """Add rows."""
        if rows:
            marks = ", ".join([self._mark] * len(columns))
            self._many(f"INSERT INTO {table.name} ({self._names(columns)}) VALUES ({marks})", rows)

    def delete(self, table: Table, column: str, keys: Sequence[Any]) -> None:
        """Take away the rows whose column is one of the keys."""
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            some = tuple(keys[start : start + _KEYS_AT_ONCE])
            marks = ", ".join([self._mark] * len(some))
            self._one(f"DELETE FROM {table.name} WHERE {self._name(column)} IN ({marks})", some)

    def replace(self, table: Table, columns: Sequence[str], rows: dict[Any, Row]) -> None:
        """Add rows by key, in the place of those that have the first column's value. Keys are unique."""
        self.delete(table, columns[0], list(rows))
        self.insert(table, columns, list(rows.values()))

    def update(
        self,
        table: Table,
        key: str,
        columns: Sequence[str],
        rows: list[Row],
        where: str = "",
    ) -> int:
        """Set columns of the rows with these keys: each row is the values and then its key. Returns how many
        rows there were that also meet the condition."""
        if not rows:
            return 0
        if self._kind != "mysql":
            sets = ", ".join(f"{self._name(column)} = {self._mark}" for column in columns)
            condition = f"{self._name(key)} = {self._mark}" + (f" AND {where}" if where else "")
            return self._many(f"UPDATE {table.name} SET {sets} WHERE {condition}", rows)
        return sum(self._update_joined(table, key, columns, some, where) for some in _portions(rows))

    def one(self, sql: str, parameters: Row = ()) -> int:
        """One statement, its parameters marked `?`; returns how many rows it met."""
        return self._one(sql.replace("?", self._mark), parameters)

    def _update_joined(
        self, table: Table, key: str, columns: Sequence[str], rows: list[Row], where: str
    ) -> int:
        names = [*columns, key]
        first = "SELECT " + ", ".join(f"%s AS {self._name(name)}" for name in names)
        other = "SELECT " + ", ".join(["%s"] * len(names))
        fresh = " UNION ALL ".join([first, *[other] * (len(rows) - 1)])
        sets = ", ".join(f"{table.name}.{self._name(c)} = fresh.{self._name(c)}" for c in columns)
        key = self._name(key)
        sql = f"UPDATE {table.name} JOIN ({fresh}) AS fresh ON {table.name}.{key} = fresh.{key} SET {sets}"
        if where:
            sql += f" WHERE {table.name}.{where}"
        return self._one(sql, tuple(value for row in rows for value in row))

    def _many(self, sql: str, rows: list[Row]) -> int:
        if len(rows) == 1:
            return self._one(sql, rows[0])
        self._cursor.executemany(sql, rows)
        return self._cursor.rowcount

    def _one(self, sql: str, parameters: Row) -> int:
        self._cursor.execute(sql, parameters)
        return self._cursor.rowcount

    def _names(self, columns: Sequence[str]) -> str:
        return ", ".join(map(self._name, columns))

    def _name(self, column: str) -> str:
        return f"`{column}`" if self._kind == "mysql" else f'"{column}"'


def status_in(statuses: Sequence[str]) -> str:
    """The condition of a compare-and-set."""
    return "status IN (" + ", ".join(f"'{status}'" for status in sorted(statuses)) + ")"


def _portions(rows: list[Row]) -> Iterator[list[Row]]:
    """Rows in portions that one packet can take."""
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
