"""A queue of runs in the order of their places, which is nearly always the order of arrival."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

import msgspec

from .executor_pool import Demand


class Queued(msgspec.Struct, eq=False, gc=False):
    """A queued run. `queued_at` is when it got its place. `sort` and `queue_id` are set when a lane queues
    it: where it stands in the order, and in which of the lane's queues. It is part of no cycle, so the
    garbage collector need not track it."""

    run: str
    place: int
    queued_at: float
    demand: Demand
    priority: int
    key: str | None
    privileged: bool
    has_body: bool
    sort: tuple[float, int] = (0.0, 0)
    queue_id: tuple[Demand, int, str | None, bool] | None = None


class PlaceQueue:
    """Runs by place. Appending, removing the first run and lookups are fast at any length."""

    __slots__ = ("_places", "_removed", "_runs", "first")

    def __init__(self) -> None:
        self.first: Queued | None = None
        """The run with the lowest place."""
        self._places: list[int] = []  # sorted; the first `_removed` are removed
        self._removed = 0
        self._runs: dict[int, Queued] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run: Queued) -> None:
        """Add a run at its place."""
        place = run.place
        self._runs[place] = run
        if self.first is None or place < self.first.place:
            self.first = run
        if not self._places or place > self._places[-1]:
            self._places.append(place)
        else:
            self._places.insert(bisect_left(self._places, place, self._removed), place)

    def remove(self, run: Queued) -> None:
        """Remove a run."""
        del self._runs[run.place]
        if run is not self.first:
            del self._places[bisect_left(self._places, run.place, self._removed)]
            return
        self._removed += 1
        self.first = self._runs[self._places[self._removed]] if self._runs else None
        if self._removed > 64 and self._removed * 2 > len(self._places):
            del self._places[: self._removed]
            self._removed = 0

    def count_before(self, is_before: Callable[[Queued], bool]) -> int:
        """The number of the first runs that are all before a position."""
        position = bisect_left(
            self._places, True, self._removed, key=lambda place: not is_before(self._runs[place])
        )
        return position - self._removed
