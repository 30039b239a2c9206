"""A store that contradicts its traces: emptied, an older copy, or without its write-ahead log."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from greenroom import Engine, Jobs, Run, open_engine
from greenroom.persistence.failures import StoreBroken
from greenroom.persistence.migrating import check
from greenroom.protocol.records import Snapshot
from tests.servers import Server

from .test_outages import make_tables

jobs = Jobs()


@jobs.job("echo")
async def echo(run: Run, params: dict[str, Any]) -> Any:
    return params


def opened(folder: Path, store: str | None = None, **options: Any) -> AbstractAsyncContextManager[Engine]:
    url = store or f"sqlite:///{folder}/x.db"
    return open_engine(jobs, url, data_dir=folder / "data", **options)


async def use(folder: Path, **options: Any) -> Snapshot:
    """Execute a run with an engine, and shut down."""
    async with opened(folder, **options) as engine:
        ticket = await engine.submit("echo", handle="a", params={})
        await ticket.result()
        return await engine.snapshot()


USE_AND_DIE = """
import os, signal, sys, trio
from pathlib import Path
from tests.faults.test_emptied_store import opened

async def main():
    async with opened(Path(sys.argv[1])) as engine:
        await (await engine.submit("echo", handle="a", params={})).result()
        os.kill(os.getpid(), signal.SIGKILL)

trio.run(main)
"""


def use_and_die(folder: Path) -> None:
    """Execute a run with an engine that is then killed."""
    done = subprocess.run([sys.executable, "-c", USE_AND_DIE, folder], cwd=Path(__file__).parents[2])
    assert done.returncode == -signal.SIGKILL


def remove(folder: Path, *endings: str) -> None:
    for ending in endings:
        (folder / f"x.db{ending}").unlink(missing_ok=True)


def remove_the_log(folder: Path) -> None:
    assert (folder / "x.db-wal").stat().st_size > 0
    remove(folder, "-wal", "-shm")


def remove_the_store(folder: Path) -> None:
    remove(folder, "", "-wal", "-shm")


def truncate_the_store(folder: Path) -> None:
    remove(folder, "-wal", "-shm")
    (folder / "x.db").write_bytes(b"")


async def refusal(folder: Path, **options: Any) -> str:
    with pytest.raises(StoreBroken) as caught:
        async with opened(folder, **options):
            pass
    message = caught.value.message
    assert "--accept-store" in message
    assert "accept_store=True" in message
    assert "\n" not in message
    assert ". " not in message
    return message


@pytest.mark.parametrize("trouble", [remove_the_log, remove_the_store, truncate_the_store])
async def test_the_remains_of_a_killed_engine_are_not_accepted_as_a_new_store(
    tmp_path: Path, trouble: Callable[[Path], None]
):
    use_and_die(tmp_path)
    trouble(tmp_path)
    for _ in range(2):  # a refusal changes nothing
        message = await refusal(tmp_path)
        assert "x.db.lock records seq " in message
    async with opened(tmp_path, accept_store=True) as engine:
        assert (await engine.snapshot()).runs == {}
    await use(tmp_path)


@pytest.mark.parametrize("trouble", [remove_the_store, truncate_the_store])
async def test_an_emptied_store_is_not_accepted_as_a_new_one(tmp_path: Path, trouble: Callable[[Path], None]):
    await use(tmp_path)
    trouble(tmp_path)
    assert "is empty" in await refusal(tmp_path)


async def test_a_restored_log_is_read_completely(tmp_path: Path):
    use_and_die(tmp_path)
    (tmp_path / "x.db-wal").rename(tmp_path / "kept")
    await refusal(tmp_path)
    (tmp_path / "kept").rename(tmp_path / "x.db-wal")
    async with opened(tmp_path) as engine:
        assert len((await engine.snapshot()).runs) == 1


async def test_an_older_copy_is_refused_and_can_be_accepted_with_a_new_epoch(tmp_path: Path):
    before = await use(tmp_path)
    shutil.copy(tmp_path / "x.db", tmp_path / "copy.db")
    await use(tmp_path)
    remove_the_store(tmp_path)
    shutil.copy(tmp_path / "copy.db", tmp_path / "x.db")
    assert f"ends at seq {before.seq}" in await refusal(tmp_path)
    assert "ends at seq" in (await check(f"sqlite:///{tmp_path}/x.db"))[0]
    async with opened(tmp_path, accept_store=True) as engine:
        snapshot = await engine.snapshot()
        assert snapshot.seq == before.seq
        assert snapshot.epoch != before.epoch  # a client of the old epoch must not continue with its seqs
        assert snapshot.runs.keys() == before.runs.keys()
    assert (await use(tmp_path)).epoch == snapshot.epoch
    assert await check(f"sqlite:///{tmp_path}/x.db") == []


async def test_after_a_kill_another_program_can_read_the_store(tmp_path: Path):
    use_and_die(tmp_path)
    assert await check(f"sqlite:///{tmp_path}/x.db") == []
    assert not (tmp_path / "x.db-wal").exists()  # it was copied into the database
    async with opened(tmp_path) as engine:
        assert len((await engine.snapshot()).runs) == 1


async def test_a_store_without_its_lock_file_is_accepted(tmp_path: Path):
    await use(tmp_path)
    remove(tmp_path, ".lock")
    await use(tmp_path)
    remove(tmp_path, "", "-wal", "-shm", ".lock")
    await use(tmp_path)


async def test_with_less_than_full_syncing_a_loss_of_the_last_commits_is_accepted(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/x.db?synchronous=normal"
    await use(tmp_path, store=url)
    shutil.copy(tmp_path / "x.db", tmp_path / "copy.db")
    await use(tmp_path, store=url)
    shutil.copy(tmp_path / "copy.db", tmp_path / "x.db")
    await use(tmp_path, store=url)


async def test_the_folder_of_run_files_is_a_witness_too(tmp_path: Path):
    runs = tmp_path / "runs"
    await use(tmp_path, runs_dir=runs)
    remove(tmp_path, "", "-wal", "-shm", ".lock")
    assert f"the folder {runs} records seq " in await refusal(tmp_path, runs_dir=runs)
    async with opened(tmp_path, runs_dir=runs, accept_store=True):
        pass
    await use(tmp_path, runs_dir=runs)


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
async def test_an_emptied_database_on_a_server_is_refused(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
):
    server: Server = request.getfixturevalue(kind)
    first, second = server.fresh_database(), server.fresh_database()
    await make_tables(first)
    await make_tables(second)
    runs = tmp_path / "runs"
    await use(tmp_path, store=first, runs_dir=runs)
    await use(tmp_path, store=first, runs_dir=runs)
    await refusal(tmp_path, store=second, runs_dir=runs)
    await use(tmp_path, store=second, runs_dir=runs, accept_store=True)
    await use(tmp_path, store=second, runs_dir=runs)
