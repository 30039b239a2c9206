"""Detects that the machine was suspended; trio's clock does not count that time on Linux.

Without a correction, every wait for a time of day would end too late: deadlines, sleeps, retries, interrupts.
The journal checks at each batch, and the runs receive the difference. Executing time (`run_timeout`) is not
corrected, because nothing executed.
"""

from __future__ import annotations

import time

import msgspec

_NOTICEABLE = 0.5


class Suspended(msgspec.Struct):
    """To a run's actor: the machine was suspended for this time, so every wall-clock deadline is nearer."""

    seconds: float


def suspended_seconds() -> float:
    """Seconds for which the machine was suspended since boot; 0 where the system does not report it."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


class Suspends:
    """Measures how long the machine was suspended."""

    def __init__(self) -> None:
        self._known = suspended_seconds()

    def since_last_look(self) -> float:
        """Seconds of suspension since the last call; 0 if they are too few to matter."""
        now = suspended_seconds()
        seconds = now - self._known
        if seconds < _NOTICEABLE:
            return 0.0
        self._known = now
        return seconds
