"""Fixtures for a place of every kind of store; a test opens stores there, one after another.

The kinds with threads or servers run in real time, the others in mock time, where a wait costs nothing. So
tests that wait use short times, and pass with both clocks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from greenroom.persistence.database import DatabaseManager
from greenroom.persistence.memory import MemoryStore
from greenroom.persistence.schema import metadata
from greenroom.persistence.sqlstore import SqlStore
from greenroom.persistence.store import Store
from tests.servers import Server, mariadb, postgresql

__all__ = ["mariadb", "postgresql"]

KINDS = ("memory", "sqlite", "sqlite_unthreaded", "postgresql", "mariadb")


@attrs.frozen
class Place:
    """A place of stores. Each call of `store` returns a store for another engine with the same data."""

    kind: str
    store: Callable[[], Store]
    url: str = ""

    @property
    def is_sql(self) -> bool:
        return self.kind != "memory"


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty place of every kind."""
    return make_place(request, request.param, tmp_path)


@pytest.fixture(params=[kind for kind in KINDS if kind != "memory"])
def sql_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty place of every SQL kind, to which other connections are possible."""
    return make_place(request, request.param, tmp_path)


@pytest.fixture(params=["postgresql", "mariadb"])
def server_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty place on each server."""
    return make_place(request, request.param, tmp_path)


@pytest.fixture
def new_store(place: Place) -> Callable[[], Store]:
    """Return a function that makes a store; after it was closed, the next store has the same data."""
    return place.store


@pytest.fixture
def clock(place: Place) -> trio.abc.Clock | None:
    """Mock time for the kinds without threads. A test only has to request the fixture."""
    return MockClock(autojump_threshold=0) if place.kind in ("memory", "sqlite_unthreaded") else None


def make_place(request: pytest.FixtureRequest, kind: str, folder: Path) -> Place:
    if kind == "memory":
        memory = MemoryStore()
        return Place(kind, lambda: memory)
    if kind.startswith("sqlite"):
        url = f"sqlite:///{folder}/store.db?synchronous=normal"
        return Place(kind, lambda: SqlStore(url, in_threads=kind == "sqlite"), url)
    server: Server = request.getfixturevalue(kind)
    url = server.fresh_database(like=_database_with_tables(server))
    return Place(kind, lambda: SqlStore(url), url)


@cache
def _database_with_tables(server: Server) -> str:
    """The name of a database with the tables of a store, of which each test gets a copy."""
    url = server.fresh_database()
    trio.run(_make_tables, url)
    return url.rpartition("/")[2]


async def _make_tables(url: str) -> None:
    database = DatabaseManager(url, in_threads=False)
    await database.open()
    metadata.create_all(database.engine)
    await database.close()
