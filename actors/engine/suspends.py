"""The time that the machine was suspended, which trio's clock doesn't count on Linux.

Whoever waits for a time of day would come late by it: deadlines, sleeps, retries, interrupts. The journal
looks whenever it does something, and the runs are told. Executing time (`run_timeout`) is left as it is, for
nothing executed.
"""

from __future__ import annotations

import time

import msgspec

_NOTICEABLE = 0.5


class Suspended(msgspec.Struct):
    """To a run's actor: the machine was suspended for so long, which brings everything nearer."""

    seconds: float


def suspended_seconds() -> float:
    """For how long the machine was suspended since it was started; 0 where that isn't known."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


class Suspends:
    """Notices that the machine was suspended."""

    def __init__(self) -> None:
        self._known = suspended_seconds()

    def since_last_look(self) -> float:
        """Seconds of suspension since the last look; 0 for what is not worth a word."""
        now = suspended_seconds()
        seconds = now - self._known
        if seconds < _NOTICEABLE:
            return 0.0
        self._known = now
        return seconds
