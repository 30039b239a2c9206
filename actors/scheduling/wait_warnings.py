"""Warnings of runs that wait too long.

At most one log line a second for the engine, and one event per lane and second, for the longest wait.
`on_wait` is called for each run that has one. The supervisor finds the runs and the reasons; this module
reports them.
"""

from __future__ import annotations

import inspect
import logging
import math
from functools import partial

from ...protocol.events import RunWaiting
from ...protocol.states import Status
from ...protocol.submission import OnWait
from ..effects import Effects
from ..journal.change import Change
from ..messages import Submission
from .order import Wait

logger = logging.getLogger("greenroom")

_MAX_LISTED = 10
"""The maximum number of blockers that a warning lists."""

_QUEUED = frozenset({Status.QUEUED})


class WaitWarnings:
    """See the module's docstring."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._longest: dict[str, RunWaiting] = {}  # lane: the longest wait since the last `emit`
        self._last_event: dict[str, float] = {}  # lane: the time of its last event
        self._count = 0  # runs not logged yet
        self._first: tuple[Submission, float, Wait, bool] | None = None  # the longest wait of these
        self._next_warning = -math.inf

    def reports(self, submission: Submission, now: float) -> bool:
        """Whether a run that waits too long will be reported by itself. Otherwise, `count` is enough, and the
        reason need not be found out."""
        if submission.on_wait is not None or self._first is None:
            return True
        last_event = self._last_event.get(submission.lane, -math.inf)
        return submission.created_at < self._first[0].created_at or now - last_event >= 1.0

    def count(self, count: int) -> None:
        """Count runs that wait too long, and are not reported by themselves."""
        self._count += count

    def add(self, submission: Submission, now: float, wait: Wait, count: int, *, draining: bool) -> None:
        """Add a run that waits too long, the longest of `count` runs, and call its `on_wait`."""
        waited = now - submission.waits_since
        self._count += count
        if self._first is None or submission.waits_since < self._first[0].waits_since:
            self._first = (submission, waited, wait, draining)
        if submission.on_wait is not None:
            self._call_on_wait(submission, waited, wait)
        longest = self._longest.get(submission.lane)
        if longest is None or longest.waited < waited:
            self._longest[submission.lane] = RunWaiting(
                by="engine",
                waited=waited,
                ahead=wait.ahead,
                blockers=wait.blockers,
                reason=wait.reason,
                **submission.about(),
            )

    def deadline(self) -> float:
        """When `emit` must be called."""
        return self._next_warning if self._first is not None else math.inf

    def emit(self, now: float) -> None:
        """Log a warning and emit the events that are due."""
        if self._first is not None and now >= self._next_warning:
            self._warn(*self._first)
            self._first, self._count, self._next_warning = None, 0, now + 1.0
        if self._longest:
            self._emit_events(now)

    def _warn(self, submission: Submission, waited: float, wait: Wait, draining: bool) -> None:
        why = _why(wait, draining=draining)
        others = f"; {self._count - 1:,} more wait too long" if self._count > 1 else ""
        logger.warning(
            "run %s of handle %r has waited %.1f s in lane %r: %d ahead, %s%s",
            submission.id,
            submission.handle,
            waited,
            submission.lane,
            wait.ahead,
            why,
            others,
        )

    def _emit_events(self, now: float) -> None:
        self._last_event = {lane: at for lane, at in self._last_event.items() if now - at < 1.0}
        for lane, event in self._longest.items():
            if lane not in self._last_event:
                self._last_event[lane] = now
                self._effects.commit(Change((event,), run=event.run, expect=_QUEUED))
        self._longest.clear()

    def _call_on_wait(self, submission: Submission, waited: float, wait: Wait) -> None:
        on_wait = submission.on_wait
        assert on_wait is not None, "the caller has checked it"
        self._effects.help(partial(call_on_wait, on_wait, submission.id, waited, wait.ahead, wait.blockers))


async def call_on_wait(on_wait: OnWait, run: str, waited: float, ahead: int, blockers: list[str]) -> None:
    """Call the `on_wait` of a run. An exception in it is logged, and affects nothing else."""
    try:
        result = on_wait(waited, ahead, blockers)
        if inspect.isawaitable(result):
            await result
    except Exception:
        logger.exception("on_wait of run %s failed", run)


def _why(wait: Wait, *, draining: bool) -> str:
    blockers = wait.blockers
    listed = ", ".join(blockers[:_MAX_LISTED])
    if len(blockers) > _MAX_LISTED:
        listed += f" and {len(blockers) - _MAX_LISTED:,} more"
    if wait.reason is not None:
        return wait.reason + (f"; blocked by {listed}" if listed else "")
    return "blocked by " + (listed or ("draining" if draining else "a limit of 0"))
