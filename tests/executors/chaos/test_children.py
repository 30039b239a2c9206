"""Child processes that are killed in the middle of many bodies, or by their bodies."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from signal import SIGKILL

import pytest

from greenroom import Client, Engine, connect, open_engine
from greenroom.protocol.states import Status

from .jobs import jobs
from .marks import Mark, read
from .world import until, world

pytestmark = pytest.mark.long("GREENROOM_CHAOS")

STEPS = {"count": 60, "pace": 0.1}
_PAUSE = 2.0
"""Seconds without a mark of a body that a busy machine may take."""


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Client]:
    async with (
        world(folder, places=0, ttl=30, executors=2, max_concurrent=200) as made,
        connect(made.url) as client,
    ):
        yield client


@asynccontextmanager
async def embedded(folder: Path) -> AsyncIterator[Engine]:
    (folder / "marks").mkdir()
    async with open_engine(jobs, "memory:", executors=2, max_concurrent=200, data_dir=folder) as engine:
        yield engine


OPENED = pytest.mark.parametrize("opened", [served, embedded])


@pytest.fixture(autouse=True)
def _marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARKS", str(tmp_path / "marks"))


def marks(folder: Path) -> list[Mark]:
    return [mark for handle in read(folder / "marks") for mark in handle]


def processes(folder: Path) -> set[int]:
    return {mark.pid for mark in marks(folder)}


@OPENED
async def test_a_child_that_is_killed_in_the_middle_of_100_bodies(opened, tmp_path: Path):
    async with opened(tmp_path) as engine:
        tickets = {}
        for number in range(100):
            job = "walk" if number % 2 else "once"
            ticket = await engine.submit(job, handle=f"h{number}", params=STEPS)
            tickets[ticket.id] = job
        await until(lambda: len({m.run for m in marks(tmp_path) if m.value == 6}) == 100, "all are at step 6")
        victim, other = sorted(processes(tmp_path))
        affected = {m.run for m in marks(tmp_path) if m.pid == victim}
        assert 30 < len(affected) < 70
        os.kill(victim, SIGKILL)
        for id in tickets:
            assert (await engine.wait(id, timeout=90)).ended
        snapshot = await engine.snapshot()
        assert snapshot.engine.executing == 0

        ended = snapshot.runs
        for id, job in tickets.items():
            expected = (
                (Status.FAILED, "crashed") if job == "once" and id in affected else (Status.SUCCEEDED, None)
            )
            assert (ended[id].status, ended[id].reason, ended[id].attempt) == (*expected, 1)
        bodies = defaultdict(list)
        for mark in marks(tmp_path):
            bodies[mark.run, mark.fence].append(mark)
        for (run, _), body in bodies.items():
            assert len({mark.pid for mark in body}) == 1
            if body[0].pid == other and run not in affected:
                assert max(late.at - early.at for early, late in pairwise(body)) < _PAUSE
        for run in affected:
            first, *later = [body for (id, _), body in sorted(bodies.items()) if id == run]
            assert len(later) == (tickets[run] == "walk")
            saved = [mark.value for mark in first if mark.what == "saved"]
            assert all(body[0].value == saved[-1] for body in later), "continues from its checkpoint"

        fresh = [await engine.submit("walk", handle=f"f{n}", params={"count": 2}) for n in range(10)]
        for ticket in fresh:
            await engine.wait(ticket.id, timeout=60)
        new = processes(tmp_path) - {victim, other}
        begun = {mark.pid for mark in marks(tmp_path) if mark.run in {ticket.id for ticket in fresh}}
        assert len(new) == 1
        assert begun == new | {other}


@pytest.mark.parametrize(
    ("opened", "how", "job"),
    [
        (embedded, "kill", "poison"),
        (embedded, "segfault", "poison_retried"),
        (served, "exit", "poison"),
    ],
)
async def test_a_run_that_kills_its_process_three_times_fails_and_others_do_not(
    opened, how: str, job: str, tmp_path: Path
):
    async with opened(tmp_path) as engine:
        others = [
            await engine.submit("walk", handle=f"h{number}", params={"count": 20, "pace": 0.1})
            for number in range(6)
        ]
        await until(lambda: len({mark.run for mark in marks(tmp_path)}) == 6, "all have begun")
        poison = await engine.submit(job, handle="poison", params=how)
        ended = await engine.wait(poison.id, timeout=120)
        assert (ended.status, ended.reason) == (Status.FAILED, "killed")
        begun = [mark for mark in marks(tmp_path) if mark.run == poison.id]
        assert len({mark.pid for mark in begun}) == len(begun) == 3
        for ticket in others:
            run = await engine.wait(ticket.id, timeout=120)
            assert (run.status, run.attempt) == (Status.SUCCEEDED, 1)
        assert (await engine.snapshot()).engine.executing == 0
