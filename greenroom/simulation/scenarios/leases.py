"""A scenario with two engines on one store: leases lapse, are lost to the other engine, and come back.

An engine is cut off from its disk, for less or for more than its lease lasts, and the other one is started on
the same disk meanwhile; or no lease can be renewed for a while, though all else works; or an engine crashes,
and nobody can know that it has died. The disk judges whoever commits without having the lease, and the rules
each body that executes when the next engine has the store.
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
    """A resumable body: a number of parts, each with a checkpoint."""
    parts = params["parts"]
    for number in range(run.checkpoint or 0, len(parts)):
        await trio.sleep(parts[number])
        await run.save_checkpoint(number + 1)
    return len(parts)


@jobs.job("tries", max_attempts=2)
async def tries(run: Run, params: dict[str, list[float]]) -> int:
    """One that may begin anew once, and gives its slot back at times."""
    for seconds in params["parts"]:
        await trio.sleep(seconds)
        await run.sleep(seconds)
    return run.attempt


@jobs.job("once")
async def once(run: Run, params: dict[str, list[float]]) -> None:
    """One that may not be repeated."""
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
        with suppress(GreenroomError):  # it is refused while the engine is away, which others judge
            await client.submit(job, handle=handle, params={"parts": parts}, on_conflict="queue")

    async def _wait(self, random: Random) -> None:
        await trio.sleep(random.choice((0.5, 3.0, 11.0)))

    async def _fault(self, random: Random) -> None:
        await random.choice((self._lapse, self._replace, self._replace, self._cut, self._crash))(random)

    async def _lapse(self, random: Random) -> None:
        """No lease can be renewed."""
        self._disk.no_renewals = True
        await trio.sleep(random.uniform(1, 40))
        self._disk.no_renewals = False

    async def _cut(self, random: Random) -> None:
        """The engine is away for a while, and nobody takes its place."""
        server = self._servers[-1]
        server.cut_off = True
        await trio.sleep(random.uniform(1, 40))
        server.cut_off = False

    async def _replace(self, random: Random) -> None:
        """The engine is away, and another one is started, which waits for its lease."""
        old = self._servers[-1]
        self._disk.late_answers = random.choice((0.0, 4.5))
        if random.random() < 0.5:
            await trio.sleep(12)  # what executes may have ended
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
        self._world.check(False, f"{server.name} has lost its lease for a minute, and goes on")

    async def _crash(self, random: Random) -> None:
        """The engine dies; where it was nobody can tell."""
        await self._servers[-1].crash()
        await self._servers[-1].start()

    async def end(self) -> None:
        """Everything works again: every run ends."""
        self._disk.repair()
        server = self._servers[-1]
        await trio.sleep(_PATIENCE)
        with trio.move_on_after(20 * _PATIENCE):
            drained = False
            while not drained:
                drained = await self._world.client("last", server).wait_for_active(timeout=5)
            return
        self._world.check(False, "some run doesn't end")
