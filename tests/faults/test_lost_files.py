"""The file of a SQLite store is taken away, replaced or damaged while its engine runs: the engine stops, and
acknowledges nothing that would be gone at the next start."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from greenroom import Engine, Jobs, Run, open_engine
from greenroom.errors import Unavailable
from greenroom.persistence.failures import StoreBroken

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


TROUBLES = [delete, move, replace, delete_the_log, delete_the_index, move_the_folder]


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_nothing_is_acknowledged_into_a_file_that_is_gone(
    tmp_path: Path, file: Path, trouble: Callable[[Path], None], caplog: pytest.LogCaptureFixture
):
    with pytest.raises(StoreBroken, match=f"{file}.* while the engine used it") as caught:
        async with opened(tmp_path) as engine:
            await (await engine.submit("echo", handle="a", params={})).result()
            trouble(file)
            for number in range(11):
                with pytest.raises(Unavailable):
                    await engine.submit("echo", handle=f"b{number}", params={})
                with pytest.raises(Unavailable):
                    engine.check_ready()
    assert "\n" not in caught.value.message
    [record] = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert record.getMessage() == f"the engine stops: {caught.value.message}"
    assert record.exc_info is None


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_an_engine_that_has_nothing_to_do_notices_it_too(
    tmp_path: Path, file: Path, trouble: Callable[[Path], None], autojump_clock: trio.testing.MockClock
):
    began = trio.current_time()
    with pytest.raises(StoreBroken, match="while the engine used it"):
        async with opened(tmp_path):
            trouble(file)
            await trio.sleep_forever()
    assert trio.current_time() < began + 60


@pytest.mark.parametrize("trouble", [delete_the_log, delete_the_index])
async def test_without_its_log_a_store_keeps_what_was_acknowledged(
    tmp_path: Path, file: Path, trouble: Callable[[Path], None]
):
    with pytest.raises(StoreBroken):
        async with opened(tmp_path) as engine:
            ticket = await engine.submit("echo", handle="a", params={"n": 1})
            await ticket.result()
            trouble(file)
            await trio.sleep_forever()
    async with opened(tmp_path) as engine:
        assert (await engine.get_run(ticket.id)).result == {"n": 1}


async def test_a_file_that_was_moved_and_put_back_goes_on(tmp_path: Path, file: Path):
    with pytest.raises(StoreBroken):
        async with opened(tmp_path) as engine:
            ticket = await engine.submit("echo", handle="a", params={"n": 1})
            await ticket.result()
            move(file)
            await trio.sleep_forever()
    file.with_name("moved.db").rename(file)
    async with opened(tmp_path) as engine:
        assert (await engine.get_run(ticket.id)).result == {"n": 1}


async def test_other_programs_that_open_the_file_are_no_trouble(tmp_path: Path, file: Path):
    async with opened(tmp_path) as engine:
        for number in range(3):
            with sqlite3.connect(file) as other:
                other.execute("SELECT count(*) FROM runs").fetchall()
                other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            other.close()
            ticket = await engine.submit("echo", handle="a", params={"n": number})
            assert await ticket.result() == {"n": number}


def damage(file: Path, mark: bytes, length: int = 4096) -> None:
    """Write zeros over the pages that hold this text."""
    content = file.read_bytes()
    at = content.index(mark) // 4096 * 4096
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(bytes(length))
        opened.flush()
        os.fsync(opened.fileno())


async def test_a_read_that_meets_a_damaged_page_stops_the_engine(tmp_path: Path, file: Path):
    async with opened(tmp_path) as engine:
        ticket = await engine.submit("echo", handle="a", params={"text": "marked" * 10})
        await ticket.result()
        for number in range(1100):  # so that it is in no snapshot any more
            await engine.submit("echo", handle=f"b{number}", params={})
        await engine.wait_for_active()
    damage(file, b"markedmarked")
    with pytest.raises(StoreBroken, match="the file is damaged") as caught:
        async with opened(tmp_path) as engine:
            with pytest.raises(StoreBroken):
                await engine.history(ticket.id)
            await trio.sleep_forever()
    assert caught.value.damaged


async def test_a_read_of_what_is_no_json_any_more_stops_the_engine(tmp_path: Path, file: Path):
    async with opened(tmp_path) as engine:
        ticket = await engine.submit("echo", handle="a", params={"text": "x" * 20_000 + "marked"})
        await ticket.result()
        for number in range(1100):
            await engine.submit("echo", handle=f"b{number}", params={})
        await engine.wait_for_active()
    content = file.read_bytes()
    with file.open("r+b") as opened_file:  # inside a text: no page is malformed
        at = -1
        while (at := content.find(b"xmarked", at + 1)) >= 0:
            opened_file.seek(at - 10)
            opened_file.write(b'"}\x01{\xff')
    with pytest.raises(StoreBroken, match="damaged"):
        async with opened(tmp_path) as engine:
            with pytest.raises(StoreBroken):
                await engine.history(ticket.id)
            await trio.sleep_forever()
