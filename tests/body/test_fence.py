"""`run.fence`: a number that only grows for a handle, for systems outside that refuse older bodies."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from greenroom import BlockingRun, Jobs, Run
from greenroom.aio import Run as AsyncioRun
from greenroom.persistence.sqlstore import SqlStore
from greenroom.protocol.events import RunStateChanged
from tests.support import open_engine

LOOPS = ("trio", "asyncio", "thread")
"""Where the bodies execute. Those of asyncio and of threads need the real clock."""


class Fences:
    """A registry with the job `work`, whose bodies record their fences before and after a wait without their
    slot. `begin` is called in between; what it raises fails the body."""

    def __init__(self, loop: str, begin: Callable[[Any], None] = lambda run: None, **options: Any) -> None:
        self.seen: list[tuple[str, int, int]] = []  # run, attempt and fence of each body
        self.after_waits: list[int] = []
        self.lasts = False  # whether bodies keep their slots for a minute instead
        self.jobs = Jobs()
        self._begin = begin
        if loop == "trio":
            self.jobs.job("work", **options)(self._in_trio)
        elif loop == "asyncio":
            self.jobs.job("work", loop="asyncio", **options)(self._in_asyncio)
        else:
            self.jobs.job("work", **options)(self._in_thread)

    @property
    def all(self) -> list[int]:
        """The fences of the bodies, in the order in which they began."""
        return [fence for _, _, fence in self.seen]

    @property
    def _wait(self) -> tuple[float, bool]:
        return (60, False) if self.lasts else (0.01, True)

    def _saw(self, run: Any) -> None:
        self.seen.append((run.id, run.attempt, run.fence))
        self._begin(run)

    async def _in_trio(self, run: Run) -> int:
        self._saw(run)
        await run.sleep(*self._wait)
        self.after_waits.append(run.fence)
        return run.fence

    async def _in_asyncio(self, run: AsyncioRun) -> int:
        self._saw(run)
        await run.sleep(*self._wait)
        self.after_waits.append(run.fence)
        return run.fence

    def _in_thread(self, run: BlockingRun) -> int:
        self._saw(run)
        run.sleep(*self._wait)
        self.after_waits.append(run.fence)
        return run.fence


def grow(numbers: list[int]) -> bool:
    return all(before < after for before, after in pairwise(numbers))


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_body_keeps_its_fence_during_a_wait_without_its_slot(loop: str):
    fences = Fences(loop)
    async with open_engine(fences.jobs) as engine:
        ticket = await engine.submit("work", handle="alice")
        assert await ticket.result() == fences.all[0]
        assert fences.after_waits == fences.all


@pytest.mark.parametrize("loop", LOOPS)
async def test_the_fence_grows_with_each_attempt(loop: str):
    def fail_twice(run: Any) -> None:
        if run.attempt < 3:
            raise ConnectionError

    fences = Fences(loop, fail_twice, max_attempts=3, backoff=lambda attempt: 0.01)
    async with open_engine(fences.jobs) as engine:
        await (await engine.submit("work", handle="alice")).result()
    assert [attempt for _, attempt, _ in fences.seen] == [1, 2, 3]
    assert grow(fences.all)


@pytest.mark.parametrize("loop", LOOPS)
async def test_the_fence_grows_over_the_runs_of_a_handle(loop: str):
    fences = Fences(loop)
    async with open_engine(fences.jobs) as engine:
        first = await engine.submit("work", handle="alice")
        await engine.submit("work", handle="bob")
        second = await engine.submit("work", handle="alice", on_conflict="queue")
        results = [await first.result(), await second.result()]
    assert grow(results)
    assert len(set(fences.all)) == 3


@pytest.mark.parametrize("loop", LOOPS)
async def test_the_fence_grows_over_a_restart_even_if_the_attempt_is_the_same(loop: str, tmp_path: Path):
    def store() -> SqlStore:
        return SqlStore(f"sqlite:///{tmp_path}/x.db", in_threads=False)

    begun = trio.Event()
    token = trio.lowlevel.current_trio_token()
    fences = Fences(loop, lambda run: token.run_sync_soon(begun.set), resumable=True)
    fences.lasts = True
    async with open_engine(fences.jobs, store(), shutdown_timeout=0) as engine:
        ticket = await engine.submit("work", handle="alice")
        await begun.wait()
    fences.lasts = False
    async with open_engine(fences.jobs, store()) as engine:
        later = await engine.submit("work", handle="alice", on_conflict="queue")
        await later.result()
    assert fences.seen[:2] == [(ticket.id, 1, fences.all[0]), (ticket.id, 1, fences.all[1])]
    assert fences.seen[2][0] == later.id
    assert grow(fences.all)


async def test_the_fence_is_the_seq_of_the_start_and_is_shown_in_the_record(autojump_clock):
    fences = Fences("trio")
    async with open_engine(fences.jobs) as engine:
        ticket = await engine.submit("work", handle="alice")
        await ticket.result()
        history = await engine.history(ticket.id)
        begins = [event for event in history if isinstance(event, RunStateChanged) and event.to == "running"]
        assert fences.all == [begins[0].seq]
        assert begins[1].seq > begins[0].seq  # the return of its slot after the wait
        assert (await engine.get_run(ticket.id)).fence == begins[0].seq


async def test_an_abandoned_body_has_a_lower_fence_than_the_next_body_of_its_handle(autojump_clock):
    jobs = Jobs()
    release, fences = trio.Event(), []

    @jobs.job("stuck")
    async def stuck(run: Run) -> None:
        with trio.CancelScope(shield=True):
            await release.wait()
            fences.append(run.fence)

    @jobs.job("work")
    async def work(run: Run) -> None:
        fences.append(run.fence)

    async with open_engine(jobs) as engine:
        ticket = await engine.submit("stuck", handle="alice")
        await trio.testing.wait_all_tasks_blocked()
        try:
            await ticket.cancel()
            await ticket.wait()
            await engine.release_handle("alice")
            await (await engine.submit("work", handle="alice")).result()
        finally:
            release.set()
    later, abandoned = fences
    assert abandoned < later
