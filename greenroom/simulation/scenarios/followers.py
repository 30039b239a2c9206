"""Followers: clients that follow the events, and compare their fold with the engine's snapshot."""

from __future__ import annotations

import trio

from ...protocol.errors import Unavailable
from ...protocol.fold import Projection
from ...protocol.records import Snapshot
from ..world.world import World


class Follower:
    """Follows the events across lost connections and restarts, and folds them."""

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
        """Continue to read after `stall`."""
        self._may_go_on.set()

    def drop(self) -> None:
        """Drop the connection; `follow` connects again."""
        self._connection.cancel()

    async def follow(self) -> None:
        """Follow the events until cancelled."""
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
        """Check that the fold is equal to the engine's snapshot, when no task is runnable."""
        folded = None if self._projection is None else self._projection.snapshot()
        self._world.check(
            folded == snapshot, f"a follower's fold is {folded}, but the snapshot is {snapshot}"
        )
