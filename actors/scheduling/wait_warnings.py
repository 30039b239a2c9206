"""Warnings of runs that wait too long.

At most one log line a second for the engine, and one event per lane and second, for the longest wait.
`on_wait` is called for each run that has one. The supervisor finds the runs and the reasons; this module
reports them.
"""

from __future__ import annotations

import inspect
import logging
import math

from ...protocol.events import RunWaiting
from ...protocol.states import Status
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

    def add(self, submission: Submission, now: float, wait: Wait, count: int, *, draining: bool) -> None:
        """Add a run that waits too long, the longest of `count` runs, and call its `on_wait`."""
        waited = now - submission.created_at
        self._count += count
        if self._first is None or submission.created_at < self._first[0].created_at:
            self._first = (submission, waited, wait, draining)
        if submission.on_wait is not None:
            self._call_on_wait(submission, waited, wait)
        longest = self._longest.get(submission.lane)
        if longest is None or longest.waited < waited:
            self._longest[submission.lane] = RunWaiting(
                by="engine", waited=waited, ahead=wait.ahead, blockers=wait.blockers, **submission.about()
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
        blockers = wait.blockers
        blocked_by = ", ".join(blockers[:_MAX_LISTED]) or ("draining" if draining else "a limit of 0")
        if len(blockers) > _MAX_LISTED:
            blocked_by += f" and {len(blockers) - _MAX_LISTED:,} more"
        others = f"; {self._count - 1:,} more wait too long" if self._count > 1 else ""
        logger.warning(
            "run %s of handle %r has waited %.1f s in lane %r: %d ahead, blocked by %s%s",
            submission.id,
            submission.handle,
            waited,
            submission.lane,
            wait.ahead,
            blocked_by,
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

        async def call() -> None:
            try:
                result = on_wait(waited, wait.ahead, wait.blockers)
                if inspect.isawaitable(result):
                    await result
            except Exception:  # an error in it must affect neither the run nor the engine
                logger.exception("on_wait of run %s failed", submission.id)

        self._effects.help(call)
