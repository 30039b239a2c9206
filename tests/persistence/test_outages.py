"""Failures of a database: which are retried, which can pass, and the errors for the others."""

import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from sqlalchemy import Connection, text

from greenroom.persistence.addresses import parse_addresses
from greenroom.persistence.database import DatabaseManager
from greenroom.persistence.failures import StoreBroken, StoreDown
from tests.servers import Server

from .proxy import Proxy
from .rows import Opened, ids, insert, statement


async def test_a_connection_that_was_lost_while_idle_is_replaced(server: Server):
    async with Opened(server.fresh_database()) as database:
        server.end_sessions()
        await database.run(insert(1))
        assert await database.read(ids) == [(1,)]


async def test_a_connection_that_is_lost_in_a_transaction_is_transient(server: Server):
    def lose(connection: Connection) -> None:
        insert(1)(connection)
        server.end_sessions()
        insert(2)(connection)

    async with Opened(server.fresh_database()) as database:
        with pytest.raises(StoreDown) as caught:
            await database.run(lose)
        assert caught.value.transient
        assert caught.value.outcome_known
        assert await database.read(ids) == []


async def test_with_retry_survives_a_lost_connection(server: Server, autojump_clock: trio.testing.MockClock):
    sessions = []

    def lose_twice(connection: Connection) -> None:
        sessions.append(connection.connection.driver_connection)
        insert(1)(connection)
        if len(sessions) < 3:
            server.end_sessions()
        insert(2)(connection)

    async with Opened(server.fresh_database()) as database:
        began = trio.current_time()
        await database.with_retry(lose_twice)
        assert trio.current_time() - began == 3
        assert len(set(map(id, sessions))) == 3
        assert await database.read(ids) == [(1,), (2,)]


async def test_with_retry_waits_for_a_busy_sqlite(tmp_path: Path, autojump_clock: trio.testing.MockClock):
    async with Opened(f"sqlite:///{tmp_path}/x.db") as database:
        other = sqlite3.connect(tmp_path / "x.db", isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        attempts = []

        def quickly(connection: Connection) -> None:
            insert(1)(connection)

        # Five real seconds are too long for a test: the next attempts do not wait.
        def impatient(connection: Connection) -> None:
            statement("PRAGMA busy_timeout = 1")(connection)

        await database.read(impatient)
        async with trio.open_nursery() as nursery:

            async def end_the_other() -> None:
                await trio.sleep(2)
                other.execute("COMMIT")
                attempts.append("ended")

            nursery.start_soon(end_the_other)
            await database.with_retry(quickly)
        assert attempts == ["ended"]
        other.close()


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    proxy = Proxy(server.port)
    yield proxy
    proxy.close()


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_the_outcome_of_a_commit_without_an_answer_is_unknown(
    server: Server, proxy: Proxy, cut: Any, autojump_clock: trio.testing.MockClock
):
    def insert_and_cut(connection: Connection) -> str:
        insert(1)(connection)
        proxy.cut = cut  # the next statement is COMMIT
        return "committed"

    def look(connection: Connection) -> str:
        if ids(connection) == [(1,)]:
            return "it was there"
        insert(1)(connection)
        return "it was not there"

    async with Opened(server.fresh_database().replace(str(server.port), str(proxy.port))) as database:
        with pytest.raises(StoreDown) as caught:
            await database.run(insert_and_cut)
        assert caught.value.transient
        assert not caught.value.outcome_known
        await database.run(statement("DELETE FROM rows_of_test"))
        answer = await database.with_retry(insert_and_cut, again=look)
        assert answer == ("it was there" if cut == "after" else "it was not there")
        assert await database.read(ids) == [(1,)]


async def test_a_deadlock_is_transient_and_one_of_the_two_transactions_succeeds(server: Server):
    both = threading.Barrier(2)
    waited = threading.local()

    def update(first: int, second: int) -> Callable[[Connection], None]:
        def run(connection: Connection) -> None:
            statement(f"UPDATE rows_of_test SET word = 'x' WHERE id = {first}")(connection)
            if not getattr(waited, "once", False):
                waited.once = True
                both.wait(10)
            statement(f"UPDATE rows_of_test SET word = 'x' WHERE id = {second}")(connection)

        return run

    failures: list[StoreDown] = []
    async with Opened(server.fresh_database()) as database:
        await database.run(insert(1))
        await database.run(insert(2))

        async def one(first: int, second: int) -> None:
            try:
                await database.run(update(first, second))
            except StoreDown as failure:
                failures.append(failure)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, 1, 2)
            nursery.start_soon(one, 2, 1)
    [failure] = failures
    assert failure.transient
    assert "deadlock" in failure.message.lower()


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_a_stopped_server_is_reported_as_down_immediately_and_works_after_its_restart(
    server: Server, end: str, autojump_clock: trio.testing.MockClock
):
    async with Opened(server.fresh_database()) as database:
        await database.run(insert(1))
        getattr(server, end)()
        began = trio.current_time()
        with pytest.raises(StoreDown) as caught:
            await database.with_retry(insert(2))
        assert not caught.value.transient
        assert caught.value.outcome_known
        assert f"127.0.0.1:{server.port}" in caught.value.message
        assert trio.current_time() == began
        server.start()
        await database.run(insert(3))
        assert await database.read(ids) == [(1,), (3,)]


