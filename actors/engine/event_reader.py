"""An iterator over the stream of events, as `Engine.events` returns it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from ...protocol.errors import Unavailable
from ...protocol.events import Event, Filter
from ...protocol.records import Snapshot
from ..journal.stream import Cursor, FellBehind, Published


class EventReader:
    """See the module's docstring."""

    def __init__(
        self, cursor: Cursor, snapshot: Callable[[], Awaitable[Snapshot]], filter: Filter | None
    ) -> None:
        self._cursor = cursor
        self._snapshot = snapshot
        self._filter = filter
        self._taken: list[Published] = []  # the next event last

    def __aiter__(self) -> EventReader:
        return self

    async def __anext__(self) -> Event | Snapshot:
        await trio.lowlevel.checkpoint()
        while True:
            while self._taken:
                event = self._taken.pop().event
                if self._filter is None or self._filter.passes(event):
                    return event
            try:
                taken = await self._cursor.take()
            except FellBehind:
                try:
                    snapshot = await self._snapshot()
                except Unavailable:
                    raise StopAsyncIteration from None
                self._cursor.seq = snapshot.seq
                return snapshot
            if not taken:
                raise StopAsyncIteration
            self._taken = [*reversed(taken), *self._taken]  # meanwhile, another task can have taken events

    def at_hand(self) -> list[Event]:
        """The next events that are available without waiting, for readers that take several in one call."""
        taken, self._taken = self._taken, []
        events = (published.event for published in reversed(taken))
        return [event for event in events if self._filter is None or self._filter.passes(event)]
