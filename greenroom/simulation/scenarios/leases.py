"""A scenario with several engines on one store: leases expire, are taken over, and are renewed late.

An engine is cut off from its disk, for a shorter or a longer time than its lease lasts, and another engine is
started on the same disk meanwhile; or no lease can be renewed for a while; or an engine crashes without
releasing its lease. The disk reports an engine that commits without a lease. The rules report a body that
still executes when the next engine opens the store.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

import trio

from ...actors.jobs import Jobs
from ...actors.run.api import Run
from ...protocol.errors import GreenroomError
from ..world.server import Server
from ..world.world import World
from .bodies import HANDLES

_PATIENCE = 60.0
"""Seconds; longer than a lease."""

jobs = Jobs()


@jobs.job("works", resumable=True)
async def works(run: Run, params: dict[str, list[float]]) -> int:
    """A resumable body: several parts, with a checkpoint after each."""
    parts = params["parts"]
    for number in range(run.checkpoint or 0, len(parts)):
        await trio.sleep(parts[number])
        await run.save_checkpoint(number + 1)
    return len(parts)


@jobs.job("tries", max_attempts=2, backoff=1.0)
async def tries(run: Run, params: dict[str, list[float]]) -> int:
    """A body with two attempts, which releases its slot from time to time."""
    for seconds in params["parts"]:
        await trio.sleep(seconds)
        await run.sleep(seconds)
    return run.attempt


@jobs.job("once")
async def once(run: Run, params: dict[str, list[float]]) -> None:
    """A body that must not be repeated."""
    await trio.sleep(sum(params["parts"]))


async def leases(world: World) -> None:
    """The scenario."""
    play = _Play(world)
    await play.begin()
    async with trio.open_nursery() as play.nursery:
        async for step in world.steps(25):
            await play.step(step.random)
        play.nursery.cancel_scope.cancel()
    await play.end()


class _Play:
    def __init__(self, world: World) -> None:
        self.nursery: trio.Nursery
        self._world = world
        self._disk = world.leased_disk()
        self._servers: list[Server] = []
        self._names = 0

    async def begin(self) -> None:
        self._servers.append(await self._world.serve(jobs, name="first", disk=self._disk, max_concurrent=2))

    async def step(self, random: Random) -> None:
        deed = random.choice((self._submit, self._submit, self._submit, self._wait, self._fault))
        await deed(random)

    async def _submit(self, random: Random) -> None:
        self._names += 1
        parts = [random.choice((0.0, 1.0, 7.0)) for _ in range(random.randint(0, 3))]
        job = random.choice(("works", "works", "tries", "once"))
        self.nursery.start_soon(self._call, job, random.choice(HANDLES), parts, self._servers[-1])

    async def _call(self, job: str, handle: str, parts: list[float], server: Server) -> None:
        client = self._world.client(f"caller {self._names}", server)
        with suppress(GreenroomError):  # refused while the engine is cut off; other scenarios check that
            await client.submit(job, handle=handle, params={"parts": parts}, on_conflict="queue")

    async def _wait(self, random: Random) -> None:
        await trio.sleep(random.choice((0.5, 3.0, 11.0)))

    async def _fault(self, random: Random) -> None:
        await random.choice((self._lapse, self._replace, self._replace, self._cut, self._crash))(random)

    async def _lapse(self, random: Random) -> None:
        """Let no lease be renewed for a while."""
        self._disk.no_renewals = True
        await trio.sleep(random.uniform(1, 40))
        self._disk.no_renewals = False

    async def _cut(self, random: Random) -> None:
        """Cut the engine off for a while; no other engine replaces it."""
        server = self._servers[-1]
        server.cut_off = True
        await trio.sleep(random.uniform(1, 40))
        server.cut_off = False

    async def _replace(self, random: Random) -> None:
        """Cut the engine off, and start another one, which waits until the lease has expired."""
        old = self._servers[-1]
        self._disk.late_answers = random.choice((0.0, 4.5))
        if random.random() < 0.5:
            await trio.sleep(12)  # executing runs can end meanwhile
        old.cut_off = True
        if random.random() < 0.5:
            await self._submit(random)
        new = await self._world.serve(jobs, name=f"engine {len(self._servers) + 1}", disk=self._disk)
        self._servers.append(new)
        await trio.sleep(random.choice((0.0, 0.5, 9.0)))
        old.cut_off = False
        self._disk.late_answers = 0.0
        await self._stops(old)

    async def _stops(self, server: Server) -> None:
        with trio.move_on_after(_PATIENCE):
            await server.ended()
            return
        self._world.check(False, f"{server.name} still runs {_PATIENCE:g} s after it lost its lease")

    async def _crash(self, random: Random) -> None:
        """Kill the engine, and start it again."""
        await self._servers[-1].crash()
        await self._servers[-1].start()

    async def end(self) -> None:
        """Repair the disk, and check that every run ends."""
        self._disk.repair()
        server = self._servers[-1]
        await trio.sleep(_PATIENCE)
        with trio.move_on_after(20 * _PATIENCE):
            drained = False
            while not drained:
                drained = await self._world.client("last", server).wait_for_active(timeout=5)
            return
        self._world.check(False, "a run did not end")
