"""Run ids: UUIDs of version 7 in hex. They sort by the time of their creation, also within a millisecond."""

from __future__ import annotations

import random
from collections.abc import Callable


class Uuid7:
    """Generates ids. Their time never decreases; within one millisecond, a counter increases."""

    def __init__(self, clock: Callable[[], float], source: random.Random) -> None:
        self._clock = clock
        self._source = source
        self._last = 0
        self._counter = 0

    def __call__(self) -> str:
        now = int(self._clock() * 1000)
        if now > self._last:
            self._last, self._counter = now, self._source.getrandbits(11)
        else:
            self._counter += 1
            if self._counter == 0x1000:  # the counter is full: continue in the next millisecond
                self._last, self._counter = self._last + 1, 0
        tail = 0b10 << 62 | self._source.getrandbits(62)
        return f"{self._last << 80 | 0x7 << 76 | self._counter << 64 | tail:032x}"

    def continue_after(self, id: str) -> None:
        """Generate only ids that sort after `id`, even if the clock was set back since. An id that is not a
        UUID of version 7 has no effect."""
        if len(id) != 32 or id[12] != "7":
            return
        try:
            drawn = int(id[:12], 16)
        except ValueError:
            return
        if drawn >= self._last:
            self._last, self._counter = drawn + 1, 0


def uuid7_hex(clock: Callable[[], float], source: random.Random) -> Callable[[], str]:
    """Return a function that generates ids."""
    return Uuid7(clock, source)
