"""A table with rows, and functions that use it in a transaction."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection

from greenroom.persistence.database import DatabaseManager

TABLE = "CREATE TABLE rows_of_test (id INTEGER PRIMARY KEY, word VARCHAR(8) NOT NULL)"


def statement(sql: str) -> Callable[[Connection], Any]:
    """Return a function that executes one statement, and returns its rows or the number of matched rows."""

    def run(connection: Connection) -> Any:
        result = connection.exec_driver_sql(sql)
        return [tuple(row) for row in result] if result.returns_rows else result.rowcount

    return run


def insert(id: int, word: str = "a") -> Callable[[Connection], Any]:
    return statement(f"INSERT INTO rows_of_test VALUES ({id}, '{word}')")


ids = statement("SELECT id FROM rows_of_test ORDER BY id")


class Opened:
    """A database with one empty table."""

    def __init__(self, url: str | list[str], *, in_threads: bool = True) -> None:
        self._database = DatabaseManager(url, in_threads=in_threads)

    async def __aenter__(self) -> DatabaseManager:
        await self._database.open()
        await self._database.run(
            statement(TABLE + " CHARACTER SET utf8mb4" * (self._database.kind == "mysql"))
        )
        return self._database

    async def __aexit__(self, *exception: object) -> None:
        await self._database.close()
