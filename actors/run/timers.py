"""The deadlines of one run, and the clock of its executing time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Literal

import msgspec

Timer = Literal[
    "queue_timeout", "run_timeout", "deadline", "cancel_scope", "abandon", "retry", "wake", "detach"
]
"""What a run may have to do when a time has come. The run's actor says what each of them means."""


class Timers(msgspec.Struct, gc=False):
    """What to do when, in trio's time."""

    _due: dict[Timer, float] = {}

    def __len__(self) -> int:
        return len(self._due)

    def set(self, timer: Timer, at: float) -> None:
        """Do this at that time; what was set for it before is forgotten."""
        if at != math.inf:
            self._due[timer] = at

    def drop(self, timer: Timer) -> None:
        """Don't do it."""
        self._due.pop(timer, None)

    def has(self, timer: Timer) -> bool:
        """Whether it is set."""
        return timer in self._due

    def clear(self) -> None:
        """Do nothing of all this."""
        self._due.clear()

    def advance(self, seconds: float, timers: Iterable[Timer]) -> None:
        """These are due so much earlier."""
        for timer in timers:
            if timer in self._due:
                self._due[timer] -= seconds

    def left(self, timer: Timer, now: float) -> float:
        """Seconds until it is due."""
        return self._due.get(timer, math.inf) - now

    def next(self) -> float:
        """When the first is due."""
        return min(self._due.values()) if self._due else math.inf

    def take_due(self, now: float) -> Iterator[Timer]:
        """What is due, the earliest first. Each is taken out when its turn comes, so one that the caller
        drops while it acts on another doesn't come any more."""
        for timer, at in sorted(self._due.items(), key=itemgetter(1)):
            if at <= now and self._due.pop(timer, None) is not None:
                yield timer


class RunClock(msgspec.Struct, gc=False):
    """Seconds of executing in this attempt; waits without a slot don't count."""

    _until_now: float = 0.0
    _since: float | None = None

    def start(self, now: float) -> float:
        """Go on; returns the seconds counted so far."""
        self._since = now
        return self._until_now

    def stop(self, now: float) -> None:
        """Stand still."""
        if self._since is not None:
            self._until_now += now - self._since
            self._since = None

    def reset(self) -> None:
        """Begin anew, for another attempt."""
        self._until_now = 0.0
        self._since = None
