"""Runs that wait too long: the supervisor's part that finds them and the reasons."""

from __future__ import annotations

from ..effects import Effects
from ..messages import Phase, Submission
from .handles import Handles
from .order import Order, Wait
from .wait_warnings import WaitWarnings
from .wait_watch import WaitWatch

_CHECK_AGAIN_AFTER = 1.0
"""Seconds after which a run that waits too long, but is not committed yet, is checked again."""


class LongWaits:
    """See the module's docstring."""

    def __init__(self, effects: Effects, order: Order, handles: Handles) -> None:
        self._order = order
        self._handles = handles
        self._warnings = WaitWarnings(effects)
        self._watch = WaitWatch()
        self.add = self._watch.add
        self.drop = self._watch.drop

    def deadline(self) -> float:
        """When `find` and `emit` must be called."""
        return min(self._warnings.deadline(), self._watch.deadline())

    def emit(self, now: float) -> None:
        """Log a warning and emit the events that are due."""
        self._warnings.emit(now)

    def find(self, now: float, *, draining: bool) -> None:
        """Warn of the longest wait in each lane and handle, and call the `on_wait` of the other runs."""
        groups: dict[tuple[Phase, str], list[Submission]] = {}
        for submission in self._watch.take_due(now):
            if not submission.committed:
                self._watch.watch_again(submission, now + _CHECK_AGAIN_AFTER)
                continue
            where = submission.lane if submission.phase is Phase.QUEUED else submission.handle
            groups.setdefault((submission.phase, where), []).append(submission)
        for (phase, where), waiting in groups.items():
            ahead: dict[str, int] = {}
            if phase is Phase.WAITING:
                ahead = {id: position for position, id in enumerate(self._handles.waiting(where))}
            for number, submission in enumerate(waiting):
                if number and submission.on_wait is None:
                    continue
                count = 0 if number else len(waiting)
                if not self._warnings.reports(submission, now):
                    self._warnings.count(count)
                    continue
                wait = self._wait_of(submission, ahead, now)
                if wait is not None:
                    self._warnings.add(submission, now, wait, count, draining=draining)

    def _wait_of(self, submission: Submission, ahead: dict[str, int], now: float) -> Wait | None:
        if submission.phase is Phase.QUEUED:
            return self._order.wait_of(submission.id, submission.lane, now)
        if submission.id not in ahead:
            return None  # it was cancelled when it was next, and is about to end
        holder = self._handles.taken_by(submission.handle)
        return Wait(ahead[submission.id], [] if holder is None else [holder])
