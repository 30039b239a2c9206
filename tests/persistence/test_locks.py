"""The lock of a store: its holder, the refusal of a second engine, and its end."""

import fcntl
import os
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from greenroom.persistence.database import DatabaseManager
from greenroom.persistence.failures import StoreBroken, StoreDown
from greenroom.persistence.locks import StoreLock
from greenroom.protocol.errors import Conflict
from tests.servers import Server

from .proxy import Proxy

HOLD = """
import sys, trio
from greenroom.persistence.locks import StoreLock

async def hold():
    lock = StoreLock(sys.argv[1])
    await lock.acquire()
    print("held", flush=True)
    await trio.sleep_forever()

trio.run(hold)
"""

FORK = """
import os, sys, trio
from greenroom.persistence.locks import StoreLock

async def hold():
    lock = StoreLock(sys.argv[1])
    await lock.acquire()
    if os.fork() == 0:
        print("forked", flush=True)
        sys.stdin.read()
        os._exit(0)
    if sys.argv[2] == "release":
        await lock.release()
    await trio.sleep_forever()

trio.run(hold)
"""
"""A process that holds the lock, and its child, which ends with the input."""


async def refusal(url: str) -> str:
    with pytest.raises(Conflict) as caught:
        await StoreLock(url).acquire()
    assert "cr@t" not in caught.value.message
    return caught.value.message


async def test_a_second_engine_is_refused_until_the_first_has_ended(url: str):
    first, second = StoreLock(url), StoreLock(url)
    await first.acquire()
    await refusal(url)
    assert await first.check()
    await first.release()
    await second.acquire()
    assert await second.check()
    assert not await first.check()
    await second.release()


async def test_the_refusal_contains_the_store_and_the_holder(url: str):
    lock = StoreLock(url)
    await lock.acquire()
    message = await refusal(url)
    await lock.release()
    store = re.sub(":[^@/]*@", "@", url)
    assert f"the store {store} is in use" in message
    if not url.startswith("mysql"):  # which shows only the connection
        assert f"pid {os.getpid()} on " in message
        assert re.search(r"since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", message) or "postgresql" in url
    else:
        assert "user greenroom from 127.0.0.1" in message


async def test_acquire_and_release_can_be_repeated(url: str):
    lock = StoreLock(url)
    await lock.release()
    for _ in range(2):
        await lock.acquire()
        await lock.acquire()
        await lock.release()
        await lock.release()


async def test_a_killed_process_leaves_no_lock(url: str):
    holder = await trio.to_thread.run_sync(start_holder, url)
    message = await refusal(url)
    if not url.startswith("mysql"):
        assert f"pid {holder.pid} on " in message
    holder.send_signal(signal.SIGKILL)
    await trio.to_thread.run_sync(holder.communicate)
    lock = StoreLock(url)
    with trio.fail_after(10):
        while True:  # a server detects it a moment later
            try:
                await lock.acquire()
            except Conflict:
                await trio.sleep(0.01)
            else:
                break
    await lock.release()


