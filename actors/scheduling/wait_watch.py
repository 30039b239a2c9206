"""The queued runs that have waited longer than their `warn_after`; belongs to the supervisor."""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush

from ..messages import Submission

_SLACK = 64


class WaitWatch:
    """Waiting runs, by the time at which a warning is due."""

    def __init__(self) -> None:
        self._watched: dict[str, Submission] = {}
        self._due: list[tuple[float, str]] = []  # includes some that no longer wait

    def add(self, submission: Submission, now: float) -> None:
        """Watch a run, unless its time has passed: then it was reported where it waited before."""
        warn_after = submission.terms.warn_after
        if warn_after is None:
            return
        due = submission.waits_since + warn_after
        if now < due:
            self._watched[submission.id] = submission
            heappush(self._due, (due, submission.id))

    def watch_again(self, submission: Submission, at: float) -> None:
        """Watch a run again: it is not committed, so it cannot be reported yet."""
        self._watched[submission.id] = submission
        heappush(self._due, (at, submission.id))

    def drop(self, id: str) -> None:
        """Stop watching a run."""
        if self._watched.pop(id, None) is not None and len(self._due) > 2 * len(self._watched) + _SLACK:
            self._due = [entry for entry in self._due if entry[1] in self._watched]
            heapify(self._due)

    def deadline(self) -> float:
        """When the next run is due."""
        while self._due and self._due[0][1] not in self._watched:
            heappop(self._due)
        return self._due[0][0] if self._due else math.inf

    def take_due(self, now: float) -> list[Submission]:
        """Take the runs that are due, the longest wait first."""
        due: list[Submission] = []
        while self.deadline() <= now:
            due.append(self._watched.pop(heappop(self._due)[1]))
        return sorted(due, key=lambda submission: submission.waits_since)
