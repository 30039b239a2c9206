"""Telling of runs that have waited too long: a warning for each, and at most one event per lane and second.

A part of the supervisor. Lanes and handles say which runs have waited past their `warn_after`.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable

import trio

from ..protocol.events import RunWaiting
from ..protocol.states import Status
from .change import Change
from .journal import Journal
from .messages import LongWait

logger = logging.getLogger("greenroom")

_QUEUED = frozenset({Status.QUEUED})


class LongWaits:
    """See the module's text. `spawn` starts a task beside the actors."""

    def __init__(self, journal: Journal, spawn: Callable[[Callable[[], Awaitable[object]]], None]) -> None:
        self._journal = journal
        self._spawn = spawn
        self._longest: dict[str, RunWaiting] = {}  # lane: the longest of those just reported
        self._said: dict[str, float] = {}  # lane: when its last event was

    def warn(self, message: LongWait, blockers: list[str], *, draining: bool) -> None:
        """Warn of one run, and call its `on_wait`."""
        submission, waited, ahead = message.submission, message.waited, message.ahead
        logger.warning(
            "run %s of handle %r has waited %.1f s in lane %r, %d ahead of it, blocked by %s",
            submission.id,
            submission.handle,
            waited,
            submission.lane,
            ahead,
            ", ".join(blockers) or ("draining" if draining else "a limit of 0"),
        )
        if submission.on_wait is not None:
            self._call_on_wait(message, blockers)
        longest = self._longest.get(submission.lane)
        if longest is None or longest.waited < waited:
            self._longest[submission.lane] = RunWaiting(
                by="engine", waited=waited, ahead=ahead, blockers=blockers, **submission.about()
            )

    def say(self) -> None:
        """Tell of the longest in each lane, unless one was told of there within a second."""
        if not self._longest:
            return
        now = trio.current_time()
        self._said = {lane: at for lane, at in self._said.items() if now - at < 1.0}
        for lane, event in self._longest.items():
            if lane not in self._said:
                self._said[lane] = now
                self._journal.tell(Change((event,), run=event.run, expect=_QUEUED))
        self._longest.clear()

    def _call_on_wait(self, message: LongWait, blockers: list[str]) -> None:
        submission = message.submission
        on_wait = submission.on_wait
        assert on_wait is not None, "the caller has looked"

        async def call() -> None:
            try:
                result = on_wait(message.waited, message.ahead, blockers)
                if inspect.isawaitable(result):
                    await result
            except Exception:  # the caller's mistake must harm neither the run nor the engine
                logger.exception("on_wait of run %s failed", submission.id)

        self._spawn(call)
