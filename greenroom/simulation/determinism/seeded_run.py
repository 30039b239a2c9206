"""A repeatable trio run: a clock that advances by itself, and no other source of chance.

`scheduler.py` decides which task runs next. This module covers the other places where trio's behaviour would
depend on addresses, on the machine's clock, or on the time of a garbage collection.
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

from ...actors.tracing import untraced

_MOST_LOOKS = 20_000_000
"""The limit of reads of the clock in one instant, about one for each step of a task. Tasks that need more are
taken for a loop that never waits."""

_COLLECTED_EVERY = 200_000
"""Reads of the clock between two garbage collections."""


class SimulatedClock(trio.abc.Clock):
    """A clock that stops while any task is runnable, and then jumps to the next deadline.

    It calls `before_jump` when no task is runnable and the clock is about to jump, and `stuck` when there is
    no deadline to jump to, or when the tasks never stop being runnable. `stuck` must make some task runnable.
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
                self._stuck("some task is always runnable, so the clock cannot advance")
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Called by trio's loop when no task is runnable."""
        runner = _run.GLOBAL_RUN_CONTEXT.runner
        if runner.waiting_for_idle or runner.entry_queue.size():
            return math.inf  # a task continues without the clock: at the end of the trio run, or after Ctrl-C
        if deadline > self.now:
            if deadline == math.inf:
                self._stuck("deadlock: every task waits, and none has a deadline")
            else:
                self._before_jump()
                if not runner.runq:
                    self._looked = 0
                    self.now = deadline
        return 0.0


@contextmanager
def determined(seed: str) -> Iterator[None]:
    """Make trio and the garbage collector deterministic while the block lasts; nothing is traced."""
    dice = _run._r.getstate()
    collects = gc.isenabled()
    numbers = itertools.count()
    gc.disable()  # finalizers would run at any time; the clock collects at regular intervals instead
    _run._r.seed(seed)
    # Of two equal deadlines, the one that was set first expires first, not the one at the lower address.
    vars(_run)["id"] = lambda thing: next(numbers)
    try:
        with untraced():
            yield
    finally:
        del vars(_run)["id"]
        _run._r.setstate(dice)
        if collects:
            gc.enable()


def derived(seed: int | str, *names: object) -> Random:
    """A separate source of random numbers for each name, so that they do not influence each other."""
    return Random("/".join(map(str, (seed, *names))))
