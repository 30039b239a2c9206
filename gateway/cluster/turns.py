"""`Turns`: the order of the commands of one connection to a node that does not lead.

A command is sent to the leader after the commands before it, also if they wait for a leader, or are repeated
at the next one. A read at this node waits until the commands before it are answered, but not for long. So a
client that sends commands without waiting for replies gets the same from each node.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import trio


class Turns:
    """The commands of one connection that are not answered yet, by number."""

    def __init__(self) -> None:
        self._numbers = count()
        self._pending: dict[int, Turn] = {}
        self._unsent: set[int] = set()
        self._changed = trio.lowlevel.ParkingLot()

    @contextmanager
    def turn(self) -> Iterator[Turn]:
        """The turn of the next command, which ends with its answer."""
        number = next(self._numbers)
        self._unsent.add(number)
        turn = self._pending[number] = Turn(self, number)
        try:
            yield turn
        finally:
            del self._pending[number]
            self._unsent.discard(number)
            self._changed.unpark_all()

    async def answered(self) -> None:
        """Wait until all commands before this call are answered. Has no checkpoint if they are."""
        before = list(self._pending)
        while any(number in self._pending for number in before):
            await self._changed.park()

    async def _come(self, number: int) -> None:
        while min(self._unsent) < number:
            await self._changed.park()
        self._unsent.remove(number)
        self._changed.unpark_all()


class Turn:
    """The turn of one command."""

    def __init__(self, turns: Turns, number: int) -> None:
        self._turns = turns
        self._number = number

    async def come(self) -> None:
        """Wait until the commands before this one are sent. The caller sends it without a checkpoint."""
        await self._turns._come(self._number)

    def lost(self) -> None:
        """The command was not sent, or is to be sent again. Commands that were lost together call this before
        one of them is sent again."""
        self._turns._unsent.add(self._number)
