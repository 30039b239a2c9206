"""`DatabaseManager` with every kind of database: its transactions, its threads, and its closing."""

import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from sqlalchemy import Connection

from greenroom.persistence.failures import StoreBroken, StoreDown
from tests.servers import Server

from .rows import Opened, ids, insert, statement


@pytest.fixture(params=["threads", "inline"])
def in_threads(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "threads")


async def test_the_writes_of_a_function_are_committed_when_it_returns(any_url: str, in_threads: bool):
    async with Opened(any_url, in_threads=in_threads) as database:
        assert await database.run(insert(1)) == 1
        assert await database.read(ids) == [(1,)]


async def test_the_writes_of_a_function_are_rolled_back_when_it_raises(any_url: str, in_threads: bool):
    def insert_and_raise(connection: Connection) -> None:
        insert(1)(connection)
        raise KeyError("mine")

    async with Opened(any_url, in_threads=in_threads) as database:
        with pytest.raises(KeyError, match="mine"):
            await database.run(insert_and_raise)
        assert await database.read(ids) == []
        await database.run(insert(1))


async def test_a_read_commits_nothing(any_url: str):
    async with Opened(any_url) as database:
        if any_url.startswith("sqlite"):
            await database.read(insert(1))
        else:
            with pytest.raises((StoreDown, StoreBroken)):
                await database.read(insert(1))
        assert await database.read(ids) == []


async def test_a_read_sees_one_consistent_state(url: str):
    sees, written = threading.Event(), threading.Event()

    def read_twice(connection: Connection) -> Any:
        first = ids(connection)
        sees.set()
        assert written.wait(10)
        return first, ids(connection)

    async with Opened(url) as database, trio.open_nursery() as nursery:

        async def write() -> None:
            await trio.to_thread.run_sync(sees.wait)
            await database.run(insert(1))
            written.set()

        nursery.start_soon(write)
        assert await database.read(read_twice) == ([], [])
        assert await database.read(ids) == [(1,)]


async def test_matched_rows_are_counted_even_if_nothing_changes(any_url: str):
    async with Opened(any_url) as database:
        await database.run(insert(1, "same"))
        assert await database.run(statement("UPDATE rows_of_test SET word = 'same' WHERE id = 1")) == 1
        assert await database.run(statement("UPDATE rows_of_test SET word = 'same' WHERE id = 2")) == 0


async def test_every_text_is_read_back_unchanged(any_url: str):
    async with Opened(any_url) as database:
        await database.run(insert(1, "日本語🙂é"))
        assert await database.read(statement("SELECT word FROM rows_of_test")) == [("日本語🙂é",)]


async def test_a_value_that_does_not_fit_is_an_error_and_not_truncated(server: Server):
    async with Opened(server.fresh_database()) as database:
        with pytest.raises(StoreBroken):
            await database.run(insert(1, "much too long"))


async def test_many_concurrent_calls_all_complete(any_url: str):
    async with Opened(any_url) as database:
        async with trio.open_nursery() as nursery:
            for id in range(60):
                nursery.start_soon(database.run, insert(id))
                nursery.start_soon(database.read, ids)
        assert len(await database.read(ids)) == 60


async def test_at_most_as_many_calls_run_as_there_are_connections(url: str):
    connections = 14 if url.startswith("sqlite") else 15  # one of SQLite's 15 connections is for the writer
    at_work, most, lock = 0, 0, threading.Lock()
    all_in = threading.Event()

    def work(connection: Connection) -> None:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
            if at_work == connections:
                all_in.set()
        assert all_in.wait(10)
        ids(connection)
        with lock:
            at_work -= 1

    async with Opened(url) as database, trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(database.read, work)
    assert most == connections


async def test_writers_of_a_file_are_served_in_order(tmp_path: Path):
    order: list[int] = []
    go_on = threading.Event()

    def write(number: int, connection: Connection) -> None:
        assert go_on.wait(10)
        order.append(number)

    async with Opened(f"sqlite:///{tmp_path}/x.db") as database:
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(database.run, partial(write, number))
                await trio.testing.wait_all_tasks_blocked()
            go_on.set()
        assert order == list(range(10))


async def test_a_function_that_has_started_is_not_cancelled(any_url: str):
    async with Opened(any_url) as database:
        with trio.CancelScope() as scope:

            def insert_meanwhile(connection: Connection) -> str:
                trio.from_thread.run_sync(scope.cancel)
                insert(1)(connection)
                return "done"

            assert await database.run(insert_meanwhile) == "done"
        assert await database.read(ids) == [(1,)]


async def test_the_function_of_a_cancelled_caller_is_not_called(any_url: str, in_threads: bool):
    async with Opened(any_url, in_threads=in_threads) as database:
        with trio.CancelScope() as scope:
            scope.cancel()
            await database.run(insert(1))
        assert scope.cancelled_caught
        assert await database.read(ids) == []


async def test_without_threads_functions_run_in_the_event_loop():
    async with Opened("sqlite://", in_threads=False) as database:
        assert await database.run(lambda connection: threading.current_thread()) is threading.main_thread()


async def test_with_threads_no_function_runs_in_the_event_loop(any_url: str):
    async with Opened(any_url) as database:
        for call in (database.run, database.read):
            assert await call(lambda connection: threading.current_thread()) is not threading.main_thread()


async def test_close_waits_for_running_calls_and_then_refuses_new_ones(any_url: str):
    begun, go_on = trio.Event(), threading.Event()

    def insert_slowly(connection: Connection) -> None:
        trio.from_thread.run_sync(begun.set)
        assert go_on.wait(10)
        insert(1)(connection)

    async with Opened(any_url) as database:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(database.run, insert_slowly)
            await begun.wait()
            nursery.start_soon(database.close)
            await trio.testing.wait_all_tasks_blocked()
            go_on.set()
        with pytest.raises(StoreDown, match="it is not open"):
            await database.read(ids)
        await database.close()
        if "memory" not in any_url:
            await database.open()
            assert await database.read(ids) == [(1,)]


async def test_committing_a_failed_transaction_of_postgresql_is_an_error(postgresql: Server):
    def swallow(connection: Connection) -> None:
        insert(1)(connection)
        with pytest.raises(Exception, match="syntax"):
            statement("SELEKT 1")(connection)

    async with Opened(postgresql.fresh_database()) as database:
        with pytest.raises(StoreBroken, match="cannot commit the transaction"):
            await database.run(swallow)