def start_holder(url: str) -> "subprocess.Popen[bytes]":
    holder = subprocess.Popen([sys.executable, "-c", HOLD, url], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    return holder


async def test_a_store_in_memory_needs_no_lock():
    first, second = StoreLock("sqlite://", in_threads=False), StoreLock("sqlite://")
    await first.acquire()
    await second.acquire()
    assert await first.check()
    await first.release()


async def test_the_lock_file_is_next_to_the_database_and_remains_empty(tmp_path: Path):
    lock = StoreLock(f"sqlite:///{tmp_path}/x.db")
    await lock.acquire()
    assert os.listdir(tmp_path) == ["x.db.lock"]
    assert (tmp_path / "x.db.lock").read_text().startswith(f"pid {os.getpid()} on ")
    await lock.release()
    assert (tmp_path / "x.db.lock").read_text() == ""


async def test_opening_and_closing_the_database_does_not_release_the_lock(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/x.db"
    lock, database = StoreLock(url), DatabaseManager(url)
    await lock.acquire()
    await database.open()
    await database.close()
    sqlite3.connect(tmp_path / "x.db").close()
    await refusal(url)
    await lock.release()


async def test_another_name_of_the_same_file_is_the_same_store(tmp_path: Path):
    os.symlink(tmp_path, tmp_path / "link")
    lock = StoreLock(f"sqlite:///{tmp_path}/x.db")
    await lock.acquire()
    await refusal(f"sqlite:///{tmp_path}/link/x.db")
    await lock.release()


async def test_a_lock_whose_file_was_deleted_is_lost_and_can_be_taken_again(tmp_path: Path):
    lock = StoreLock(f"sqlite:///{tmp_path}/x.db")
    await lock.acquire()
    (tmp_path / "x.db.lock").unlink()
    assert not await lock.check()
    await lock.acquire()
    assert await lock.check()
    await lock.release()


async def test_a_lock_whose_file_is_deleted_during_the_acquisition_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    flock = fcntl.flock

    def flock_too_late(file: int, operation: int) -> None:
        monkeypatch.undo()
        (tmp_path / "x.db.lock").unlink()
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", flock_too_late)
    url = f"sqlite:///{tmp_path}/x.db"
    lock = StoreLock(url)
    await lock.acquire()
    await refusal(url)
    await lock.release()


async def test_the_error_for_a_missing_folder_contains_its_path(tmp_path: Path):
    with pytest.raises(StoreBroken, match=f"folder {tmp_path}/none does not exist"):
        await StoreLock(f"sqlite:///{tmp_path}/none/x.db").acquire()


async def test_the_error_for_a_read_only_folder_contains_its_path(read_only_folder: Path):
    lock = StoreLock(f"sqlite:///{read_only_folder}/x.db", in_threads=False)
    with pytest.raises(StoreBroken, match=f"cannot write {read_only_folder}/x.db.lock"):
        await lock.acquire()


async def test_another_database_of_the_same_server_is_another_store(server: Server):
    first, second = StoreLock(server.fresh_database()), StoreLock(server.fresh_database())
    await first.acquire()
    await second.acquire()
    await first.release()
    await second.release()


async def test_a_lock_is_lost_with_its_connection_and_can_be_taken_again(server: Server):
    url = server.fresh_database()
    lock = StoreLock(url)
    await lock.acquire()
    server.end_sessions()
    assert not await lock.check()
    await lock.acquire()
    assert await lock.check()
    await lock.release()


async def test_a_lost_connection_of_the_same_engine_is_not_reported_as_another_engine(server: Server):
    url = server.fresh_database()
    proxy = Proxy(server.port)
    lock = StoreLock(url.replace(str(server.port), str(proxy.port)))
    await lock.acquire()
    proxy.cut = "unnoticed"
    assert not await lock.check()
    proxy.cut = None
    with pytest.raises(StoreDown, match="a lost connection of this engine still holds its lock"):
        await lock.acquire()
    await refusal(url)
    server.end_sessions()
    await lock.acquire()
    await lock.release()
    proxy.close()


async def test_each_schema_of_a_database_is_a_separate_store(postgresql: Server):
    url = postgresql.fresh_database()
    name = url.rpartition("/")[2]
    first, second = StoreLock(url), StoreLock(url)
    await first.acquire()
    postgresql.execute("CREATE SCHEMA other", name)
    postgresql.execute(f"ALTER DATABASE {name} SET search_path = other")
    await second.acquire()
    await first.release()
    await second.release()


async def test_an_idle_lock_is_not_lost(mariadb: Server):
    lock = StoreLock(mariadb.fresh_database())
    mariadb.execute("SET GLOBAL wait_timeout = 1")
    try:
        await lock.acquire()
        await trio.sleep(2)
        assert await lock.check()
    finally:
        mariadb.execute("SET GLOBAL wait_timeout = 28800")
    await lock.release()


async def test_without_its_server_a_lock_is_not_held_and_cannot_be_acquired(server: Server):
    url = server.fresh_database()
    lock = StoreLock(url)
    await lock.acquire()
    server.stop()
    assert not await lock.check()
    with pytest.raises(StoreDown, match=f"127.0.0.1:{server.port}"):
        await lock.acquire()
    server.start()
    await lock.acquire()
    assert await lock.check()
    await lock.release()


async def test_a_wrong_password_is_not_reported_as_a_conflict(server: Server):
    with pytest.raises(StoreBroken, match="user name or password is wrong"):
        await StoreLock(server.url("whatever", password="guess")).acquire()


async def acquire_soon(url: str) -> None:
    with trio.fail_after(60):
        while True:
            try:
                await StoreLock(url).acquire()
            except Conflict:
                await trio.sleep(0.01)
            else:
                return


@pytest.mark.parametrize("end", ["release", "kill"])
def test_a_forked_child_does_not_keep_the_lock_of_its_parent(end: str, tmp_path: Path):
    url = f"sqlite:///{tmp_path}/x.db"
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", FORK, url, end],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        try:
            assert parent.stdout is not None
            assert parent.stdout.readline() == "forked\n"
            if end == "kill":
                trio.run(refusal, url)  # the child has not released the lock of its parent, either
                parent.kill()
            trio.run(acquire_soon, url)
        finally:
            parent.kill()
