"""Warning of runs that have waited too long: at most one line a second for the engine, and one event per lane
and second, for the longest. Whoever gave an `on_wait` hears of each run.

Decides what is said; the supervisor knows who waits, and why.
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

_NAMED = 10
"""So many blockers are named in a warning."""

_QUEUED = frozenset({Status.QUEUED})


class WaitWarnings:
    """See the module's text."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._longest: dict[str, RunWaiting] = {}  # lane: the longest of those just reported
        self._said: dict[str, float] = {}  # lane: when its last event was
        self._count = 0  # runs that no warning has told of yet
        self._first: tuple[Submission, float, Wait, bool] | None = None  # the longest of them
        self._next_warning = -math.inf

    def add(self, submission: Submission, now: float, wait: Wait, count: int, *, draining: bool) -> None:
        """A run has waited too long, and is the longest of so many: call its `on_wait`."""
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
        """When there is something to `say`, at the latest."""
        return self._next_warning if self._first is not None else math.inf

    def say(self, now: float) -> None:
        """Tell of the longest in each lane, unless one was told of there within a second; and warn."""
        if self._first is not None and now >= self._next_warning:
            self._warn(*self._first)
            self._first, self._count, self._next_warning = None, 0, now + 1.0
        if self._longest:
            self._say_events(now)

    def _warn(self, submission: Submission, waited: float, wait: Wait, draining: bool) -> None:
        blockers = wait.blockers
        blocked_by = ", ".join(blockers[:_NAMED]) or ("draining" if draining else "a limit of 0")
        if len(blockers) > _NAMED:
            blocked_by += f" and {len(blockers) - _NAMED:,} more"
        others = f"; {self._count - 1:,} more waited too long" if self._count > 1 else ""
        logger.warning(
            "run %s of handle %r has waited %.1f s in lane %r, %d ahead of it, blocked by %s%s",
            submission.id,
            submission.handle,
            waited,
            submission.lane,
            wait.ahead,
            blocked_by,
            others,
        )

    def _say_events(self, now: float) -> None:
        self._said = {lane: at for lane, at in self._said.items() if now - at < 1.0}
        for lane, event in self._longest.items():
            if lane not in self._said:
                self._said[lane] = now
                self._effects.commit(Change((event,), run=event.run, expect=_QUEUED))
        self._longest.clear()

    def _call_on_wait(self, submission: Submission, waited: float, wait: Wait) -> None:
        on_wait = submission.on_wait
        assert on_wait is not None, "the caller has looked"

        async def call() -> None:
            try:
                result = on_wait(waited, wait.ahead, wait.blockers)
                if inspect.isawaitable(result):
                    await result
            except Exception:  # the caller's mistake must harm neither the run nor the engine
                logger.exception("on_wait of run %s failed", submission.id)

        self._effects.help(call)
