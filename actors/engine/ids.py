"""Run ids: UUIDs of version 7 as hex. They sort by the time they were drawn, also within a millisecond."""

from __future__ import annotations

import random
from collections.abc import Callable


class Uuid7:
    """Draws ids. Its time never goes back; within one millisecond a counter goes up."""

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
            if self._counter == 0x1000:  # more than fit into this millisecond: go on in the next
                self._last, self._counter = self._last + 1, 0
        tail = 0b10 << 62 | self._source.getrandbits(62)
        return f"{self._last << 80 | 0x7 << 76 | self._counter << 64 | tail:032x}"

    def go_on_after(self, id: str) -> None:
        """Draw only ids that sort after this one, also if the clock was set back since it was drawn. One of
        another kind makes no difference."""
        if len(id) != 32 or id[12] != "7":
            return
        try:
            drawn = int(id[:12], 16)
        except ValueError:
            return
        if drawn >= self._last:
            self._last, self._counter = drawn + 1, 0


def uuid7_hex(clock: Callable[[], float], source: random.Random) -> Callable[[], str]:
    """A function that draws ids."""
    return Uuid7(clock, source)