async def test_a_full_disk_is_reported_as_down_and_can_pass(tmp_path: Path):
    async with Opened(f"sqlite:///{tmp_path}/x.db") as database:

        def fill(connection: Connection) -> None:
            statement("PRAGMA max_page_count = 1")(connection)
            for id in range(10_000):
                insert(id)(connection)

        with pytest.raises(StoreDown, match="the disk is full") as caught:
            await database.run(fill)
        assert not caught.value.transient
        assert await database.read(ids) == []
        await database.run(statement("PRAGMA max_page_count = 1000000"))
        await database.run(insert(1))


@pytest.mark.parametrize("sql", ["SELEKT 1", "INSERT INTO rows_of_test VALUES (1, 'twice')"])
async def test_any_other_error_is_reported_as_broken_without_a_retry(
    any_url: str, sql: str, autojump_clock: trio.testing.MockClock
):
    async with Opened(any_url) as database:
        await database.run(insert(1))
        began = trio.current_time()
        with pytest.raises(StoreBroken):
            await database.with_retry(statement(sql))
        assert trio.current_time() == began
        assert await database.read(ids) == [(1,)]


async def test_no_error_message_contains_stored_data(any_url: str):
    def twice(connection: Connection) -> None:
        for _ in range(2):
            connection.execute(text("INSERT INTO rows_of_test VALUES (1, :word)"), {"word": "private"})

    async with Opened(any_url) as database:
        with pytest.raises(StoreBroken) as caught:
            await database.run(twice)
    assert "private" not in f"{caught.value} {caught.value.__cause__}"


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0" + b"garbage" * 1000])
async def test_a_corrupt_file_is_reported_as_damaged(tmp_path: Path, content: bytes):
    (tmp_path / "x.db").write_bytes(content)
    with pytest.raises(StoreBroken, match=f"sqlite:///{tmp_path}/x.db: the file is damaged"):
        await DatabaseManager(f"sqlite:///{tmp_path}/x.db").open()
    assert (tmp_path / "x.db").read_bytes() == content


async def test_a_missing_folder_is_reported(tmp_path: Path):
    with pytest.raises(StoreDown, match="its folder must exist and be writable"):
        await DatabaseManager(f"sqlite:///{tmp_path}/none/x.db").open()


async def test_a_read_only_folder_is_reported(read_only_folder: Path):
    with pytest.raises(StoreDown, match="its folder must exist and be writable"):
        await DatabaseManager(f"sqlite:///{read_only_folder}/x.db", in_threads=False).open()


async def test_a_file_that_became_read_only_is_reported(tmp_path: Path):
    async with Opened(f"sqlite:///{tmp_path}/x.db") as database:

        def insert_read_only(connection: Connection) -> None:
            statement("PRAGMA query_only = ON")(connection)
            try:
                insert(1)(connection)
            finally:
                statement("PRAGMA query_only = OFF")(connection)

        with pytest.raises(StoreDown, match="read-only"):
            await database.run(insert_read_only)


async def test_a_wrong_password_and_an_unknown_database_are_broken(server: Server):
    with pytest.raises(StoreBroken, match="the user name or password is wrong"):
        await DatabaseManager(server.url("d", password="guess")).open()
    with pytest.raises(StoreBroken, match=r"does not exist|Unknown database"):
        await DatabaseManager(server.url("nowhere")).open()


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [("postgresql://h/d", "psycopg", "postgres"), ("mysql://h/d", "pymysql", "mysql")],
)
async def test_the_error_for_a_missing_driver_contains_how_to_install_it(
    url: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(StoreBroken, match=rf'pip install "greenroom\[{extra}\]"'):
        await DatabaseManager(url).open()


async def test_a_failed_open_leaves_nothing_open(tmp_path: Path):
    (tmp_path / "x.db").write_bytes(b"no database")
    before = os.listdir("/dev/fd")
    database = DatabaseManager(parse_addresses(f"sqlite:///{tmp_path}/x.db"))
    with pytest.raises(StoreBroken):
        await database.open()
    assert len(os.listdir("/dev/fd")) == len(before)
    (tmp_path / "x.db").unlink()
    await database.open()
    await database.close()
