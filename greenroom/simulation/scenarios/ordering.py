"""A scenario about the order of starts: priorities, ageing, fairness, limits per key, rates, delays, pauses.

Short runs of a few keys crowd three lanes whose rules, limits and pauses change meanwhile, and so do the
priorities of queued runs. Runs are cancelled, lanes cleared, and the engine drains, crashes and restarts. At
the end, the lanes are open, and every run must end.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import trio

from ...actors.jobs import Jobs
from ...actors.run.api import Run
from ...gateway.background import background
from ...protocol.errors import GreenroomError
from ..world.world import World
from .followers import Follower

LANES = ("main", "a", "b")
KEYS = ("x", "x", "x", "y", "z", None)
MAX_CONCURRENT = 3
_PATIENCE = 600.0
"""Seconds, in which all runs of a scenario can end, with the lowest of the rates."""


def _rules(random: Random) -> dict[str, Any]:
    """Rules of a lane, each of which it has in half of the cases."""
    rules: dict[str, Any] = {
        "fair_by": random.choice((None, "tenant")),
        "weights": random.choice(({}, {"x": 2}, {"y": 3})),
        "limit_per_key": random.choice((None, None, 1, 2)),
        "age": random.choice((None, 1.0, 10.0)),
        "rate": None,
    }
    if random.random() < 0.4:
        rules |= {
            "rate": random.choice(("1/s", "1/5s")),
            "burst": random.choice((1, 3)),
            "rate_per": random.choice(("lane", "key")),
        }
    return rules


async def ordering(world: World) -> None:
    """The scenario."""
    play = _Play(world)
    await play.begin()
    async with background() as followers:
        for follower in play.followers:
            followers.start_soon(follower.follow)
        async with trio.open_nursery() as play.nursery:
            async for step in world.steps(60):
                await play.step(step.random)
        await play.end()


class _Play:
    def __init__(self, world: World) -> None:
        self.nursery: trio.Nursery
        self.followers: list[Follower] = []
        self._world = world
        self._callers = 0
        self._runs = 0

    async def begin(self) -> None:
        world, jobs = self._world, Jobs()
        random = world.derived("lanes")

        @jobs.job("short", resumable=True, priority=1)
        async def short(run: Run, params: dict[str, Any]) -> None:
            await run.sleep(params["sleeps"], release_slot=params["releases"])

        @jobs.job("retried", max_attempts=2, backoff=1.0)
        async def retried(run: Run, params: dict[str, Any]) -> None:
            await run.sleep(params["sleeps"], release_slot=params["releases"])
            if run.attempt == 1:
                raise ValueError("as planned")

        lanes = {lane: {"limit": random.choice((1, 2, None)), **_rules(random)} for lane in ("a", "b")}
        self._server = await world.serve(jobs, max_concurrent=MAX_CONCURRENT, lanes=lanes, shutdown_timeout=3)
        self.followers = [Follower("follower", world)]

    async def step(self, random: Random) -> None:
        deed = random.choice(random.choice(self._deeds))
        await deed(self, random)
        await trio.sleep(random.choice((0.0, 0.0, 0.0, 0.1, 0.5, 3.0)))

    async def _submit(self, random: Random) -> None:
        for _ in range(random.randint(1, 4)):
            self._runs += 1
            params = {
                "tenant": random.choice(KEYS),
                "sleeps": random.choice((0.1, 0.5, 2.0)),
                "releases": random.random() < 0.2,
            }
            options: dict[str, Any] = {"params": params, "lane": random.choice(LANES), "on_conflict": "queue"}
            options["handle"] = f"h{self._runs}" if random.random() < 0.8 else "busy"
            if random.random() < 0.5:
                options["priority"] = random.choice((-2, 0, 1, 3))
            if random.random() < 0.3:
                options["key"] = random.choice(("x", "y", "own"))
            if random.random() < 0.15:
                options |= {"delay": random.choice((1.0, 5.0, 20.0)), "reserve": random.random() < 0.3}
            if random.random() < 0.1:
                options["queue_timeout"] = random.choice((0.5, 5.0))
            self._call("submit", random.choice(("short", "short", "retried")), **options)

    async def _set_priority(self, random: Random) -> None:
        if run := self._pending(random):
            self._call("set_priority", run, random.choice((-3, 0, 2, 5)))

    async def _set_lane(self, random: Random) -> None:
        self._call("set_lane", random.choice(("a", "b")), **_rules(random))

    async def _set_limit(self, random: Random) -> None:
        self._call("set_concurrency", random.choice(LANES), random.choice((1, 2, None)))

    async def _pause(self, random: Random) -> None:
        lane, seconds = random.choice(LANES), random.choice((0.0, 0.5, 5.0))
        self._call("pause_lane", lane)
        await trio.sleep(seconds)
        self._call("resume_lane", lane)

    async def _cancel(self, random: Random) -> None:
        if run := self._pending(random):
            self._call("cancel", run)

    async def _clear(self, random: Random) -> None:
        self._call("clear_lane", random.choice(LANES))

    async def _reset(self, random: Random) -> None:
        self._call("reset_lanes")

    async def _drain(self, random: Random) -> None:
        self._call("drain")
        await trio.sleep(random.choice((0.0, 1.0)))
        self._call("resume")

    async def _restart(self, random: Random) -> None:
        server = self._server
        if not server.running:
            return
        if random.random() < 0.7:
            await server.crash()
        else:
            await server.stop(at_once=random.random() < 0.5)
        await trio.sleep(random.choice((0.0, 0.5, 7.0)))
        await server.start()

    async def _wait(self, random: Random) -> None:
        await trio.sleep(random.choice((1.0, 5.0, 11.0)))

    _deeds = (
        *[(_submit,)] * 4,
        (_set_priority, _set_priority, _set_lane, _set_limit, _pause),
        (_cancel, _cancel, _clear, _reset, _drain, _restart),
        (_wait,),
    )

    def _pending(self, random: Random) -> str | None:
        runs = list(self._server.rules.model.pending)
        return random.choice(runs) if runs else None

    def _call(self, method: str, *arguments: object, **options: object) -> None:
        self._callers += 1
        client = self._world.client(f"caller {self._callers}", self._server)

        async def call() -> None:
            with suppress(GreenroomError):
                await getattr(client, method)(*arguments, **options)

        self.nursery.start_soon(call)

    async def end(self) -> None:
        """Open the lanes. Then all runs must end."""
        client = self._world.client("the end", self._server)
        await client.resume()
        for lane in LANES:
            await client.resume_lane(lane)
        await trio.sleep(_PATIENCE)
        left = list(self._server.rules.model.pending.values())
        self._world.check(not left, f"these runs have not ended: {left}")
        snapshot = await client.snapshot()
        for follower in self.followers:
            follower.check(snapshot)
