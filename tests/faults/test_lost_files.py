"""The file of a SQLite store is removed, replaced or damaged while its engine runs: the engine stops, and
acknowledges nothing that would be lost at the next start."""

from __future__ import annotations

import math
import os
import random
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from greenroom import Engine, Jobs, Run, open_engine
from greenroom.errors import Unavailable
from greenroom.persistence import sqlstore
from greenroom.persistence.failures import StoreBroken
from greenroom.persistence.sqlstore import SqlStore

jobs = Jobs()


@jobs.job("echo")
async def echo(run: Run, params: dict[str, Any]) -> Any:
    return params


def opened(folder: Path) -> AbstractAsyncContextManager[Engine]:
    return open_engine(jobs, f"sqlite:///{folder}/store/x.db", data_dir=folder / "data", shutdown_timeout=0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store" / "x.db"


def delete(file: Path) -> None:
    file.unlink()


def move(file: Path) -> None:
    file.rename(file.with_name("moved.db"))


def replace(file: Path) -> None:
    other = file.with_name("other.db")
    other.write_bytes(file.read_bytes())
    other.replace(file)


def delete_the_log(file: Path) -> None:
    Path(f"{file}-wal").unlink()


def delete_the_index(file: Path) -> None:
    Path(f"{file}-shm").unlink()


def move_the_folder(file: Path) -> None:
    file.parent.rename(file.parent.with_name("elsewhere"))


def truncate(file: Path) -> None:
    with sqlite3.connect(file) as other:
        other.execute(
            "PRAGMA wal_checkpoint"
        ).fetchall()  # pages that are only in the log do not need the file
    other.close()
    os.truncate(file, 8192)


def truncate_the_log(file: Path) -> None:
    os.truncate(f"{file}-wal", 0)


TROUBLES = [
    delete,
    move,
    replace,
    delete_the_log,
    delete_the_index,
    move_the_folder,
    truncate,
    truncate_the_log,
]


async def stopped_by(folder: Path, use: Callable[[Engine], Awaitable[object]]) -> StoreBroken:
    """Return the error that stops an engine after this fault."""

    async def live() -> None:
        async with opened(folder) as engine:
            await use(engine)
            await trio.sleep_forever()

    with pytest.raises(StoreBroken) as caught:
        await live()
    assert "\n" not in caught.value.message
    assert caught.value.damaged
    return caught.value


async def one_run(engine: Engine) -> str:
    ticket = await engine.submit("echo", handle="a", params={"text": "marked" * 10})
    await ticket.result()
    return ticket.id


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_no_commit_is_acknowledged_after_the_file_was_removed(
    tmp_path: Path, file: Path, trouble: Callable[[Path], None], caplog: pytest.LogCaptureFixture
):
    async def use(engine: Engine) -> None:
        await one_run(engine)
        trouble(file)
        for number in range(11):
            with pytest.raises(Unavailable):
                await engine.submit("echo", handle=f"b{number}", params={})
            with pytest.raises(Unavailable):
                engine.check_ready()

    error = await stopped_by(tmp_path, use)
    assert f"{file}" in error.message
    assert "while the engine used it" in error.message
    [record] = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert record.getMessage() == f"engine stops: {error.message}"
    assert record.exc_info is None


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_an_idle_engine_detects_it_too(
    tmp_path: Path, file: Path, trouble: Callable[[Path], None], autojump_clock: trio.testing.MockClock
):
    async def use(engine: Engine) -> None:
        trouble(file)

    began = trio.current_time()
    await stopped_by(tmp_path, use)
    assert trio.current_time() < began + 60


@pytest.mark.parametrize("trouble", [delete_the_log, delete_the_index, move])
async def test_acknowledged_changes_are_present_at_the_next_start(
    tmp_path: Path, file: Path, trouble: Callable[[Path], None]
):
    runs: list[str] = []

    async def use(engine: Engine) -> None:
        runs.append(await one_run(engine))
        trouble(file)

    await stopped_by(tmp_path, use)
    if trouble is move:
        file.with_name("moved.db").rename(file)
    async with opened(tmp_path) as engine:
        assert (await engine.get_run(runs[0])).status == "succeeded"


async def test_other_programs_can_open_the_file(tmp_path: Path, file: Path):
    async with opened(tmp_path) as engine:
        for number in range(30):
            await engine.submit("echo", handle=f"large {number}", params={"text": "x" * 10_000})
        for _ in range(3):
            with sqlite3.connect(file, isolation_level=None) as other:
                other.execute("SELECT count(*) FROM runs").fetchall()
                other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                await one_run(engine)
                other.execute("CREATE TABLE IF NOT EXISTS large AS SELECT hex(zeroblob(100000)) AS text")
                other.execute("DROP TABLE large")
                other.execute("VACUUM")
                other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            other.close()
            await one_run(engine)


async def test_checkpoints_of_the_log_during_reads_and_commits_are_not_reported_as_truncations(
    tmp_path: Path, file: Path
):
    async def read(engine: Engine) -> None:
        while True:
            await engine.list_runs(limit=5)

    def checkpoint() -> None:
        with sqlite3.connect(file) as other:
            other.execute(f"PRAGMA wal_checkpoint({lots.choice(['PASSIVE', 'RESTART', 'TRUNCATE'])})")
        other.close()

    lots = random.Random(0)
    async with opened(tmp_path) as engine, trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(read, engine)
        for number in range(100):
            await engine.submit("echo", handle=f"large {number}", params={"text": "x" * 20_000})
            if number % 5 == 0:
                await trio.to_thread.run_sync(checkpoint)
        nursery.cancel_scope.cancel()


def damage_a_page(file: Path) -> None:
    """Overwrite the pages that contain events with zeros."""
    content = bytearray(file.read_bytes())
    for at in range(0, len(content), 4096):
        if b"run_state_changed" in content[at : at + 4096]:
            content[at : at + 4096] = bytes(4096)
    file.write_bytes(content)


def damage_a_text(file: Path) -> None:
    """Damage a value, so that no page is malformed."""
    with sqlite3.connect(file) as other:
        other.execute("UPDATE events SET event = replace(event, ':', '')")
    other.close()


def damage_its_bytes(file: Path) -> None:
    with sqlite3.connect(file) as other:
        other.execute("UPDATE events SET event = CAST(x'ff00fe' AS TEXT)")
    other.close()


@pytest.mark.parametrize("damage", [damage_a_page, damage_a_text, damage_its_bytes])
async def test_a_read_of_damaged_data_stops_the_engine(
    tmp_path: Path, file: Path, damage: Callable[[Path], None]
):
    async with opened(tmp_path) as engine:
        run = await one_run(engine)
    damage(file)

    async def use(engine: Engine) -> None:
        with pytest.raises(StoreBroken):
            await engine.history(run)

    assert "damaged" in (await stopped_by(tmp_path, use)).message


def damage_the_lease(file: Path) -> None:
    with sqlite3.connect(file) as other:
        [(page,)] = other.execute("SELECT rootpage FROM sqlite_master WHERE name = 'leases'")
        other.execute("PRAGMA user_version = 7")  # so that no connection uses a cached page
        other.commit()
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    other.close()
    with open(file, "r+b") as damaged:
        damaged.seek((page - 1) * 4096)
        damaged.write(bytes(4096))


async def test_a_renewal_of_the_lease_that_finds_damage_stops_an_idle_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: Path
):
    monkeypatch.setattr(sqlstore, "_CHECKED_EVERY", math.inf)  # nothing else finds it

    async def live() -> None:
        async with open_engine(jobs, SqlStore(f"sqlite:///{file}", lease_ttl=1.5), data_dir=tmp_path):
            damage_the_lease(file)
            with trio.fail_after(60):
                await trio.sleep_forever()

    with pytest.raises(StoreBroken, match="damaged"):
        await live()
