"""Stores that cannot be used are refused at the opening, with one sentence that contains the remedy."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from greenroom import Jobs, open_engine
from greenroom.errors import Conflict, GreenroomError
from greenroom.persistence import schema
from greenroom.persistence.database import DatabaseManager
from greenroom.persistence.failures import StoreBroken, StoreDown
from tests.servers import Server


async def refusal(store: str, expected: type[GreenroomError]) -> str:
    """Return the error message of an engine that cannot be opened."""
    with pytest.raises(expected) as caught:
        async with open_engine(Jobs(), store):
            pass
    assert type(caught.value) is expected
    message = caught.value.message
    assert str(caught.value) == message
    assert "\n" not in message
    assert ". " not in message, "it is more than one sentence"
    assert len(message) < 400
    assert not re.search(r"sqlalche|sqlite3\.|psycopg\.|pymysql\.|Traceback|0x[0-9a-f]{6}", message)
    return message


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Server:
    """Each server in turn."""
    return request.getfixturevalue(request.param)


async def with_tables(url: str) -> str:
    """The same address, of a database that an engine can open."""
    database = DatabaseManager(url)
    await database.open()
    await database.run(schema.metadata.create_all)
    await database.close()
    async with open_engine(Jobs(), url):
        pass
    return url


async def set_version(url: str, version: int) -> None:
    database = DatabaseManager(url)
    await database.open()
    await database.run(
        lambda connection: connection.execute(schema.meta.update(), {"schema_version": version})
    )
    await database.close()


async def test_a_file_of_a_newer_version(tmp_path: Path):
    url = await with_tables(f"sqlite:///{tmp_path}/x.db")
    await set_version(url, 1_000)
    message = await refusal(url, StoreBroken)
    assert f"{tmp_path}/x.db" in message
    assert "newer" in message
    assert "upgrade Greenroom" in message
    await set_version(url, schema.SCHEMA_VERSION)  # and nothing was changed
    async with open_engine(Jobs(), url):
        pass


async def test_a_server_database_of_a_newer_version(server: Server):
    url = await with_tables(server.fresh_database())
    await set_version(url, 1_000)
    message = await refusal(url, StoreBroken)
    assert "newer" in message
    assert "upgrade Greenroom" in message
    assert server.password not in message


async def test_a_server_database_without_tables(server: Server):
    message = await refusal(server.fresh_database(), StoreBroken)
    assert "greenroom db upgrade" in message


async def test_a_server_database_of_an_older_version(server: Server):
    url = await with_tables(server.fresh_database())
    await set_version(url, 0)
    message = await refusal(url, StoreBroken)
    assert "greenroom db upgrade" in message


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0" + b"garbage" * 1000])
async def test_a_file_that_is_not_a_database(tmp_path: Path, content: bytes):
    (tmp_path / "x.db").write_bytes(content)
    message = await refusal(f"sqlite:///{tmp_path}/x.db", StoreBroken)
    assert f"{tmp_path}/x.db" in message
    assert "damaged" in message
    assert "backup" in message
    assert (tmp_path / "x.db").read_bytes() == content


async def test_a_file_whose_middle_is_damaged(tmp_path: Path):
    url = await with_tables(f"sqlite:///{tmp_path}/x.db")
    path = tmp_path / "x.db"
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xa5" * (len(whole) - 4096))
    message = await refusal(url, StoreBroken)
    assert f"{tmp_path}/x.db" in message
    assert "damaged" in message


async def test_a_database_of_another_program(tmp_path: Path):
    with sqlite3.connect(tmp_path / "x.db") as other:
        other.execute("CREATE TABLE meta (key TEXT, value TEXT)")
        other.execute("INSERT INTO meta VALUES ('whose', 'another application')")
    other.close()
    message = await refusal(f"sqlite:///{tmp_path}/x.db", StoreBroken)
    assert f"{tmp_path}/x.db" in message


async def test_a_folder_that_cannot_be_written(tmp_path: Path):
    # In /proc no user can create a file, not even root.
    message = await refusal("sqlite:////proc/self/x.db", StoreBroken)
    assert "/proc/" in message
    assert re.search("writ|exist", message)


if os.geteuid() != 0:  # root can write everywhere else

    async def test_a_folder_without_write_permission(tmp_path: Path):
        folder = tmp_path / "folder"
        folder.mkdir(mode=0o555)
        message = await refusal(f"sqlite:///{folder}/x.db", StoreBroken)
        assert str(folder) in message
        assert "writable" in message


async def test_a_missing_folder(tmp_path: Path):
    message = await refusal(f"sqlite:///{tmp_path}/none/x.db", StoreBroken)
    assert f"{tmp_path}/none" in message
    assert "does not exist" in message


async def test_a_wrong_password(server: Server):
    database = server.fresh_database().rpartition("/")[2]
    message = await refusal(server.url(database, password="guess"), StoreBroken)
    assert "password is wrong" in message
    assert f"127.0.0.1:{server.port}/{database}" in message
    assert "guess" not in message


async def test_a_missing_database(server: Server):
    message = await refusal(server.url("nowhere"), StoreBroken)
    assert "nowhere" in message
    assert server.password not in message


async def test_a_server_that_does_not_answer(server: Server):
    url = server.fresh_database()
    server.stop()
    try:
        message = await refusal(url, StoreDown)
    finally:
        server.start()
    assert f"127.0.0.1:{server.port}" in message
    assert server.password not in message


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [("postgresql://h/d", "psycopg", "postgres"), ("mysql://h/d", "pymysql", "mysql")],
)
def test_a_missing_driver(url: str, module: str, extra: str):
    program = f"""
import sys
sys.modules[{module!r}] = None  # as if it were not installed
import trio
from greenroom import Jobs, open_engine

async def main():
    async with open_engine(Jobs(), {url!r}):
        pass

try:
    trio.run(main)
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    [line] = done.stdout.splitlines()
    assert line.startswith("StoreBroken ")
    assert f'pip install "greenroom[{extra}]"' in line


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])
async def test_a_second_engine(kind: str, request: pytest.FixtureRequest, tmp_path: Path):
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path}/x.db"
    else:
        url = await with_tables(request.getfixturevalue(kind).fresh_database())
    async with open_engine(Jobs(), url) as first:
        message = await refusal(url, Conflict)
        assert "in use by another engine" in message
        assert ("x.db" if kind == "sqlite" else url.rpartition("/")[2]) in message
        await first.set_params("handle", 1)  # the refused engine had no effect on it
    async with open_engine(Jobs(), url) as third:
        assert (await third.snapshot()).handles["handle"].params == 1


def test_a_second_engine_in_another_process(tmp_path: Path):
    program = f"""
import sys, trio
from greenroom import Jobs, open_engine

async def main():
    async with open_engine(Jobs(), "sqlite:///{tmp_path}/x.db"):
        print("open", flush=True)
        sys.stdin.readline()

try:
    trio.run(main)
except Exception as error:
    print(type(error).__name__, error, flush=True)
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "open\n"
        second = subprocess.run(command, input="\n", capture_output=True, text=True, check=False)
        assert second.stdout.startswith("Conflict ")
        assert f"pid {first.pid} on" in second.stdout
        first.kill()
    third = subprocess.run(command, input="\n", capture_output=True, text=True, check=False)
    assert third.stdout == "open\n", "a killed engine leaves no lock"
