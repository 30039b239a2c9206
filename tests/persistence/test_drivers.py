"""The settings of each kind of database: durability, parameters, encryption."""

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import Connection

from greenroom.persistence import drivers
from greenroom.persistence.database import DatabaseManager
from greenroom.persistence.failures import StoreBroken, StoreDown
from tests.servers import Server, make_certificate

from .rows import Opened, ids, statement


async def test_sqlite_is_configured_for_durability(tmp_path: Path):
    async with Opened(f"sqlite:///{tmp_path}/x.db") as database:
        for call in (database.run, database.read):
            assert [
                (await call(statement(f"PRAGMA {name}")))[0][0]
                for name in "journal_mode synchronous cache_size foreign_keys busy_timeout".split()
            ] == ["wal", 2, -64000, 1, 5000]


async def test_sqlite_syncs_less_when_asked(tmp_path: Path):
    async with Opened(f"sqlite:///{tmp_path}/x.db?synchronous=normal") as database:
        assert await database.run(statement("PRAGMA synchronous")) == [(1,)]


async def test_sqlite_takes_the_write_lock_when_a_transaction_begins(tmp_path: Path):
    async with Opened(f"sqlite:///{tmp_path}/x.db") as database:

        def another_writes(connection: Connection) -> None:
            other = sqlite3.connect(tmp_path / "x.db", timeout=0)
            try:
                with pytest.raises(sqlite3.OperationalError, match="locked"):
                    other.execute("INSERT INTO rows_of_test VALUES (1, 'x')")
            finally:
                other.close()

        await database.run(another_writes)


async def test_reading_does_not_wait_for_a_writer(tmp_path: Path):
    async with Opened(f"sqlite:///{tmp_path}/x.db") as database:
        other = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert await database.read(ids) == []
        other.close()


async def test_tables_are_created_within_the_transaction(tmp_path: Path, postgresql: Server):
    def make_and_raise(connection: Connection) -> None:
        statement("CREATE TABLE another (id INTEGER)")(connection)
        raise KeyError

    for url in (f"sqlite:///{tmp_path}/x.db", postgresql.fresh_database()):
        async with Opened(url) as database:
            for _ in range(2):
                with pytest.raises(KeyError):
                    await database.run(make_and_raise)


async def test_postgresql_takes_its_parameters(postgresql: Server):
    url = f"{postgresql.fresh_database()}?command_timeout=0.2&application_name=mine&sslmode=require"
    async with Opened(url) as database:
        assert await database.read(statement("SHOW application_name")) == [("mine",)]
        assert await database.read(statement("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")) == [
            (True,)
        ]
        with pytest.raises(StoreDown, match="statement timeout"):
            await database.run(statement("SELECT pg_sleep(5)"))


async def test_postgresql_can_be_reached_by_its_socket(postgresql: Server):
    name = postgresql.fresh_database().rpartition("/")[2]
    folder = str(postgresql.folder).replace("/", "%2F")
    async with Opened(f"postgresql://greenroom@{folder}:{postgresql.port}/{name}") as database:
        assert await database.read(statement("SELECT inet_server_port()")) == [(None,)]


async def test_mariadb_takes_its_parameters(mariadb: Server):
    url = f"{mariadb.fresh_database()}?charset=utf8mb4&init_command=SET%20@mine=7&program_name=mine"
    async with Opened(f"{url}&unix_socket={mariadb.folder}/socket") as database:
        assert await database.read(statement("SELECT @mine")) == [(7,)]
        assert await database.run(
            statement("SELECT LOCATE('STRICT_ALL', @@sql_mode) > 0, @@tx_isolation, @@autocommit")
        ) == [(1, "READ-COMMITTED", 0)]


async def test_mariadb_has_no_time_limit_for_statements(mariadb: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(drivers, "CONNECT_TIMEOUT", 0.5)
    async with Opened(mariadb.fresh_database()) as database:
        assert await database.run(statement("SELECT SLEEP(1)")) == [(0,)]


async def test_a_ca_file_means_that_the_server_and_its_name_are_verified(server: Server, tmp_path: Path):
    by_number = server.fresh_database()
    by_name = by_number.replace("127.0.0.1", "localhost")
    async with Opened(f"{by_name}?ssl_ca={server.certificate}") as database:
        encrypted = {
            "postgresql": "SELECT ssl::text FROM pg_stat_ssl WHERE pid = pg_backend_pid()",
            "mysql": "SELECT variable_value FROM information_schema.session_status "
            "WHERE variable_name = 'Ssl_cipher'",
        }
        [[answer]] = await database.read(statement(encrypted[database.kind]))
        assert answer not in ("", "false")
    with pytest.raises(StoreBroken, match=r"127\.0\.0\.1.*(certificate|match)"):
        await DatabaseManager(f"{by_number}?ssl_ca={server.certificate}").open()
    other, _ = make_certificate(tmp_path, "localhost")
    with pytest.raises(StoreBroken, match="verify failed"):
        await DatabaseManager(f"{by_name}?ssl_ca={other}").open()
