"""What a leader needs to serve its followers: whether it still leads, and which commands it executes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from ...actors.engine.api import Engine
from .followers import Followers


class Leading:
    """What this node needs to serve its followers. `engine` is its own."""

    def __init__(self, engine: Engine, epoch: str, followers: Followers) -> None:
        self.engine = engine
        self.epoch = epoch
        self.followers = followers
        self.start = ""
        """The start id of this process."""
        self.stopped = False
        """Whether this node no longer leads, so that commands are not executed."""
        self._commands: set[trio.CancelScope] = set()
        self._calls = 0  # commands for which a hand-over waits
        self._idle = trio.lowlevel.ParkingLot()

    @property
    def is_current(self) -> bool:
        """Whether the lease is good. Otherwise another node can lead, so what the engine answers can be
        outdated, unless it was committed."""
        return not self.engine.stopped and self.engine.has_lease

    @property
    def accepts(self) -> bool:
        """Whether commands can be executed here."""
        return not self.stopped and self.is_current

    def lapse(self) -> None:
        """The lease could not be renewed in time: give up all commands, which may wait for a commit."""
        for scope in list(self._commands):
            scope.cancel()

    def stop(self) -> None:
        """This node no longer leads: further commands are refused, so that followers send them elsewhere."""
        self.stopped = True

    async def idle(self) -> None:
        """Wait until all commands are answered, those of this node's clients and of followers, except for
        those that can take long."""
        while self._calls:
            await self._idle.park()

    @contextmanager
    def command(self, *, waits: bool) -> Iterator[None]:
        """A command is executed in the block, which is cancelled if the lease lapses. It can take long if it
        `waits`."""
        self._calls += not waits
        with trio.CancelScope() as scope:
            self._commands.add(scope)
            try:
                yield
            finally:
                self._commands.remove(scope)
                self._calls -= not waits
                if not self._calls:
                    self._idle.unpark_all()
