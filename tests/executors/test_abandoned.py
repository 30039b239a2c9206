"""An executor that drains reports when each body that executes is abandoned."""

from contextlib import asynccontextmanager

import trio

from greenroom import Jobs, Run
from greenroom.protocol.executors import CloseBody, Draining
from greenroom.protocol.executors import Ended as EndedBody

from .engine import attached, order

jobs = Jobs()
_ends = trio.lowlevel.ParkingLot()


@jobs.job
async def stubborn(run: Run) -> None:
    with trio.CancelScope(shield=True):
        await _ends.park()


@jobs.job
async def obeys(run: Run) -> None:
    await trio.sleep_forever()


@asynccontextmanager
async def engine_with_executor(folder):
    async with attached(jobs, folder) as engine:
        try:
            yield engine
        finally:
            _ends.unpark_all()  # otherwise a failed test would wait for the bodies


class _Waits:
    """Waits for the report, and notes it."""

    def __init__(self, engine) -> None:
        self.executor = engine.executor
        self.reported = False
        engine.nursery.start_soon(self._wait)

    async def _wait(self) -> None:
        await self.executor.until_only_abandoned_remain()
        self.reported = True

    async def has_reported(self) -> bool:
        await trio.testing.wait_all_tasks_blocked()
        return self.reported


async def test_the_report_follows_the_moment_when_the_last_other_body_is_abandoned(mock_clock, tmp_path):
    async with engine_with_executor(tmp_path) as engine:
        waits = _Waits(engine)
        await engine.send(order("stubborn", "r1"), order("stubborn", "r2"), CloseBody("r1", 1, "x"))
        engine.executor.drain()
        assert isinstance(await engine.receive(), Draining)
        assert not await waits.has_reported()
        await engine.send(CloseBody("r2", 1, "x"))
        assert await waits.has_reported()


async def test_the_report_follows_the_end_of_the_last_other_body(mock_clock, tmp_path):
    async with engine_with_executor(tmp_path) as engine:
        waits = _Waits(engine)
        await engine.send(order("stubborn", "r1"), order("obeys", "r2"), CloseBody("r1", 1, "x"))
        engine.executor.drain()
        assert not await waits.has_reported()
        for execution in engine.executor._live:
            if execution.id == "r2":
                execution.stop()
        assert await waits.has_reported()
        assert engine.executor.remaining == ["r1"]


async def test_the_report_follows_the_drain_if_all_bodies_are_abandoned(mock_clock, tmp_path):
    async with engine_with_executor(tmp_path) as engine:
        waits = _Waits(engine)
        await engine.send(order("stubborn"), CloseBody("r1", 1, "x"))
        assert not await waits.has_reported()
        engine.executor.drain()
        assert await waits.has_reported()


async def test_without_bodies_there_is_no_report(mock_clock, tmp_path):
    async with engine_with_executor(tmp_path) as engine:
        engine.acknowledges = False  # so that the executor does not end
        waits = _Waits(engine)
        engine.executor.drain()
        assert not await waits.has_reported()


async def test_a_body_that_ends_before_the_drain_is_not_reported(mock_clock, tmp_path):
    async with engine_with_executor(tmp_path) as engine:
        engine.acknowledges = False
        await engine.send(order("stubborn"), CloseBody("r1", 1, "x"))
        await trio.testing.wait_all_tasks_blocked()
        _ends.unpark_all()
        assert isinstance(await engine.receive(), EndedBody)
        waits = _Waits(engine)
        engine.executor.drain()
        assert not await waits.has_reported()
