"""The engine's one timer: it wakes actors at the time each has asked for.

A run has half a dozen deadlines, nearly all of which never come. Kept in one heap, setting and dropping one
costs next to nothing, and trio itself sees a single deadline.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from .actor import Actor

_SLACK = 64


class Alarms:
    """When to wake which actor. `run` it in a task of its own."""

    def __init__(self) -> None:
        self._numbers_of: dict[Actor, int] = {}  # of the alarms that are wanted
        self._wanted: dict[int, Actor] = {}
        # The heap also holds some that are wanted no longer; by number, so that it keeps no actor alive.
        self._heap: list[tuple[float, int]] = []
        self._numbers = count()  # equal times go in the order they were set
        self._sleep = trio.CancelScope()

    def set(self, actor: Actor, at: float) -> None:
        """Wake an actor at this time, in trio's time, and no other; `math.inf` for never."""
        before = self._numbers_of.pop(actor, None)
        if before is not None:
            del self._wanted[before]
        if at != math.inf:
            number = self._numbers_of[actor] = next(self._numbers)
            self._wanted[number] = actor
            heappush(self._heap, (at, number))
            if len(self._heap) > 2 * len(self._wanted) + _SLACK:
                self._heap = [entry for entry in self._heap if entry[1] in self._wanted]
                heapify(self._heap)
            if at < self._sleep.deadline:
                self._sleep.deadline = at

    async def run(self) -> None:
        """Wake actors until cancelled."""
        while True:
            self._wake_due()
            self._sleep = trio.CancelScope(deadline=self._heap[0][0] if self._heap else math.inf)
            with self._sleep:
                await trio.sleep_forever()

    def _wake_due(self) -> None:
        now = trio.current_time()
        while self._heap and self._heap[0][0] <= now:
            actor = self._wanted.pop(heappop(self._heap)[1], None)
            if actor is not None:
                del self._numbers_of[actor]
                actor.channel.wake()
