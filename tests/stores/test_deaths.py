"""A run that kills its process does so at most three times, and the other runs survive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.abc import Clock
from trio.testing import wait_all_tasks_blocked

from greenroom import Jobs, Run
from greenroom.persistence.store import Deaths, Retention
from greenroom.protocol.states import Status

from .conftest import Place
from .lives import Lives, ended, wait_for, wait_until
from .story import NOW, created, moved, opened

in_mock_time = pytest.mark.parametrize("place", ["memory", "sqlite_unthreaded"], indirect=True)


@pytest.fixture
def lives(place: Place, tmp_path: Path) -> Lives:
    return Lives(place, tmp_path / "data")


class Bodies:
    """Jobs whose bodies execute until `end` is set or their process dies."""

    def __init__(self) -> None:
        self.jobs = Jobs()
        self.jobs.job("resumes", resumable=True)(self.execute)
        self.jobs.job("repeats", max_attempts=9)(self.execute)
        self.jobs.job("once")(self.execute)
        self.jobs.job("waits", resumable=True)(self.wait)
        self.jobs.job("chats", resumable=True)(self.chat)
        self.begun: list[str] = []
        self.end = trio.Event()

    async def execute(self, run: Run) -> str:
        self.begun.append(run.handle)
        await self.end.wait()
        return "done"

    async def wait(self, run: Run) -> str:
        self.begun.append(run.handle)
        await trio.sleep(1)
        await run.sleep(1000)
        return "done"

    async def chat(self, run: Run) -> str:
        self.begun.append(run.handle)
        while True:
            await run.next_message(release_slot=True)


def new_life(bodies: Bodies) -> None:
    bodies.begun.clear()


async def test_a_run_that_executed_when_three_processes_died_is_killed(lives: Lives, clock: Clock) -> None:
    bodies = Bodies()
    async with lives.crash(bodies.jobs) as engine:
        runs = [await engine.submit(job, handle=job) for job in ("resumes", "repeats", "once")]
        await wait_until(engine, lambda now: len(bodies.begun) == 3)
    for begun in (["resumes"], ["resumes"], ["repeats"], ["repeats"]):
        new_life(bodies)
        async with lives.crash(bodies.jobs, max_concurrent=1) as engine:
            await wait_until(engine, lambda now: bodies.begun)
            assert (await engine.get_run(runs[2].id)).reason == "crashed"
        assert bodies.begun == begun
    async with lives.clean(bodies.jobs) as engine:
        for run in runs[:2]:
            record = await ended(engine, run)
            assert (record.status, record.reason) == ("failed", "killed")
            assert record.error == "the process died 3 times while the run executed"
        again = await engine.submit("resumes", handle="resumes")
        await wait_for(engine, again, "running")
        bodies.end.set()
        assert await again.result() == "done"


async def test_a_run_that_waited_in_its_body_when_three_processes_died_is_killed(
    lives: Lives, clock: Clock
) -> None:
    bodies = Bodies()
    async with lives.crash(bodies.jobs) as engine:
        run = await engine.submit("chats", handle="chat")
        await wait_for(engine, run, "suspended")
    for _ in range(2):
        new_life(bodies)
        async with lives.crash(bodies.jobs) as engine:  # waits without a body: this does not count
            assert (await engine.get_run(run.id)).status == "suspended"
        assert bodies.begun == []
        async with lives.crash(bodies.jobs) as engine:
            await engine.inject(run.id, "hello")
            await wait_until(engine, lambda now: bodies.begun)
            await wait_for(engine, run, "suspended")
    async with lives.clean(bodies.jobs) as engine:
        record = await ended(engine, run)
        assert (record.status, record.reason) == ("failed", "killed")


@in_mock_time
async def test_a_suspect_that_waited_and_kills_again_executes_alone(lives: Lives, clock: Clock) -> None:
    """After two deaths, the other suspects execute before or after its body, never at the same time."""
    bodies = Bodies()
    async with lives.crash(bodies.jobs) as engine:
        before = await engine.submit("resumes", handle="before")
        poison = await engine.submit("chats", handle="chat")
        after = await engine.submit("resumes", handle="after")
        await wait_until(engine, lambda now: len(bodies.begun) == 3)
        await wait_for(engine, poison, "suspended")
    for beside in (["after"], []):
        new_life(bodies)
        async with lives.crash(bodies.jobs) as engine:
            await engine.inject(poison.id, "hello")
            await trio.sleep(31)
            await wait_until(engine, lambda now: "chat" in bodies.begun)
            await wait_for(engine, poison, "suspended")
            await wait_all_tasks_blocked()
        assert bodies.begun == ["before", "chat", *beside]
    async with lives.clean(bodies.jobs) as engine:
        assert (await ended(engine, poison)).reason == "killed"
        bodies.end.set()
        assert (await ended(engine, before, after)).status == "succeeded"


@in_mock_time
async def test_a_run_whose_body_ended_by_a_shutdown_or_a_restart_is_not_suspected(
    lives: Lives, clock: Clock
) -> None:
    bodies = Bodies()
    async with lives.clean(bodies.jobs) as engine:
        runs = [await engine.submit(job, handle=job) for job in ("chats", "waits")]
        await trio.sleep(2)
        assert len(bodies.begun) == 2
    for _ in range(4):
        async with lives.crash(bodies.jobs) as engine:
            for run in runs:
                assert (await engine.get_run(run.id)).status == "suspended"
    async with lives.clean(bodies.jobs) as engine:
        (supervisor,) = [report for report in engine.report() if report["kind"] == "supervisor"]
        assert supervisor["suspects"] == 0


@pytest.mark.parametrize("position", [0, 1, 2])
@in_mock_time
async def test_healthy_runs_survive_in_any_order_with_the_poison_run(
    lives: Lives, clock: Clock, position: int
) -> None:
    """Suspects that started before it execute when it kills the process, and are not blamed."""
    bodies, poison = Bodies(), f"h{position}"
    async with lives.crash(bodies.jobs) as engine:
        runs = [await engine.submit("resumes", handle=f"h{number}") for number in range(3)]
        await wait_until(engine, lambda now: len(bodies.begun) == 3)
    for _ in range(2):
        new_life(bodies)
        async with lives.crash(bodies.jobs) as engine:
            await trio.sleep(31 * position)
            await wait_until(engine, lambda now: poison in bodies.begun)
        assert bodies.begun == [f"h{number}" for number in range(position + 1)]
    new_life(bodies)
    async with lives.clean(bodies.jobs) as engine:
        assert (await ended(engine, runs[position])).reason == "killed"
        bodies.end.set()
        for run in runs:
            if run is not runs[position]:
                assert (await ended(engine, run)).status == "succeeded"


@in_mock_time
async def test_runs_that_executed_at_a_death_start_one_after_the_other_and_block_no_other_run(
    lives: Lives, clock: Clock
) -> None:
    bodies = Bodies()
    async with lives.crash(bodies.jobs, lanes={"side": 2}) as engine:
        for number, lane in enumerate(("main", "side", "side")):
            await engine.submit("resumes", handle=f"h{number}", lane=lane)
        await wait_until(engine, lambda now: len(bodies.begun) == 3)
        behind = await engine.submit("once", handle="behind", lane="side")
    new_life(bodies)
    async with lives.clean(bodies.jobs, max_concurrent=4, lanes={"side": 2}) as engine:
        await wait_all_tasks_blocked()
        assert sorted(bodies.begun) == ["behind", "h0"]
        fresh = await engine.submit("once", handle="fresh")
        await wait_for(engine, fresh, "running")
        await trio.sleep(29)
        assert len(bodies.begun) == 3
        await trio.sleep(2)
        assert bodies.begun[3:] == ["h1"]
        await engine.cancel(behind.id)
        await trio.sleep(29)
        await engine.set_max_concurrent(9)
        assert bodies.begun[3:] == ["h1"]
        await trio.sleep(1)
        assert bodies.begun[3:] == ["h1", "h2"]
        bodies.end.set()


@in_mock_time
async def test_the_next_suspect_starts_when_the_previous_one_waits_or_has_ended(
    lives: Lives, clock: Clock
) -> None:
    bodies = Bodies()
    async with lives.crash(bodies.jobs) as engine:
        runs = [await engine.submit(job, handle=job) for job in ("waits", "resumes", "repeats")]
        await wait_until(engine, lambda now: len(bodies.begun) == 3)
    new_life(bodies)
    async with lives.clean(bodies.jobs) as engine:
        await wait_all_tasks_blocked()
        assert bodies.begun == ["waits"]
        await wait_for(engine, runs[0], "suspended")
        await wait_all_tasks_blocked()
        assert bodies.begun == ["waits", "resumes"]
        await engine.cancel(runs[1].id)
        await wait_all_tasks_blocked()
        assert bodies.begun == ["waits", "resumes", "repeats"]


@in_mock_time
async def test_a_suspect_in_a_paused_lane_blocks_no_other(lives: Lives, clock: Clock) -> None:
    bodies = Bodies()
    async with lives.crash(bodies.jobs) as engine:
        await engine.submit("resumes", handle="paused", lane="paused")
        await engine.submit("resumes", handle="other")
        await wait_until(engine, lambda now: len(bodies.begun) == 2)
    new_life(bodies)
    async with lives.clean(bodies.jobs, lanes={"paused": 0}) as engine:
        await wait_all_tasks_blocked()
        assert bodies.begun == ["other"]
        await engine.set_concurrency("paused", 1)
        await wait_all_tasks_blocked()
        assert bodies.begun == ["other"]
        await trio.sleep(31)
        assert bodies.begun == ["other", "paused"]
        bodies.end.set()


@in_mock_time
async def test_a_suspect_that_waits_for_its_turn_can_be_cancelled(lives: Lives, clock: Clock) -> None:
    bodies = Bodies()
    async with lives.crash(bodies.jobs) as engine:
        runs = [await engine.submit("resumes", handle=f"h{number}") for number in range(3)]
        await wait_until(engine, lambda now: len(bodies.begun) == 3)
    new_life(bodies)
    async with lives.clean(bodies.jobs) as engine:
        await wait_all_tasks_blocked()
        assert (await engine.cancel(runs[1].id)).status == "cancelled"
        await trio.sleep(31)
        assert bodies.begun == ["h0", "h2"]
        bodies.end.set()


@in_mock_time
async def test_a_clean_shutdown_does_not_count_as_a_death(lives: Lives, clock: Clock) -> None:
    bodies = Bodies()
    async with lives.clean(bodies.jobs) as engine:
        runs = [await engine.submit("resumes", handle=f"h{number}") for number in range(3)]
        await wait_until(engine, lambda now: len(bodies.begun) == 3)
    for _ in range(4):
        new_life(bodies)
        async with lives.clean(bodies.jobs) as engine:
            await wait_all_tasks_blocked()
            assert sorted(bodies.begun) == ["h0", "h1", "h2"]  # and no run is a suspect
    bodies.end.set()
    async with lives.clean(bodies.jobs) as engine:
        assert (await ended(engine, *runs)).status == "succeeded"


@in_mock_time
async def test_a_death_during_a_recovery_counts_once(lives: Lives, clock: Clock) -> None:
    """A run counts as executing until its suspension and its number of deaths are committed."""
    bodies = Bodies()
    async with lives.crash(bodies.jobs) as engine:
        run = await engine.submit("resumes", handle="h")
        await wait_until(engine, lambda now: bodies.begun)
    for _ in range(4):
        async with lives.crash(bodies.jobs, max_concurrent=0) as engine:
            assert (await engine.get_run(run.id)).status == "suspended"
    bodies.end.set()
    async with lives.clean(bodies.jobs, max_concurrent=1) as engine:
        assert (await ended(engine, run)).status == "succeeded"


async def test_a_store_keeps_deaths_until_their_run_is_deleted(place: Place) -> None:
    def executing(run: str) -> Any:
        first = created(run, place=1)
        return [first, moved(first, Status.RUNNING, attempt=1)]

    async with opened(place) as story:
        await story.tell(*executing("r1"), *executing("r2"), *executing("r3"))
        await story.tell(memos=[Deaths("r1", 1), Deaths("r2", 1), Deaths("r3", 1)])
        await story.tell(memos=[Deaths("r1", 2), Deaths("r2", 1, tried=True), Deaths("r3", 0)])
    store = place.store()
    stored = await store.open("e" * 16, 4, NOW)
    found = {run.record.id: (run.deaths, run.tried) for run in stored.pending}
    assert found == {"r1": (2, False), "r2": (1, True), "r3": (0, False)}
    await store.close()
    async with opened(place) as story:
        await story.tell(moved(story.runs["r1"], Status.FAILED))
        assert await story.store.prune(Retention(keep_runs=0), NOW, 100)
