"""The latest events that a client has heard of, for those who iterate over them.

As on the server there is no queue per reader, only the number that each has come to. So a reader that is
slow, or never reads, costs nothing and holds up nobody; when the ring has moved on past it, it is told so
and begins again from a snapshot.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

import trio

from ...protocol.events import Event

SIZE = 8192
_seq = attrgetter("seq")


class Ring:
    """Events that follow `after`, in order. Under a filter their numbers have gaps."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.closed = False
        self._events: list[Event] = []
        self._news = trio.lowlevel.ParkingLot()

    @property
    def last(self) -> int:
        """The number of the last event in it."""
        return self._events[-1].seq if self._events else self.after

    def extend(self, events: Sequence[Event]) -> None:
        """Add events, and wake who waits for them."""
        if not events:
            return
        self._events.extend(events)
        if len(self._events) >= 2 * SIZE:
            self.after = self._events[-SIZE - 1].seq
            del self._events[:-SIZE]
        self._news.unpark_all()

    def restart(self, after: int) -> None:
        """Begin again at another number: the events after it are going to be added."""
        self.after = after
        self._events.clear()

    def close(self) -> None:
        """There will be no more."""
        self.closed = True
        self._news.unpark_all()

    def behind(self, seq: int) -> bool:
        """Whether events after `seq` have left the ring."""
        return seq < self.after

    def next(self, seq: int, most: int = 256) -> list[Event]:
        """Up to `most` events that follow `seq`."""
        if seq >= self.last:
            return []
        start = bisect_right(self._events, seq, key=_seq)
        return self._events[start : start + most]

    async def news(self) -> None:
        """Wait until something changes."""
        await self._news.park()
