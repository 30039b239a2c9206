"""A store of an older Greenroom: its tables are upgraded to this version, and its runs continue.

`version_1.sql` is such a store of an engine of schema version 1: one ended run, one suspended run, and one
queued run. `version_3.sql` and `version_4.sql` are the same store with the tables of those versions.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, inspect, select

from greenroom.errors import GreenroomError
from greenroom.persistence import schema
from greenroom.persistence.database import DatabaseManager
from greenroom.persistence.flows import FlowRow, FlowRunQuery, FlowState, StoredFlow
from greenroom.persistence.migrating import check, current, differences, upgrade
from greenroom.persistence.migrations import v1_initial
from greenroom.persistence.sqlstore import SqlStore
from greenroom.persistence.store import DeletionOwed, FileFinished, FileGivenUp, StoredLane, StoredRequest
from greenroom.protocol.states import Status
from tests.servers import Server

from .story import NOW, Story, created, executor_changed, life, moved

VERSION_1 = Path(__file__).with_name("version_1.sql").read_text(encoding="utf-8")
NEW_TABLES = {
    *("flows", "flow_versions", "flow_runs", "node_runs", "workers"),
    *("deaths", "leases"),
    *("executors", "deletions"),
    "buckets",
    "run_tags",
    "schedules",
    "webhooks",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A SQLite file of version 1."""
    file = tmp_path / "store.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(VERSION_1)
    return file


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Server:
    """Each server in turn."""
    server: Server = request.getfixturevalue(request.param)
    return server


def later_file(version: int, folder: Path) -> Path:
    """Make a SQLite file of version 3 or 4."""
    script = Path(__file__).with_name(f"version_{version}.sql").read_text(encoding="utf-8")
    file = folder / f"store_{version}.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(script)
    return file


def tables_of(file: Path) -> tuple[set[str], int]:
    """Return the tables of a file, and its recorded version."""
    with closing(sqlite3.connect(file)) as connection:
        names = {name for [name] in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        [[version]] = connection.execute("SELECT schema_version FROM meta")
        return names, version


async def it_goes_on(url: str) -> None:
    """Open the store, and check that its data is complete, and that runs and flows can be written."""
    store = SqlStore(url)
    stored = await store.open("", 1, NOW)
    assert (stored.epoch, stored.last_seq, stored.last_place) == ("0123456789abcdef", 18, 8)
    assert (stored.max_concurrent, stored.draining) == (5, True)
    assert (stored.lanes, stored.drafts) == ({"uploads": StoredLane(2, 1)}, {"alice": {"draft": 1}})
    assert [run.id for run in stored.ended] == ["r0"]
    suspended, queued = stored.pending
    assert (suspended.record.id, suspended.record.status) == ("r1", Status.SUSPENDED)
    assert (suspended.wakes_at, suspended.files) == (NOW + 60.5, ["c.txt"])
    assert (suspended.foreign_files, suspended.record.executor, suspended.record.fence) == ({}, None, None)
    assert (suspended.record.needs, suspended.terms.announced) == ((), None)
    assert suspended.messages == [(10, {"text": "hello"})]
    assert sorted(interrupt.id for interrupt in suspended.interrupts) == ["r1.1", "r1.2"]
    assert (queued.record.handle, queued.record.params) == ("Ünïcödé 漢字", [True, None, 0.5])
    assert stored.requests == [StoredRequest("once", "r1", "f" * 32, None)]
    assert (stored.flows, stored.versions, stored.workers) == ([], [], [])
    assert (stored.executors, stored.deletions, stored.schedules) == ({}, [], {})

    story = Story(store, stored)
    await story.tell(*life("r3", place=9), moved(story.runs["r2"], Status.RUNNING, attempt=1))
    flow, walk = FlowRow("f1", "flow", "", NOW), FlowState("r4", "v1", "{}", 0)
    await story.tell(created("r4", place=10), memos=[flow, walk])
    owed = DeletionOwed("elsewhere", "alice", "r0", ("a.txt",))
    await story.tell(
        executor_changed("gpu-1"), memos=[FileFinished("r1", "c.txt"), FileGivenUp("r1", "c.txt"), owed]
    )
    await store.close()

    store = SqlStore(url)
    stored = await store.open("", 1, NOW)
    assert [run.record for run in stored.pending] == [story.runs[id] for id in ("r1", "r2", "r4")]
    assert [run.id for run in stored.ended] == ["r0", "r3"]
    assert stored.flows == [flow]
    assert (list(stored.executors), stored.deletions, stored.pending[0].files) == (["gpu-1"], [owed], [])
    assert await store.flow("r4") == StoredFlow(walk, [], [])
    assert [run.id for run, _ in (await store.flow_runs(FlowRunQuery())).runs] == ["r4"]
    assert len(await store.history("r1")) == 10
    await store.close()


async def test_a_file_of_version_1_is_upgraded_when_it_is_opened(file: Path) -> None:
    assert tables_of(file) == (set(v1_initial.tables.tables), 1)
    await it_goes_on(f"sqlite:///{file}")
    assert tables_of(file) == (set(v1_initial.tables.tables) | NEW_TABLES, schema.SCHEMA_VERSION)


@pytest.mark.parametrize("version", [3, 4])
async def test_a_file_of_a_later_version_is_upgraded_when_it_is_opened(version: int, tmp_path: Path) -> None:
    file = later_file(version, tmp_path)
    assert tables_of(file)[1] == version
    await it_goes_on(f"sqlite:///{file}")
    assert tables_of(file) == (set(v1_initial.tables.tables) | NEW_TABLES, schema.SCHEMA_VERSION)


async def test_a_migrated_file_has_the_schema_of_a_new_one(file: Path, tmp_path: Path) -> None:
    migrated = [file, later_file(3, tmp_path), later_file(4, tmp_path)]
    for path in (*migrated, tmp_path / "new.db"):
        store = SqlStore(f"sqlite:///{path}")
        await store.open("", 1, NOW)
        await store.close()

    def definitions(path: Path) -> list[object]:
        with closing(sqlite3.connect(path)) as connection:
            schema_rows = connection.execute("SELECT type, name FROM sqlite_schema ORDER BY name").fetchall()
            tables = [name for kind, name in schema_rows if kind == "table"]
            indexes = "SELECT sql FROM sqlite_schema WHERE type = 'index' ORDER BY name"
            schema_rows += connection.execute(indexes).fetchall()
            columns = [connection.execute(f"PRAGMA table_info({name})").fetchall() for name in tables]
            return [schema_rows, columns]

    new = definitions(tmp_path / "new.db")
    assert [definitions(path) for path in migrated] == [new] * len(migrated)


async def test_a_file_that_cannot_be_migrated_stays_unchanged(file: Path) -> None:
    with closing(
        sqlite3.connect(file)
    ) as connection:  # the last of the new tables fails: the name of its index exists
        connection.execute("CREATE INDEX flow_versions_by_number ON runs (id)")
    before = tables_of(file)
    for _ in range(2):
        store = SqlStore(f"sqlite:///{file}")
        with pytest.raises(GreenroomError):
            await store.open("", 1, NOW)
        await store.close()
        assert tables_of(file) == before
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("DROP INDEX flow_versions_by_number")
    await it_goes_on(f"sqlite:///{file}")


async def test_the_migration_command_upgrades_a_file_and_returns_its_previous_version(file: Path) -> None:
    url = f"sqlite:///{file}"
    assert await current(url) == 1
    with pytest.raises(GreenroomError, match="run greenroom db upgrade"):
        await check(url)
    assert await upgrade(url) == 1
    assert await current(url) == await upgrade(url) == schema.SCHEMA_VERSION
    assert await check(url) == []
    await it_goes_on(url)


# Servers.


async def make_version_1(url: str) -> None:
    """Create the tables of version 1 in a server's database, with the rows of the file."""
    source = create_engine("sqlite://")
    with source.connect() as connection:
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        driver.executescript(VERSION_1)
        rows = {
            table: [dict(row) for row in connection.execute(select(table)).mappings()]
            for table in v1_initial.tables.sorted_tables
        }
    source.dispose()

    def fill(connection: Connection) -> None:
        v1_initial.tables.create_all(connection)
        connection.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32) PRIMARY KEY)")
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES ('1')")
        for table, content in rows.items():
            if content:
                connection.execute(schema.metadata.tables[table.name].insert(), content)

    database = DatabaseManager(url)
    await database.open()
    await database.run(fill)
    await database.close()


