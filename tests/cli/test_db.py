"""`greenroom db`: the effect, the output and the exit code of each command."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import Result

from greenroom import Jobs, open_engine
from greenroom.cli import main
from greenroom.errors import GreenroomError
from greenroom.persistence import schema
from greenroom.persistence.database import DatabaseManager
from greenroom.persistence.migrating import differences
from tests.cli.runner import runner
from tests.servers import Server

PATIENCE = 30.0

jobs = Jobs()


@jobs.job("nothing")
async def nothing(run: Any) -> None:
    pass


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


def greenroom(*arguments: object) -> Result:
    """Run the command. Its output never contains a traceback."""
    result = runner().invoke(main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def refused(*arguments: object, code: int = 1) -> str:
    """The error message of a command."""
    result = greenroom(*arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    [sentence] = result.stderr.splitlines() if code == 1 else result.stderr.splitlines()[-1:]
    assert sentence.startswith("Error: ")
    return sentence


def run_some(store: str, tmp_path: Path, count: int) -> list[str]:
    """Let an engine run some runs on the store; returns their ids."""

    async def run() -> list[str]:
        async with open_engine(jobs, store, data_dir=tmp_path / "data") as engine:
            tickets = [await engine.submit("nothing", handle=f"h{n}") for n in range(count)]
            for ticket in tickets:
                await ticket.result()
            return [ticket.id for ticket in tickets]

    return trio.run(run)


def ids_in(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as connection:
        return [id for [id] in connection.execute("SELECT id FROM runs ORDER BY id")]


async def in_thread(*arguments: object) -> Result:
    """Run the command while this program continues."""
    return await trio.to_thread.run_sync(greenroom, *arguments)


def test_every_command_has_a_help_text_with_an_example():
    for command in ("upgrade", "current", "check", "prune", "backup"):
        shown = greenroom("db", command, "--help").stdout
        assert "Example" in shown
        assert f"greenroom db {command}" in shown
        assert "GREENROOM_STORE" in shown


def test_the_command_is_a_module_too():
    shown = subprocess.run(
        [sys.executable, "-m", "greenroom", "--version"], capture_output=True, text=True, check=True
    )
    assert shown.stdout.startswith("greenroom, version ")


def test_errors_are_printed_as_json(store: str, tmp_path: Path):
    def printed(*arguments: object, code: int = 0) -> Any:
        result = greenroom("db", *arguments, "--store", store, "--json")
        assert result.exit_code == code
        return json.loads(result.stdout if code == 0 else result.stderr)

    assert printed("current", code=1)["message"].endswith("check its path")
    needed = schema.SCHEMA_VERSION
    assert printed("upgrade") == {"store": store, "before": None, "schema": needed}
    assert printed("upgrade") == {"store": store, "before": needed, "schema": needed}
    assert printed("current") == {"store": store, "schema": needed, "needed": needed}
    assert printed("check") == {"store": store, "schema": needed}
    run_some(store, tmp_path, 3)
    assert printed("prune", "--keep-events", 1) == {"store": store, "forgotten": 8}
    file = str(tmp_path / "copy.db")
    assert printed("backup", file) == {"store": store, "file": file}
    assert printed("backup", file, code=1)["code"] == "conflict"
    (tmp_path / "store.db").write_bytes(b"nonsense" * 1000)
    assert printed("check", code=1)["code"] == "internal"


@pytest.mark.parametrize(
    "arguments",
    [
        ("db", "nonsense"),
        ("db", "prune"),
        ("db", "prune", "--keep-runs", "-1"),
        ("db", "prune", "--keep-runs-for", "soon"),
        ("db", "backup"),
    ],
)
def test_invalid_arguments_exit_with_2(arguments: tuple[str, ...]):
    refused(*arguments, code=2)


def test_the_store_can_be_named_by_the_environment(
    store: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("GREENROOM_STORE", store)
    assert greenroom("db", "upgrade").stdout == f"{store}: created the tables (schema 7).\n"
    assert (tmp_path / "store.db").exists()


def test_the_default_store_is_greenroom_db_in_the_current_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GREENROOM_STORE", raising=False)
    greenroom("db", "upgrade")
    assert (tmp_path / "greenroom.db").exists()


@pytest.mark.parametrize("command", ["current", "check", "prune"])
def test_a_missing_store_is_not_created(command: str, store: str, tmp_path: Path):
    given = ["--keep-runs", "1"] if command == "prune" else []
    assert "does not exist" in refused("db", command, "--store", store, *given)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["upgrade", "current", "check"])
def test_a_damaged_file_is_one_sentence(command: str, store: str, tmp_path: Path):
    (tmp_path / "store.db").write_bytes(b"no database at all" * 1000)
    assert "restore it from a backup" in refused("db", command, "--store", store)


def test_damage_inside_of_the_file_is_found(store: str, tmp_path: Path):
    run_some(store, tmp_path, 50)
    file = tmp_path / "store.db"
    content = bytearray(file.read_bytes())
    content[4096 * 6 : 4096 * 8] = b"\x05" * 4096 * 2
    file.write_bytes(content)
    assert "the file is damaged, restore it from a backup" in refused("db", "check", "--store", store)


def test_a_bad_address_is_one_sentence_without_its_password():
    sentence = refused("db", "current", "--store", "oracle://me:secret@host/name")
    assert "or begin with sqlite:///" in sentence
    assert "secret" not in sentence


def test_a_store_in_memory_is_refused_with_the_reason():
    assert "a memory: store exists only in its engine" in refused("db", "current", "--store", "memory:")


def test_a_store_of_a_newer_version_is_refused_by_every_command(store: str, tmp_path: Path):
    run_some(store, tmp_path, 1)
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
        connection.execute("UPDATE meta SET schema_version = 8")
    for given in (["upgrade"], ["check"], ["prune", "--keep-runs", "0"]):
        assert "created by a newer Greenroom" in refused("db", *given, "--store", store)
    assert (
        "schema 8; this version of Greenroom requires schema 7"
        in greenroom("db", "current", "--store", store).stdout
    )


def test_a_sqlite_store_is_sound_after_use_by_an_engine(store: str, tmp_path: Path):
    run_some(store, tmp_path, 3)
    assert greenroom("db", "upgrade", "--store", store).stdout.endswith("nothing to do (schema 7).\n")
    assert greenroom("db", "check", "--store", store).stdout.endswith("no errors (schema 7).\n")
    assert "schema 7;" in greenroom("db", "current", "--store", store).stdout


def test_an_engine_opens_a_store_that_upgrade_has_created(store: str, tmp_path: Path):
    greenroom("db", "upgrade", "--store", store)
    assert len(run_some(store, tmp_path, 2)) == 2


async def test_commands_that_need_exclusive_access_are_refused_while_an_engine_uses_the_store(
    store: str, tmp_path: Path
):
    async with open_engine(jobs, store, data_dir=tmp_path / "data"):
        for given in (["upgrade"], ["prune", "--keep-runs", "0"]):
            result = await in_thread("db", *given, "--store", store)
            assert result.exit_code == 1
            assert "is in use by another engine (pid " in result.stderr
        assert (await in_thread("db", "check", "--store", store)).exit_code == 0
        assert (await in_thread("db", "current", "--store", store)).exit_code == 0


def test_prune_deletes_the_runs_that_ended_first(store: str, tmp_path: Path):
    runs = run_some(store, tmp_path, 8)
    assert "deleted" in greenroom("db", "prune", "--keep-runs", 3, "--store", store).stdout
    assert ids_in(tmp_path / "store.db") == runs[-3:]


def test_prune_deletes_what_is_older_than_a_time(store: str, tmp_path: Path):
    runs = run_some(store, tmp_path, 4)
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
        connection.execute("UPDATE runs SET ended_at = ended_at - 7200 WHERE id <= ?", [runs[1]])
    greenroom("db", "prune", "--keep-runs-for", "1h", "--store", store)
    assert ids_in(tmp_path / "store.db") == runs[2:]


def test_a_backup_is_a_store_with_everything_in_it(store: str, tmp_path: Path):
    runs = run_some(store, tmp_path, 5)
    copy = tmp_path / "copies" / "copy.db"
    copy.parent.mkdir()
    assert str(copy) in greenroom("db", "backup", copy, "--store", store).stdout
    assert [file.name for file in copy.parent.iterdir()] == ["copy.db"]

    async def look() -> list[str]:
        async with open_engine(jobs, f"sqlite:///{copy}", data_dir=tmp_path / "data") as engine:
            return [run.id for run in await engine.list_runs()][::-1]

    assert trio.run(look) == runs


async def test_a_backup_of_a_busy_engine_is_consistent(store: str, tmp_path: Path):
    async with open_engine(jobs, store, data_dir=tmp_path / "data") as engine, trio.open_nursery() as nursery:

        async def submit() -> None:
            for number in range(1_000_000):
                await (await engine.submit("nothing", handle=f"h{number % 7}", on_conflict="queue")).result()

        nursery.start_soon(submit)
        for number in range(3):
            await trio.sleep(0.05)
            copy = tmp_path / f"copy{number}.db"
            assert (await in_thread("db", "backup", copy, "--store", store)).exit_code == 0
            with closing(sqlite3.connect(copy)) as connection:
                [[last]] = connection.execute("SELECT last_seq FROM meta")
                [[newest]] = connection.execute("SELECT max(seq) FROM events")
                assert last == newest
                assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        nursery.cancel_scope.cancel()


def test_a_backup_replaces_no_file_without_overwrite(store: str, tmp_path: Path):
    run_some(store, tmp_path, 1)
    copy = tmp_path / "copy.db"
    copy.write_text("precious")
    assert "already exists" in refused("db", "backup", copy, "--store", store)
    assert copy.read_text() == "precious"
    assert greenroom("db", "backup", copy, "--overwrite", "--store", store).exit_code == 0
    assert len(ids_in(copy)) == 1


def test_a_failed_backup_is_one_sentence_and_leaves_no_file(store: str, tmp_path: Path):
    run_some(store, tmp_path, 1)
    before = sorted(tmp_path.iterdir())
    assert "itself" in refused("db", "backup", tmp_path / "store.db", "--overwrite", "--store", store)
    assert "No such file" in refused("db", "backup", tmp_path / "no" / "copy.db", "--store", store)
    other = f"sqlite:///{tmp_path}/other.db"
    assert "does not exist" in refused("db", "backup", tmp_path / "copy.db", "--store", other)
    assert sorted(tmp_path.iterdir()) == before


def test_a_file_that_is_not_a_store_is_not_backed_up(tmp_path: Path):
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection, connection:
        connection.execute("CREATE TABLE mine (id INTEGER)")
    given = ["--store", f"sqlite:///{tmp_path}/app.db"]
    assert "is not a Greenroom store" in refused("db", "backup", tmp_path / "copy.db", *given)


@pytest.mark.parametrize(
    ("url", "program"),
    [("postgresql://me@host/name", "pg_dump"), ("mysql://me@host/name", "mysqldump")],
)
def test_the_backup_of_a_server_names_its_program(url: str, program: str, tmp_path: Path):
    assert program in refused("db", "backup", tmp_path / "copy", "--store", url)


def test_an_empty_database_on_a_server_is_refused_with_what_to_run(server: Server, tmp_path: Path):
    url = server.fresh_database()
    with pytest.raises(GreenroomError, match="run greenroom db upgrade"):
        run_some(url, tmp_path, 1)
    assert "run greenroom db upgrade" in refused("db", "check", "--store", url)
    assert (
        "no schema; this version of Greenroom requires schema 7"
        in greenroom("db", "current", "--store", url).stdout
    )


def test_upgrade_creates_the_tables_of_a_server_and_can_be_repeated(server: Server, tmp_path: Path):
    url = server.fresh_database()
    assert "created the tables (schema 7)" in greenroom("db", "upgrade", "--store", url).stdout
    assert "schema 7;" in greenroom("db", "current", "--store", url).stdout
    assert "nothing to do" in greenroom("db", "upgrade", "--store", url).stdout
    assert greenroom("db", "check", "--store", url).exit_code == 0
    assert len(run_some(url, tmp_path, 3)) == 3
    assert "nothing to do" in greenroom("db", "upgrade", "--store", url).stdout
    assert "deleted" in greenroom("db", "prune", "--keep-runs", 1, "--store", url).stdout
    assert server.password not in greenroom("db", "current", "--store", url).stdout


async def test_tables_that_no_engine_has_opened_yet_have_a_version_too(server: Server, tmp_path: Path):
    url = server.fresh_database()
    await trio.to_thread.run_sync(lambda: greenroom("db", "upgrade", "--store", url))
    database = DatabaseManager(url)
    await database.open()
    newer = f"UPDATE alembic_version SET version_num = '{schema.SCHEMA_VERSION + 1}'"
    await database.run(lambda connection: connection.exec_driver_sql(newer))
    await database.close()
    with pytest.raises(GreenroomError, match="created by a newer Greenroom"):
        await trio.to_thread.run_sync(lambda: run_some(url, tmp_path, 1))


async def test_the_migrated_schema_is_that_of_the_metadata(server: Server):
    url = server.fresh_database()
    assert (await in_thread("db", "upgrade", "--store", url)).exit_code == 0
    database = DatabaseManager(url)
    await database.open()
    try:
        assert await database.read(lambda connection: differences(connection, database.kind)) == []
    finally:
        await database.close()


async def test_check_names_what_differs_on_a_server(server: Server):
    url = server.fresh_database()
    await in_thread("db", "upgrade", "--store", url)
    server.execute(
        "DROP INDEX runs_by_end" + (" ON runs" if server.kind == "mysql" else ""), url.split("/")[-1]
    )
    result = await in_thread("db", "check", "--store", url)
    assert result.exit_code == 1
    assert "runs_by_end" in result.stderr


async def test_an_upgrade_that_was_interrupted_is_completed(server: Server):
    url = server.fresh_database()
    database = DatabaseManager(url)
    await database.open()
    await database.run(lambda connection: schema.runs.create(connection))
    await database.run(
        lambda connection: connection.exec_driver_sql(
            "DROP INDEX runs_by_end" + (" ON runs" if server.kind == "mysql" else "")
        )
    )
    await database.close()
    assert (await in_thread("db", "upgrade", "--store", url)).exit_code == 0
    assert (await in_thread("db", "check", "--store", url)).exit_code == 0


async def test_a_servers_tables_are_not_upgraded_under_an_engine(server: Server, tmp_path: Path):
    url = server.fresh_database()
    await in_thread("db", "upgrade", "--store", url)
    async with open_engine(jobs, url, data_dir=tmp_path / "data"):
        result = await in_thread("db", "upgrade", "--store", url)
        assert result.exit_code == 1
        assert "is in use by another engine" in result.stderr


def test_a_server_that_does_not_answer_is_one_sentence(server: Server):
    url = server.url("nowhere", password="wrong")
    assert server.password not in refused("db", "current", "--store", url)
    closed = f"{server.kind}://me@127.0.0.1:1/name"
    assert "the store is unavailable" in refused("db", "check", "--store", closed)
