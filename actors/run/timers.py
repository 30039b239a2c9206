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
"""The timers of a run. The run's machine defines what happens when each is due."""


class Timers(msgspec.Struct, gc=False):
    """Which timer is due when, in trio's time."""

    _due: dict[Timer, float] = {}

    def __len__(self) -> int:
        return len(self._due)

    def set(self, timer: Timer, at: float) -> None:
        """Set a timer, or move it."""
        if at != math.inf:
            self._due[timer] = at

    def drop(self, timer: Timer) -> None:
        """Remove a timer, if it is set."""
        self._due.pop(timer, None)

    def has(self, timer: Timer) -> bool:
        """Whether a timer is set."""
        return timer in self._due

    def clear(self) -> None:
        """Remove all timers."""
        self._due.clear()

    def advance(self, seconds: float, timers: Iterable[Timer]) -> None:
        """Move these timers `seconds` earlier."""
        for timer in timers:
            if timer in self._due:
                self._due[timer] -= seconds

    def left(self, timer: Timer, now: float) -> float:
        """Seconds until a timer is due."""
        return self._due.get(timer, math.inf) - now

    def next(self) -> float:
        """When the first timer is due."""
        return min(self._due.values()) if self._due else math.inf

    def take_due(self, now: float) -> Iterator[Timer]:
        """The timers that are due, earliest first. Each is removed when it is yielded, so a timer that the
        caller drops in the meantime is not yielded."""
        for timer, at in sorted(self._due.items(), key=itemgetter(1)):
            if at <= now and self._due.pop(timer, None) is not None:
                yield timer


class RunClock(msgspec.Struct, gc=False):
    """The executing time of this attempt, in seconds; waits without a slot do not count."""

    _until_now: float = 0.0
    _since: float | None = None

    def start(self, now: float) -> float:
        """Start or resume counting; returns the seconds counted so far."""
        self._since = now
        return self._until_now

    def stop(self, now: float) -> None:
        """Stop counting."""
        if self._since is not None:
            self._until_now += now - self._since
            self._since = None

    def reset(self) -> None:
        """Reset to zero, for another attempt."""
        self._until_now = 0.0
        self._since = None