async def faults(url: str) -> list[object]:
    """Return the differences between a server's tables and the expected ones."""
    database = DatabaseManager(url)
    await database.open()
    try:
        return await database.read(lambda connection: differences(connection, database.kind))
    finally:
        await database.close()


async def test_a_server_of_version_1_is_refused_until_it_is_migrated_by_command(server: Server) -> None:
    url = server.fresh_database()
    await make_version_1(url)
    store = SqlStore(url)
    with pytest.raises(GreenroomError, match="run greenroom db upgrade"):
        await store.open("", 1, NOW)
    await store.close()
    assert await current(url) == 1
    assert await upgrade(url) == 1
    assert await current(url) == await upgrade(url) == schema.SCHEMA_VERSION
    assert await check(url) == []
    assert await faults(url) == []
    await it_goes_on(url)


async def test_an_interrupted_migration_of_a_server_is_completed_by_the_next_one(server: Server) -> None:
    def half(connection: Connection) -> None:
        schema.flows.create(connection)
        schema.flow_versions.create(connection)
        schema.executors.create(connection)
        kind = "VARBINARY(1024)" if server.kind == "mysql" else "VARCHAR(256)"
        connection.exec_driver_sql(f"ALTER TABLE files ADD COLUMN folder {kind} DEFAULT '' NOT NULL")
        index = "DROP INDEX flow_versions_by_number"
        connection.exec_driver_sql(index + " ON flow_versions" * (server.kind == "mysql"))

    url = server.fresh_database()
    await make_version_1(url)
    database = DatabaseManager(url)
    await database.open()
    await database.run(half)
    assert NEW_TABLES - set(await database.read(lambda found: inspect(found).get_table_names()))
    await database.close()
    assert await upgrade(url) == 1
    assert await faults(url) == []
    await it_goes_on(url)
