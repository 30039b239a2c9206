"""Engines that restart with another `executor_ttl`, while an executor continues."""

import random
from contextlib import asynccontextmanager

import pytest
import trio

from greenroom import Engine, Jobs, Run
from greenroom.executor.executor import Executor, Identity
from greenroom.persistence.files import DiskFiles
from greenroom.protocol.events import ExecutorChanged
from tests.flow.restarts import Lives

from .cable import Cable


class Stage:
    """A job whose body does not end, an executor, and engines on one store without bodies of their own."""

    def __init__(self, folder) -> None:
        self.jobs = Jobs()
        self.begun = []
        self._news = trio.lowlevel.ParkingLot()
        self.cable = Cable()
        self.lives = Lives(self.jobs, executors=0)
        self._folder = folder

        @self.jobs.job(resumable=True)
        async def stays(run: Run) -> None:
            self.begun.append(trio.current_time())
            self._news.unpark_all()
            await trio.sleep_forever()

    def executor(self, node: str) -> Executor:
        identity = Identity(node=node, start=f"start of {node}")
        files = DiskFiles(self._folder / node, in_threads=False)
        return Executor(self.jobs, self.cable, identity, files, random=random.Random(1))

    @asynccontextmanager
    async def first_life(self, ttl: float):
        """An engine that starts a body at an executor, and crashes when the block is left."""
        async with self.lives.crash(executor_ttl=ttl) as engine, self.cable.plugged(engine):
            ticket = await engine.submit("stays", handle="h")
            await self.bodies(1)
            yield engine, ticket.id

    async def bodies(self, count: int) -> None:
        """Wait until this number of bodies has begun."""
        while len(self.begun) < count:
            await self._news.park()


async def ttls(engine: Engine) -> dict[str, float | None]:
    return {id: executor.ttl for id, executor in (await engine.snapshot()).executors.items()}


@pytest.mark.parametrize("restarts", [1, 2])
async def test_an_engine_with_a_smaller_ttl_waits_until_the_lease_of_the_last_one_has_ended(
    autojump_clock, tmp_path, restarts
):
    stage = Stage(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.executor("lost").run)
        async with stage.first_life(30) as (engine, _):
            assert await ttls(engine) == {"lost": 30}
        for _ in range(1, restarts):
            async with stage.lives.crash(executor_ttl=1):
                await trio.sleep(2)
        nursery.cancel_scope.cancel()  # it does not return
    restarted_at = trio.current_time()
    async with trio.open_nursery() as nursery, stage.lives.clean(executor_ttl=1) as engine:
        assert await ttls(engine) == {"lost": 30}
        async with stage.cable.plugged(engine):
            nursery.start_soon(stage.executor("other").run)
            await stage.bodies(2)
            assert stage.begun[1] - restarted_at == pytest.approx(30, abs=0.2)
            assert await ttls(engine) == {"other": 1}
            nursery.cancel_scope.cancel()


async def test_an_executor_has_the_smaller_ttl_from_its_first_message_on(autojump_clock, tmp_path):
    stage = Stage(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.executor("stays").run)
        async with stage.first_life(30) as (_, run):
            pass
        async with stage.lives.clean(executor_ttl=1) as engine, stage.cable.plugged(engine):
            async for event in engine.events():
                if isinstance(event, ExecutorChanged) and event.status == "attached":
                    break
            assert await ttls(engine) == {"stays": 30}, "nothing shows that it has received the new ttl"
            await engine.cancel(run)  # its end is a message
            await engine.wait(run)
            assert await ttls(engine) == {"stays": 1}
        nursery.cancel_scope.cancel()


async def test_an_engine_with_a_larger_ttl_uses_it_from_its_start(autojump_clock, tmp_path):
    stage = Stage(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.executor("stays").run)
        async with stage.first_life(1):
            pass
        async with stage.lives.crash(executor_ttl=30) as engine:
            assert await ttls(engine) == {"stays": 30}
        nursery.cancel_scope.cancel()
