"""An engine that leads, and nodes that follow it, on mock time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from greenroom import Engine
from tests.following import Follower, Leader
from tests.support import Bodies, open_engine


class Pair:
    """A leader, and a follower that is connected to it."""

    def __init__(self, bodies: Bodies, leader: Leader, follower: Follower, nursery: trio.Nursery) -> None:
        self.bodies = bodies
        self.leader = leader
        self.follower = follower
        self.nursery = nursery
        self.engine: Engine = leader.engine

    async def caught_up(self) -> None:
        """Wait until the follower has all events of the leader."""
        await self.follower.reach(self.engine.stream.last_seq)


@asynccontextmanager
async def pair(bodies: Bodies | None = None, **options: Any) -> AsyncIterator[Pair]:
    """A leader and a follower for as long as the block lasts."""
    bodies = bodies or Bodies()
    async with (
        open_engine(bodies.jobs, shutdown_timeout=0, **options) as engine,
        trio.open_nursery() as nursery,
    ):
        leader = Leader(engine, (await engine.snapshot()).epoch, nursery)
        async with leader.serving():
            follower = Follower(leader)
            await nursery.start(follower.follow, leader)
            yield Pair(bodies, leader, follower, nursery)
            nursery.cancel_scope.cancel()
