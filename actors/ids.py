"""Run ids: UUIDs of version 7 as hex. They sort by the time they were drawn, also within a millisecond."""

from __future__ import annotations

import random
from collections.abc import Callable


def uuid7_hex(clock: Callable[[], float], source: random.Random) -> Callable[[], str]:
    """A function that draws ids. Its time never goes back; within one millisecond a counter goes up."""
    last = 0
    counter = 0

    def draw() -> str:
        nonlocal last, counter
        now = int(clock() * 1000)
        if now > last:
            last, counter = now, source.getrandbits(11)
        else:
            counter += 1
            if counter == 0x1000:  # more than fit into this millisecond: go on in the next
                last, counter = last + 1, 0
        tail = 0b10 << 62 | source.getrandbits(62)
        return f"{last << 80 | 0x7 << 76 | counter << 64 | tail:032x}"

    return draw
