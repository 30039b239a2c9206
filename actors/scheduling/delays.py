"""The delayed runs: which of them are due. A part of the supervisor.

The engine's clock decides, trio's clock only wakes the supervisor. So a change of the engine's clock neither
loses a run nor starts one early; it is noticed after `CHECK_CLOCK_EVERY` seconds at the latest.

A delayed run costs an entry of a heap, and no task. Of one that was stored by an earlier engine, there is not
even a submission until it is due or someone sends it a message.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush

from ...persistence.store import StoredRun

CHECK_CLOCK_EVERY = 15.0
"""Seconds of trio's clock after which the engine's clock is read again while runs are delayed."""

_SHORTEST_WAIT = 0.001
"""The difference of two readings of a clock can be rounded to less than what is left to wait."""

_MOST_AT_ONCE = 1000
"""The number of runs that become due in one turn, so that very many do not make others wait."""

_SLACK = 64


class Delays:
    """See the module's docstring. `deadline` is when the supervisor must call `due`, in trio's time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.deadline = math.inf
        self._clock = clock
        self.runs: dict[str, StoredRun | None] = {}
        """With the stored state of those without a submission."""
        self.without_submission = 0
        """The number of runs that are pending, but have no submission."""
        # By time, then in the order of submission. The heap includes outdated entries.
        self._heap: list[tuple[float, int, str]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self.runs)

    def add(self, run: str, at: float, now: float) -> float:
        """Add a run with its time, in Unix seconds; returns the seconds until then."""
        self.runs[run] = None
        self._serial += 1
        heappush(self._heap, (at, self._serial, run))
        left = at - self._clock()
        if self._heap[0][2] == run:
            self._set_deadline(left, now)
        return left

    def restore(self, stored: Iterable[tuple[str, float, StoredRun | None]], now: float) -> None:
        """Restore the delayed runs of an earlier engine, in the order of submission. Those with a stored
        state get their submissions later."""
        for run, at, later in stored:
            self.runs[run] = later
            self.without_submission += later is not None
            self._serial += 1
            self._heap.append((at, self._serial, run))
        heapify(self._heap)
        if self._heap:
            self._set_deadline(self._heap[0][0] - self._clock(), now)

    def drop(self, run: str) -> None:
        """The run has ended."""
        if run not in self.runs:
            return
        self.take_stored(run)
        del self.runs[run]
        if len(self._heap) > 2 * len(self.runs) + _SLACK:
            self._heap = [entry for entry in self._heap if entry[2] in self.runs]
            heapify(self._heap)

    def take_stored(self, run: str) -> StoredRun | None:
        """Take the stored state of a run without a submission, which gets its submission now."""
        stored = self.runs.get(run)
        if stored is not None:
            self.runs[run] = None
            self.without_submission -= 1
        return stored

    def all_stored(self) -> Iterator[StoredRun]:
        """The stored states of the runs without a submission."""
        return (stored for stored in self.runs.values() if stored is not None)

    def due(self, now: float) -> list[str]:
        """The first runs that are due, the earliest first. The caller drops them."""
        found: list[str] = []
        wall_now = self._clock()
        while self._heap and self._heap[0][0] <= wall_now and len(found) < _MOST_AT_ONCE:
            run = heappop(self._heap)[2]
            if run in self.runs:
                found.append(run)
        self._set_deadline(self._heap[0][0] - wall_now if self._heap else math.inf, now)
        return found

    def _set_deadline(self, left: float, now: float) -> None:
        if left == math.inf:
            self.deadline = math.inf
            return
        self.deadline = now + min(max(left, _SHORTEST_WAIT), CHECK_CLOCK_EVERY)
