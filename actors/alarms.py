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
        self._wanted: dict[Actor, float] = {}
        self._heap: list[tuple[float, int, Actor]] = []  # also holds some that are wanted no longer
        self._numbers = count()  # equal times go in the order they were set
        self._sleep = trio.CancelScope()

    def set(self, actor: Actor, at: float) -> None:
        """Wake an actor at this time, in trio's time, and no other; `math.inf` for never."""
        if at == math.inf:
            self._wanted.pop(actor, None)
        else:
            self._wanted[actor] = at
            heappush(self._heap, (at, next(self._numbers), actor))
            if len(self._heap) > 2 * len(self._wanted) + _SLACK:
                self._heap = [entry for entry in self._heap if self._wanted.get(entry[2]) == entry[0]]
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
            at, _, actor = heappop(self._heap)
            if self._wanted.get(actor) == at:
                del self._wanted[actor]
                actor.mailbox.wake()
