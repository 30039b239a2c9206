"""The writer of a SQLite database: its thread, and its connection."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from greenroom.persistence.database import DatabaseManager
from greenroom.persistence.failures import StoreBroken, StoreDown
from greenroom.persistence.writer import WriterThread

from .rows import Opened, ids


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "x.db"


@pytest.fixture
async def database(file: Path) -> AsyncIterator[DatabaseManager]:
    async with Opened(f"sqlite:///{file}") as database:
        yield database


def add(id: int, cursor: Any) -> threading.Thread:
    cursor.execute("INSERT INTO rows_of_test VALUES (?, 'a')", (id,))
    return threading.current_thread()


async def test_commits_are_made_in_order_and_by_one_thread(database: DatabaseManager):
    threads: list[threading.Thread] = []
    order: list[int] = []

    async def commit(id: int) -> None:
        threads.append(await database.commit(lambda cursor: add(id, cursor)))
        order.append(id)

    async with trio.open_nursery() as nursery:
        for id in range(20):
            nursery.start_soon(commit, id)
            await trio.testing.wait_all_tasks_blocked()
    assert order == list(range(20))
    assert len(set(threads)) == 1
    assert threads[0] is not threading.current_thread()


async def test_the_thread_ends_with_the_database(file: Path):
    async with Opened(f"sqlite:///{file}") as database:
        thread = await database.commit(lambda cursor: add(1, cursor))
        assert thread.is_alive()
    assert not thread.is_alive()
    with pytest.raises(StoreDown, match="it is not open"):
        await database.commit(lambda cursor: add(2, cursor))


async def test_a_failed_commit_is_rolled_back_and_the_next_one_has_a_new_session(
    database: DatabaseManager,
):
    def add_and_fail(cursor: Any) -> None:
        sessions.append(cursor.connection)
        add(1, cursor)
        cursor.execute("INSERT INTO nowhere VALUES (1)")

    sessions: list[sqlite3.Connection] = []
    with pytest.raises(StoreBroken, match="nowhere") as caught:
        await database.commit(add_and_fail)
    assert caught.value.outcome_known
    sessions.append(await database.commit(lambda cursor: cursor.connection))
    assert sessions[0] is not sessions[1]
    assert await database.read(ids) == []


async def test_a_commit_to_a_busy_file_is_retried_until_it_is_free(
    file: Path, database: DatabaseManager, autojump_clock: trio.testing.MockClock
):
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        tries = 0

        def commit(cursor: Any) -> None:
            nonlocal tries
            tries += 1
            if tries == 3:
                return
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise error

        began = trio.current_time()
        await database.commit(commit)
        assert tries == 3
        assert trio.current_time() == began + 3.0
        other.execute("BEGIN IMMEDIATE")  # no transaction was left open
        other.execute("ROLLBACK")


async def test_a_commit_and_another_write_do_not_wait_for_each_other_in_the_database(
    database: DatabaseManager,
):
    at_work = most = 0

    def work(_: object) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        threading.Event().wait(0.01)
        at_work -= 1

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(database.commit, work)
            nursery.start_soon(database.run, work)
    assert most == 1


async def test_a_cancel_has_no_effect_on_a_queued_commit_and_prevents_a_waiting_one(
    database: DatabaseManager,
):
    begun, go_on = trio.Event(), threading.Event()
    token = trio.lowlevel.current_trio_token()
    made: list[int] = []

    def hang(cursor: Any) -> None:
        token.run_sync_soon(begun.set)
        assert go_on.wait(10)
        made.append(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(database.commit, hang)
        await begun.wait()
        nursery.start_soon(database.commit, lambda _: made.append(2))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.sleep(0.01)
        assert made == []
        go_on.set()
    assert made == [1]


async def test_an_exception_of_a_call_is_raised_where_it_is_awaited():
    thread = WriterThread("test")
    thread.start()
    with pytest.raises(ZeroDivisionError):
        await thread.call(lambda: 1 / 0)
    assert await thread.call(lambda: 1) == 1
    thread.stop()
