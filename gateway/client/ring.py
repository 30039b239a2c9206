"""The latest events of a client, for its iterators.

As on the server there is no queue per reader, only its position. So a slow reader costs nothing and delays no
other reader. When the ring has dropped events that a reader needs, the reader restarts from a snapshot.
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
        """The seq of the last event."""
        return self._events[-1].seq if self._events else self.after

    def extend(self, events: Sequence[Event]) -> None:
        """Add events, and wake the readers."""
        if not events:
            return
        self._events.extend(events)
        if len(self._events) >= 2 * SIZE:
            self.after = self._events[-SIZE - 1].seq
            del self._events[:-SIZE]
        self._news.unpark_all()

    def restart(self, after: int) -> None:
        """Empty the ring; the events after `after` are added next."""
        self.after = after
        self._events.clear()

    def close(self) -> None:
        """Close the ring: no event will be added."""
        self.closed = True
        self._news.unpark_all()

    def behind(self, seq: int) -> bool:
        """Whether the ring has dropped events after `seq`."""
        return seq < self.after

    def next(self, seq: int, most: int = 256) -> list[Event]:
        """At most `most` events after `seq`."""
        if seq >= self.last:
            return []
        start = bisect_right(self._events, seq, key=_seq)
        return self._events[start : start + most]

    async def news(self) -> None:
        """Wait until events are added or the ring is closed."""
        await self._news.park()
