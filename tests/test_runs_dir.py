"""`runs_dir`: one file per run, with its latest state, that can be read at any moment."""

import errno
import json
import logging
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from greenroom import Keep, Run
from greenroom.actors.journal.stream import Stream
from greenroom.errors import Invalid
from greenroom.persistence.memory import MemoryStore
from greenroom.persistence.runs_dir import RunFiles

from .support import Bodies, open_engine

SHORT = 5.0
"""Seconds after which all files have been written."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def states(folder: Path) -> dict[str, str]:
    """The status in each file, by run. Checks that every file can be read."""
    return {file.stem: json.loads(file.read_text())["status"] for file in found(folder) if file.is_file()}


def found(folder: Path) -> list[Path]:
    return list(folder.rglob("*.json"))


def hidden(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir() if file.name.endswith(".part")]


def slow_down(monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[str]:
    """A slow disk; returns a list that records each write of a run."""
    written: list[str] = []
    write = RunFiles.write

    async def slowly(self: RunFiles, runs: Any) -> Any:
        written.extend(run.id for run in runs)
        await trio.sleep(seconds)
        return await write(self, runs)

    monkeypatch.setattr(RunFiles, "write", slowly)
    return written


async def test_each_run_has_a_file_with_its_latest_state(folder: Path, autojump_clock: MockClock):
    bodies = Bodies()
    async with open_engine(bodies.jobs, runs_dir=folder, max_concurrent=1) as engine:
        first = await engine.submit("wait", handle="a", params={})
        second = await engine.submit("wait", handle="b", params={})
        await trio.sleep(SHORT)
        assert states(folder) == {first.id: "running", second.id: "queued"}
        bodies.end(first)
        await first.result()
        await trio.sleep(SHORT)
        assert states(folder) == {first.id: "succeeded", second.id: "running"}
        shown = json.loads((folder / f"{first.id}.json").read_text())
        assert (shown["id"], shown["handle"], shown["result"]) == (first.id, "a", "done for a")
        bodies.end(second)
        await second.result()
    assert states(folder) == {first.id: "succeeded", second.id: "succeeded"}


async def test_the_last_state_is_written_before_the_engine_ends(
    folder: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
):
    slow_down(monkeypatch, 0.5)
    bodies = Bodies()
    async with open_engine(bodies.jobs, runs_dir=folder, max_concurrent=250) as engine:
        tickets = [await engine.submit("wait", handle=f"h{n}", params={}) for n in range(250)]
        bodies.end(*tickets)
        for ticket in tickets:
            await ticket.result()
    assert states(folder) == {ticket.id: "succeeded" for ticket in tickets}
    assert hidden(folder) == []


async def test_the_latest_progress_is_shown(folder: Path, autojump_clock: MockClock):
    bodies = Bodies()

    @bodies.jobs.job("count")
    async def count(run: Run) -> None:
        for done in range(1000):
            await run.progress(done, 1000)
        await trio.sleep(SHORT)
        assert json.loads((folder / f"{run.id}.json").read_text())["progress"]["done"] == 999

    async with open_engine(bodies.jobs, runs_dir=folder) as engine:
        await (await engine.submit("count", handle="a")).result()


async def test_a_file_is_written_once_however_often_its_run_changes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
):
    written = slow_down(monkeypatch, 1)
    bodies = Bodies()

    @bodies.jobs.job("count")
    async def count(run: Run) -> None:
        for done in range(1000):
            await run.progress(done, 1000)
            await trio.sleep(0.01)

    async with open_engine(bodies.jobs, runs_dir=folder) as engine:
        ticket = await engine.submit("count", handle="a")
        started = trio.current_time()
        await ticket.result()
        assert trio.current_time() - started < 10.5  # it never waits for the disk
        await trio.sleep(SHORT)
        assert states(folder) == {ticket.id: "succeeded"}
    assert len(written) < 20


async def test_more_events_than_the_ring_contains_lose_no_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
):
    monkeypatch.setattr(Stream.__init__, "__defaults__", (8,))
    bodies = Bodies()
    async with open_engine(bodies.jobs, runs_dir=folder, max_concurrent=300) as engine:
        tickets = []

        async def submit(number: int) -> None:
            tickets.append(await engine.submit("wait", handle=f"h{number}", params={}))

        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(submit, number)
        await trio.sleep(SHORT)
        assert states(folder) == {ticket.id: "running" for ticket in tickets}
        bodies.end(*tickets)
        for ticket in tickets:
            await ticket.result()
    assert set(states(folder).values()) == {"succeeded"}
    assert len(states(folder)) == 200


async def test_the_next_engine_writes_what_the_one_before_could_not(folder: Path, autojump_clock: MockClock):
    bodies, store = Bodies(), MemoryStore()
    async with open_engine(bodies.jobs, store, runs_dir=folder) as engine:
        early = await engine.submit("wait", handle="a", params={})
        await trio.sleep(SHORT)
        bodies.end(early)
        await early.result()
        await trio.sleep(SHORT)
    async with open_engine(bodies.jobs, store) as engine:  # without a folder, as if its disk were full
        tickets = [await engine.submit("wait", handle=f"h{n}", params={}) for n in range(1100)]
        bodies.end(*tickets)
        for ticket in tickets:
            await ticket.result()
    async with open_engine(bodies.jobs, store, runs_dir=folder):
        await trio.sleep(SHORT)
        assert states(folder) == {run.id: "succeeded" for run in [early, *tickets]}


async def test_a_new_folder_gets_the_runs_of_a_snapshot(folder: Path, autojump_clock: MockClock):
    bodies, store = Bodies(), MemoryStore()
    async with open_engine(bodies.jobs, store) as engine:
        ticket = await engine.submit("wait", handle="a", params={})
        bodies.end(ticket)
        await ticket.result()
    async with open_engine(bodies.jobs, store, runs_dir=folder):
        await trio.sleep(SHORT)
        assert states(folder) == {ticket.id: "succeeded"}


async def test_unfinished_files_of_a_crash_are_removed(folder: Path, autojump_clock: MockClock):
    os.mkdir(folder)
    (folder / ".0123.json.part").write_text('{"id"')
    async with open_engine(Bodies().jobs, runs_dir=folder):
        await trio.sleep(SHORT)
        assert hidden(folder) == []


async def test_the_files_of_pruned_runs_are_removed(folder: Path, autojump_clock: MockClock):
    bodies = Bodies()
    async with open_engine(bodies.jobs, runs_dir=folder, keep_runs=Keep(count=3)) as engine:
        active = await engine.submit("wait", handle="active", params={})
        tickets = [await engine.submit("wait", handle=f"h{n}", params={}) for n in range(8)]
        for ticket in tickets:
            bodies.end(ticket)
            await ticket.result()
        await trio.sleep(100)
        assert set(states(folder)) == {active.id, *(ticket.id for ticket in tickets[-3:])}
        bodies.end(active)
        await active.result()


async def test_other_files_are_not_touched(folder: Path, autojump_clock: MockClock):
    os.mkdir(folder)
    (folder / "package.json").write_text('{"name": "mine"}')
    (folder / "notes.txt").write_text("mine")
    async with open_engine(Bodies().jobs, runs_dir=folder, keep_runs=0):
        await trio.sleep(100)
    assert (folder / "package.json").read_text() == '{"name": "mine"}'
    assert (folder / "notes.txt").exists()


async def test_a_disk_that_is_full_harms_nothing_and_is_logged_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
):
    full = True
    replace = RunFiles._replace

    def fails(self: RunFiles, path: Path, content: bytes) -> None:
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        replace(self, path, content)

    monkeypatch.setattr(RunFiles, "_replace", fails)
    bodies = Bodies()
    async with open_engine(bodies.jobs, runs_dir=folder) as engine:
        tickets = [await engine.submit("wait", handle=f"h{n}", params={}) for n in range(30)]
        bodies.end(*tickets)
        for ticket in tickets:
            assert await ticket.result() == f"done for h{tickets.index(ticket)}"
        await trio.sleep(500)
        [record] = [record for record in caplog.records if "runs_dir" in record.message]
        assert record.levelno == logging.ERROR
        assert "No space left" in record.message
        assert states(folder) == {}
        full = False
        await trio.sleep(100)
        assert states(folder) == {ticket.id: "succeeded" for ticket in tickets}


async def test_a_file_that_cannot_be_written_does_not_delay_others(
    folder: Path, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
):
    bodies = Bodies()
    async with open_engine(bodies.jobs, runs_dir=folder) as engine:
        stuck = await engine.submit("wait", handle="stuck", params={})
        await trio.sleep(SHORT)
        path = folder / f"{stuck.id}.json"
        path.unlink()
        path.mkdir()  # a directory that cannot be replaced by a file
        bodies.end(stuck)
        await stuck.result()
        await trio.sleep(SHORT)
        for number in range(5):
            other = await engine.submit("wait", handle=f"h{number}", params={})
            bodies.end(other)
            await other.result()
            await trio.sleep(2)
            assert states(folder)[other.id] == "succeeded"
        await trio.sleep(10_000)
        assert len([record for record in caplog.records if "runs_dir" in record.message]) == 1
        assert hidden(folder) == []
        path.rmdir()
        await trio.sleep(100)
        assert states(folder)[stuck.id] == "succeeded"


async def test_a_file_that_could_not_be_written_is_written_at_the_next_start(
    folder: Path, autojump_clock: MockClock
):
    bodies, store = Bodies(), MemoryStore()
    async with open_engine(bodies.jobs, store, runs_dir=folder) as engine:
        stuck = await engine.submit("wait", handle="stuck", params={})
        await trio.sleep(SHORT)
        path = folder / f"{stuck.id}.json"
        path.unlink()
        path.mkdir()
        bodies.end(stuck)
        await stuck.result()
        await trio.sleep(SHORT)
    path.rmdir()
    async with open_engine(bodies.jobs, store, runs_dir=folder):
        await trio.sleep(SHORT)
        assert states(folder)[stuck.id] == "succeeded"


async def test_a_file_that_cannot_be_removed_does_not_delay_others(
    folder: Path, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
):
    bodies = Bodies()
    async with open_engine(bodies.jobs, runs_dir=folder, keep_runs=0) as engine:
        stuck = await engine.submit("wait", handle="stuck", params={})
        await trio.sleep(SHORT)
        path = folder / f"{stuck.id}.json"
        path.unlink()
        path.mkdir()
        bodies.end(stuck)
        await stuck.result()
        await trio.sleep(100)
        other = await engine.submit("wait", handle="a", params={})
        await trio.sleep(SHORT)
        assert states(folder)[other.id] == "running"
        bodies.end(other)
        await other.result()
        await trio.sleep(100)
        assert found(folder) == [path]
    assert len([record for record in caplog.records if "runs_dir" in record.message]) <= 2


async def test_a_folder_that_cannot_be_created_harms_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
):
    (tmp_path / "file").write_text("in the way")
    bodies = Bodies()
    async with open_engine(bodies.jobs, runs_dir=tmp_path / "file" / "runs") as engine:
        ticket = await engine.submit("wait", handle="a", params={})
        bodies.end(ticket)
        await ticket.result()
        await trio.sleep(SHORT)
    assert any("runs_dir" in record.message for record in caplog.records)


async def test_a_folder_that_was_removed_is_created_again(folder: Path, autojump_clock: MockClock):
    bodies = Bodies()
    async with open_engine(bodies.jobs, runs_dir=folder) as engine:
        await trio.sleep(SHORT)
        shutil.rmtree(folder)
        ticket = await engine.submit("wait", handle="a", params={})
        await trio.sleep(SHORT)
        assert states(folder) == {ticket.id: "running"}
        bodies.end(ticket)
        await ticket.result()


@pytest.mark.parametrize("id", ["../../etc/passwd", ".hidden", "with/slash", "naïve"])
async def test_no_run_id_leads_out_of_the_folder(
    id: str, folder: Path, tmp_path: Path, autojump_clock: MockClock
):
    bodies = Bodies()
    async with open_engine(bodies.jobs, runs_dir=folder, ids=lambda: id) as engine:
        ticket = await engine.submit("wait", handle="a", params={})
        bodies.end(ticket)
        await ticket.result()
        await trio.sleep(SHORT)
    [file] = found(tmp_path)
    assert file.parent == folder
    assert json.loads(file.read_text())["id"] == id


async def test_an_invalid_path_is_refused(autojump_clock: MockClock):
    for bad in (3, "", True):
        with pytest.raises(Invalid, match="runs_dir"):
            async with open_engine(Bodies().jobs, runs_dir=bad):
                pass


PROGRAM = """
    import sys, trio
    from greenroom import Jobs, Run, open_engine

    jobs = Jobs()

    @jobs.job("work", resumable=True)
    async def work(run: Run) -> str:
        for done in range(20):
            await run.progress(done, 20, text="x" * 3000)
            await trio.sleep(0.001)
        return "done"

    async def main(folder):
        store = f"sqlite:///{folder}/store.db?synchronous=normal"
        async with open_engine(jobs, store, data_dir=f"{folder}/data", runs_dir=f"{folder}/runs") as engine:
            print("ready", flush=True)
            if sys.argv[2] == "stop":
                return
            number = 0
            while True:
                number += 1
                await engine.submit("work", handle=f"h{number % 20}", on_conflict="queue")
                await trio.sleep(0.002)

    trio.run(main, sys.argv[1])
"""


def test_a_killed_engine_leaves_only_complete_files_and_the_next_one_catches_up(tmp_path: Path, folder: Path):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    for number in range(4):
        process = subprocess.Popen(
            [sys.executable, program, tmp_path, "work"], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.15 + 0.1 * number)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        states(folder)  # each of them can be read
    assert states(folder)
    subprocess.run([sys.executable, program, tmp_path, "stop"], check=True, timeout=60, capture_output=True)
    assert hidden(folder) == []
    connection = sqlite3.connect(tmp_path / "store.db")
    in_store = dict(connection.execute("SELECT id, status FROM runs"))
    connection.close()
    assert states(folder) == in_store
