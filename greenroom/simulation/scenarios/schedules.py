"""A scenario with schedules: they are put, paused, triggered and deleted, while the engine crashes, stops,
drains and loses its disk, and while the wall clock is set forward and back.

The rules check that each due time fires exactly once or is counted as left out. At the end all obstacles are
removed; then nothing that is due may remain.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import trio

from ...actors.jobs import Jobs
from ...actors.run.api import Run
from ...protocol.errors import Conflict, GreenroomError, Invalid, NotFound
from ..world.client import Client
from ..world.disk_backend import Trouble
from ..world.server import Server
from ..world.world import World
from .commands import pause
from .followers import Follower

NAMES = ("ticks", "tocks", "nightly")
_HANDLES = ("one", "two", None)
_LONG_JUMP = 3600.0
_PATIENCE = 300.0
"""Seconds; longer than any outage of the scenario, and than the shortest wait for a due time."""

jobs = Jobs()


@jobs.job("sleeps")
async def sleeps(run: Run, params: dict[str, float]) -> None:
    """A body that ends after some seconds."""
    await trio.sleep(params.get("seconds", 0.0))


async def schedules(world: World) -> None:
    """The scenario."""
    play = _Play(world)
    await play.begin()
    async with trio.open_nursery() as followers:
        followers.start_soon(play.follower.follow)
        async with trio.open_nursery() as play.nursery:
            async for step in world.steps(40):
                await play.step(step.random)
            play.nursery.cancel_scope.cancel()
        await play.end()
        followers.cancel_scope.cancel()


class _Play:
    def __init__(self, world: World) -> None:
        self.nursery: trio.Nursery
        self.follower: Follower
        self._world = world
        self._server: Server
        self._callers = 0

    async def begin(self) -> None:
        self._server = await self._world.serve(jobs, max_concurrent=2, shutdown_timeout=3)
        self.follower = Follower("follower", self._world)
        rules, clock = self._server.rules.schedules, self._world.clock

        @self._world.invariant
        def time_passes() -> None:
            rules.time_is(clock())

    async def step(self, random: Random) -> None:
        await self._start()
        deed = random.choice(
            (*(self._call,) * 5, self._wait, self._wait, self._wait, self._fault, self._fault, self._drain)
        )
        await deed(random)
        await pause(random)

    async def _start(self) -> None:
        await self._server.start_again()

    # Calls.

    async def _call(self, random: Random) -> None:
        calls = (self._put, self._put, self._put, self._pause, self._resume, self._trigger, self._delete)
        call = random.choice(calls)
        self._callers += 1
        self.nursery.start_soon(self._attempt, call, self._world.client(f"caller {self._callers}"), random)

    async def _attempt(self, call: Any, client: Client, random: Random) -> None:
        # Other scenarios check what is refused: an unknown schedule, a busy handle, a server that is down.
        with suppress(GreenroomError):
            await call(client, random)

    async def _put(self, client: Client, random: Random) -> None:
        options: dict[str, Any] = {
            "job": "sleeps",
            "handle": random.choice(_HANDLES),
            "params": {"seconds": random.choice((0.0, 0.0, 5.0, 70.0))},
            "missed": random.choice(("skip", "latest", "all")),
            "missed_limit": random.choice((1, 3, 100)),
            "jitter": random.choice((0.0, 0.0, 10.0)),
            "on_conflict": random.choice(("reject", "queue", "replace", "join")),
            "paused": random.choice((None, None, False)),
        }
        if random.random() < 0.5:
            options["every"] = random.choice((10.0, 33.3, 100.0, 900.0))
        else:
            options["cron"] = random.choice(("* * * * *", "*/5 * * * *", "30 * * * *", "0 3 * * *"))
        try:
            await client.schedules.put(random.choice(NAMES), **options)
        except Invalid as error:
            self._world.check(False, f"put {options}, but received {error!r}")

    async def _pause(self, client: Client, random: Random) -> None:
        record = await client.schedules.pause(random.choice(NAMES))
        self._world.check(record.paused and not record.next, f"paused, but received {record}")

    async def _resume(self, client: Client, random: Random) -> None:
        record = await client.schedules.resume(random.choice(NAMES))
        self._world.check(not record.paused and record.next, f"resumed, but received {record}")

    async def _trigger(self, client: Client, random: Random) -> None:
        with suppress(Conflict, NotFound):
            await client.schedules.trigger(random.choice(NAMES))

    async def _delete(self, client: Client, random: Random) -> None:
        await client.schedules.delete(random.choice(NAMES))

    # Time and faults.

    async def _wait(self, random: Random) -> None:
        await trio.sleep(random.choice((0.5, 10.0, 61.0, 400.0)))

    async def _fault(self, random: Random) -> None:
        fault = random.choice(
            (
                self._crash,
                self._crash_at_a_commit,
                self._crash_at_a_commit,
                self._stop,
                self._lose_a_commit,
                self._trouble_the_disk,
                self._jump,
                self._jump,
            )
        )
        await fault(random)

    async def _crash(self, random: Random) -> None:
        """Kill the server, and leave it off for a while."""
        await self._server.crash()
        await trio.sleep(random.choice((0.0, 5.0, 90.0, 4000.0)))

    async def _crash_at_a_commit(self, random: Random) -> None:
        trouble: Trouble = random.choice(("crash_before", "crash_within", "crash_after"))
        self._server.disk.fail_commit(trouble, after=random.randint(0, 3))

    async def _lose_a_commit(self, random: Random) -> None:
        trouble: Trouble = random.choice(("lost_request", "lost_reply", "refused"))
        self._server.disk.fail_commit(trouble, after=random.randint(0, 3))

    async def _stop(self, random: Random) -> None:
        await self._server.stop()
        await trio.sleep(random.choice((0.0, 30.0, 500.0)))

    async def _trouble_the_disk(self, random: Random) -> None:
        disk = self._server.disk
        if random.random() < 0.5:
            disk.delay = (0.0, 1.0)
        else:
            disk.down = True
        await trio.sleep(random.choice((3.0, 30.0, 100.0)))
        disk.delay, disk.down = None, False

    async def _jump(self, random: Random) -> None:
        """Set the wall clock forward or back."""
        clock = self._world.clock
        self._server.rules.schedules.time_is(clock())
        clock.jump(random.choice((-_LONG_JUMP, -30.0, 30.0, _LONG_JUMP)))

    async def _drain(self, random: Random) -> None:
        client = self._world.client("drainer")
        with suppress(GreenroomError):
            await client.drain()
            await trio.sleep(random.choice((1.0, 90.0)))
            await client.resume()

    # The end.

    async def end(self) -> None:
        """Remove all obstacles, and check that nothing remains that is due."""
        self._server.disk.repair()
        lives = 0
        while lives != self._server.lives or not self._server.running:
            await self._start()
            lives = self._server.lives
            with suppress(GreenroomError):
                await self._world.client("the end").resume()
            await trio.sleep(_PATIENCE)
        self._server.judge(self._server.rules.schedules.check_all_decided, self._world.clock(), 2.0)
        client = self._world.client("the end")
        for schedule in await client.schedules.list():
            await client.schedules.pause(schedule.name)
        await client.clear_lane("main")
        await trio.sleep(_PATIENCE)
        self.follower.check(await client.snapshot())
