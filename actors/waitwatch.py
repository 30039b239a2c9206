"""Which queued runs have waited for longer than their `warn_after`: kept by lanes and handles."""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush

from .messages import Submission


class WaitWatch:
    """Runs by the time at which somebody should be told that they still wait."""

    def __init__(self) -> None:
        self._due: list[tuple[float, str, Submission]] = []

    def add(self, submission: Submission, now: float) -> None:
        """Watch a run. One whose time has passed was told of where it waited before."""
        due = submission.created_at + submission.warn_after
        if now < due < math.inf:
            heappush(self._due, (due, submission.id, submission))

    def deadline(self) -> float:
        """When the next one is due."""
        return self._due[0][0] if self._due else math.inf

    def take_due(self, now: float, waits: Callable[[str], bool]) -> list[Submission]:
        """Those that are due and still wait, the longest first; each only once."""
        due: list[Submission] = []
        while self._due and (self._due[0][0] <= now or not waits(self._due[0][1])):
            _, id, submission = heappop(self._due)
            if waits(id):
                due.append(submission)
        return sorted(due, key=lambda submission: submission.created_at)
