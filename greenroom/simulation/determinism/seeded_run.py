"""What makes a run of trio the same each time: a clock that moves on by itself, and nothing left to chance.

`schedule.py` decides which task goes next. Here stand the other places where trio's behaviour would depend on
addresses, on the machine's clock, or on when Python happens to look for garbage.
"""

from __future__ import annotations

import gc
import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import trio
from trio._core import _run

_MOST_LOOKS = 20_000_000
"""At the clock, in one instant: each step of a task takes one. Whoever needs more never rests."""

_COLLECTED_EVERY = 200_000
"""Looks at the clock between two collections of garbage."""


class SimulatedClock(trio.abc.Clock):
    """A clock that stands still while any task has something to do, and then jumps to the next deadline.

    `before_jump` is called when everything rests and the clock is about to move, `stuck` when there is no
    deadline to move to, or when tasks never rest. After `stuck` was called, something must be able to go on.
    """

    def __init__(self, before_jump: Callable[[], None], stuck: Callable[[str], None]) -> None:
        self.now = 0.0
        self._before_jump = before_jump
        self._stuck = stuck
        self._looks = 0
        self._looked = 0

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        self._looks += 1
        if self._looks >= _COLLECTED_EVERY:
            self._looked += self._looks
            self._looks = 0
            gc.collect(1)
            if self._looked >= _MOST_LOOKS:
                self._looked = 0
                self._stuck("there is always some task that goes on, so that the clock can't move")
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Asked by trio's loop when no task can go on."""
        runner = _run.GLOBAL_RUN_CONTEXT.runner
        if runner.waiting_for_idle or runner.entry_queue.size():
            return math.inf  # somebody goes on without the clock: trio's own end, or Ctrl-C
        if deadline > self.now:
            if deadline == math.inf:
                self._stuck("everything waits for what never comes")
            else:
                self._before_jump()
                if not runner.runq:
                    self._looked = 0
                    self.now = deadline
        return 0.0


@contextmanager
def determined(seed: str) -> Iterator[None]:
    """Take chance out of trio and of the garbage collector while the block lasts."""
    dice = _run._r.getstate()
    collects = gc.isenabled()
    numbers = itertools.count()
    gc.disable()  # what finalizers do would happen at any time; the clock collects in its own rhythm
    _run._r.seed(seed)
    # Of two deadlines at the same time, the one set first comes first, not the one at the lower address.
    vars(_run)["id"] = lambda thing: next(numbers)
    try:
        yield
    finally:
        del vars(_run)["id"]
        _run._r.setstate(dice)
        if collects:
            gc.enable()


def derived(seed: int | str, *names: object) -> Random:
    """A source of randomness of its own for each name, so that one doesn't disturb the other."""
    return Random("/".join(map(str, (seed, *names))))
