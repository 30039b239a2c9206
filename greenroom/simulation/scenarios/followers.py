"""Clients that follow the events: one that drops comes back by number, and its fold stays the engine's."""

from __future__ import annotations

import trio

from ...protocol.errors import Unavailable
from ...protocol.fold import Projection
from ...protocol.records import Snapshot
from ..world.world import World


class Follower:
    """Follows the events over drops and restarts, and folds them."""

    def __init__(self, name: str, world: World) -> None:
        self._client = world.client(name)
        self._world = world
        self._projection: Projection | None = None
        self._may_go_on = trio.Event()
        self._may_go_on.set()
        self._connection = trio.CancelScope()

    def stall(self) -> None:
        """Read nothing until `go_on`."""
        if self._may_go_on.is_set():
            self._may_go_on = trio.Event()

    def go_on(self) -> None:
        """Read again."""
        self._may_go_on.set()

    def drop(self) -> None:
        """Lose the connection."""
        self._connection.cancel()

    async def follow(self) -> None:
        """Until cancelled."""
        while True:
            with trio.CancelScope() as self._connection:
                try:
                    await self._read()
                except Unavailable:
                    await trio.sleep(0.5)
            await trio.lowlevel.checkpoint()

    async def _read(self) -> None:
        if self._projection is None:
            self._projection = Projection.from_snapshot(await self._client.snapshot())
        async for item in self._client.events(after=self._projection.seq):
            if isinstance(item, Snapshot):
                self._projection = Projection.from_snapshot(item)
            else:
                self._projection.apply(item)  # which raises if an event is lost or repeated
            await self._may_go_on.wait()
        await trio.sleep(0.5)

    def check(self, snapshot: Snapshot) -> None:
        """At rest, what it has folded is what the engine has."""
        folded = None if self._projection is None else self._projection.snapshot()
        self._world.check(folded == snapshot, f"a follower has folded {folded}, the engine has {snapshot}")
