"""Which queued runs have waited for longer than their `warn_after`: kept by the supervisor."""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush

from ..messages import Submission

_SLACK = 64


class WaitWatch:
    """Waiting runs by the time at which somebody should be told that they still wait."""

    def __init__(self) -> None:
        self._watched: dict[str, Submission] = {}
        self._due: list[tuple[float, str]] = []  # also holds some that wait no longer

    def add(self, submission: Submission, now: float) -> None:
        """Watch a run. One whose time has passed was told of where it waited before."""
        warn_after = submission.terms.warn_after
        if warn_after is None:
            return
        due = submission.created_at + warn_after
        if now < due:
            self._watched[submission.id] = submission
            heappush(self._due, (due, submission.id))

    def look_again(self, submission: Submission, at: float) -> None:
        """Nobody may hear of the run yet."""
        self._watched[submission.id] = submission
        heappush(self._due, (at, submission.id))

    def drop(self, id: str) -> None:
        """The run waits here no longer."""
        if self._watched.pop(id, None) is not None and len(self._due) > 2 * len(self._watched) + _SLACK:
            self._due = [entry for entry in self._due if entry[1] in self._watched]
            heapify(self._due)

    def deadline(self) -> float:
        """When the next one is due."""
        while self._due and self._due[0][1] not in self._watched:
            heappop(self._due)
        return self._due[0][0] if self._due else math.inf

    def take_due(self, now: float) -> list[Submission]:
        """Those that are due, the longest first; each only once."""
        due: list[Submission] = []
        while self.deadline() <= now:
            due.append(self._watched.pop(heappop(self._due)[1]))
        return sorted(due, key=lambda submission: submission.created_at)
