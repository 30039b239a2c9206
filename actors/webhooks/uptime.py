"""For how long deliveries have been attempted without an interruption.

While the engine is stopped, and in the time that a clock which is set forward leaves out, no attempt is made.
So a day that has passed since the first failure of a webhook says little just after such an interruption.
This module does no I/O.
"""

from __future__ import annotations

_JUMP = 60.0
"""Seconds by which a clock is set; smaller differences to the steady time are corrections of the clock."""


class Uptime:
    """The time since the engine started, or since its clock was set. Both are in seconds: `now` is the time
    of day, and `steady` a time that no one can set."""

    def __init__(self, now: float, steady: float) -> None:
        self._began = steady
        self._offset = now - steady

    def seconds(self, now: float, steady: float) -> float:
        """Return the seconds without an interruption."""
        offset = now - steady
        if abs(offset - self._offset) > _JUMP:
            self._began = steady
        self._offset = offset
        return steady - self._began
