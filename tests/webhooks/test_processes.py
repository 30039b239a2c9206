"""Deliveries between real processes: the engine is killed, a receiver is stopped, and no event is lost."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import trio

from greenroom.persistence.sqlstore import SqlStore
from greenroom.persistence.store import RunQuery

from . import killed

KILLS = int(os.environ.get("GREENROOM_KILLS", "8"))
TYPES = ("run_state_changed", "run_log")


def context() -> Any:
    # A server with all imports forks the programs, which saves the start of the interpreter.
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload([killed.__name__])
    return server


@contextmanager
def receivers(folder: Path, count: int) -> Iterator[list[tuple[BaseProcess, str, Path]]]:
    """Receivers in their own processes: each with its URL, and the file of what it gets."""
    started = []
    try:
        for number in range(count):
            ours, theirs = multiprocessing.Pipe()
            file = folder / f"got{number}"
            file.touch()
            process = context().Process(target=killed.receiver, args=(file, theirs))
            process.start()
            started.append((process, f"http://127.0.0.1:{ours.recv()}/hooks", file))
        yield started
    finally:
        for process, _, _ in started:
            process.kill()
            process.join()


def start(folder: Path, urls: list[str], life: int, *, to_the_end: bool = False) -> BaseProcess:
    process = context().Process(target=killed.engine, args=(folder, urls, life, to_the_end))
    process.start()
    return process


def got(file: Path) -> dict[str, list[int]]:
    """The seqs of the accepted events, by run."""
    by_run: dict[str, list[int]] = defaultdict(list)
    for line in file.read_text().splitlines():
        run, seq = json.loads(line)
        by_run[run].append(seq)
    return by_run


async def histories(folder: Path) -> dict[str, list[int]]:
    """The seqs of the events that each run should have delivered."""
    store = SqlStore(f"sqlite:///{folder}/store.db")
    await store.open("", 1, 0)
    runs = await store.runs(RunQuery(limit=100_000))
    found = {
        run.id: [event.seq for event in await store.history(run.id) if event.type in TYPES] for run in runs
    }
    await store.close()
    return found


def check(folder: Path, files: list[Path]) -> None:
    """Each event was delivered at least once, and first in the order of its run; only the last one again."""
    expected = trio.run(histories, folder)
    assert len(expected) > 20
    merged: dict[str, list[int]] = {}
    for file in files:
        merged |= got(file)
    for run, seqs in expected.items():
        accepted = merged.get(run, [])
        assert sorted(set(accepted)) == seqs, "an event is missing, or one was not stored"
        assert accepted == sorted(accepted), "an event came after a later one"


def test_no_event_is_lost_or_overtaken_if_the_engine_is_killed_during_deliveries(tmp_path: Path):
    lots = random.Random("webhooks")
    with receivers(tmp_path, 2) as started:
        urls = [url for _, url, _ in started]
        for life in range(KILLS):
            engine = start(tmp_path, urls, life)
            engine.join(lots.uniform(0.2, 0.8))
            engine.kill()
            engine.join()
            assert engine.exitcode == -signal.SIGKILL
        engine = start(tmp_path, urls, KILLS, to_the_end=True)
        engine.join(120)
        assert engine.exitcode == 0
        check(tmp_path, [file for _, _, file in started])


def test_a_receiver_that_is_stopped_gets_everything_later_and_holds_up_no_other(tmp_path: Path):
    with receivers(tmp_path, 2) as started:
        (stopped, url, file), (_, other_url, other_file) = started
        engine = start(tmp_path, [url, other_url], 0)
        engine.join(0.5)
        assert stopped.pid is not None
        os.kill(stopped.pid, signal.SIGSTOP)
        before = len(other_file.read_text())
        engine.join(1.5)
        assert len(other_file.read_text()) > before
        engine.kill()
        engine.join()
        frozen = file.read_text()
        engine = start(tmp_path, [url, other_url], 1, to_the_end=True)
        engine.join(2)
        assert engine.exitcode is None, "it still tries"
        assert file.read_text() == frozen
        os.kill(stopped.pid, signal.SIGCONT)
        engine.join(120)
        assert engine.exitcode == 0
        check(tmp_path, [file, other_file])
