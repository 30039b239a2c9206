"""Iteration over the events of a client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ...protocol.errors import Invalid
from ...protocol.events import Event, Filter, RunChanged, RunStateChanged
from ...protocol.records import Snapshot
from ...protocol.states import Status

if TYPE_CHECKING:
    from .link import Link


class Iterating:
    """Iterates over the events after a seq in the client's ring, or over a snapshot and later events."""

    def __init__(self, link: Link, after: int, filter: Filter | None) -> None:
        self._link = link
        self._ring = link.following.ring
        self._seq = after
        self._filter = filter
        self._taken: list[Event] = []  # the latest first
        self._reached = not self._ring.behind(after) and after <= link.following.seq

    def __aiter__(self) -> Iterating:
        return self

    async def __anext__(self) -> Event | Snapshot:
        await trio.lowlevel.checkpoint()
        if not self._reached:
            await self._link.reach(self._seq)
            self._reached = True
            self._ring = self._link.following.ring
            if self._seq > self._link.following.seq:
                return self._snapshot()
        while True:
            while self._taken:
                event = self._taken.pop()
                self._seq = event.seq
                if self._filter is None or self._filter.passes(event):
                    return event
            if self._ring.behind(self._seq):
                return self._snapshot()
            self._taken = self._ring.next(self._seq)
            self._taken.reverse()
            if self._taken:
                continue
            following = self._link.following
            if self._ring is not following.ring:
                return self._snapshot()
            if self._ring.closed:
                if following.failure is not None and not self._link.left:
                    raise following.failure()
                raise StopAsyncIteration
            await self._ring.news()

    def at_hand(self) -> list[Event]:
        """The next events that are available without waiting; for callers that fetch several at a time."""
        events, self._taken = self._taken[::-1], []
        if events:
            self._seq = events[-1].seq
        return [event for event in events if self._filter is None or self._filter.passes(event)]

    def _snapshot(self) -> Snapshot:
        """Restart from the current state."""
        following = self._link.following
        assert following.state is not None, "events() requires a state"
        self._ring = following.ring
        snapshot = following.state.snapshot()
        self._seq = snapshot.seq
        return snapshot


def still_executing(executing: Iterable[str], item: Event | Snapshot) -> set[str]:
    """The runs that still have their slots after this item of an iterator."""
    if isinstance(item, Snapshot):
        holding = {run for lane in item.lanes.values() for run in lane.executing}
        return holding.intersection(executing)
    left = (isinstance(item, RunChanged) and item.detached) or (
        isinstance(item, RunStateChanged) and item.to not in (Status.RUNNING, Status.CANCELLING)
    )
    return {run for run in executing if not (left and run == item.run)}  # type: ignore[union-attr]


def converted(filter: Filter | Mapping[str, Any] | None) -> Filter | None:
    """Convert a filter from a mapping. Raises `Invalid`."""
    if filter is None or isinstance(filter, Filter):
        return filter
    try:
        return msgspec.convert(filter, Filter)
    except msgspec.ValidationError as error:
        raise Invalid(f"filter: {error}") from None
