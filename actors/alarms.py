"""The engine's timer: it wakes each actor at the time that the actor has set.

A run can have several deadlines, nearly all of which are never reached. In one heap, setting and removing a
deadline costs very little, and trio has only one deadline to manage.
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
    """When to wake which actor. Call `run` in a separate task."""

    def __init__(self) -> None:
        self.now = trio.lowlevel.current_clock().current_time
        """Returns trio's time, with fewer calls than `trio.current_time`."""
        self._numbers_of: dict[Actor, int] = {}  # the number of each actor's alarm
        self._active: dict[int, Actor] = {}
        # The heap includes outdated alarms; it contains numbers, so that it keeps no actor alive.
        self._heap: list[tuple[float, int]] = []
        self._numbers = count()  # alarms for the same time keep the order in which they were set
        self._sleep = trio.CancelScope()

    def set(self, actor: Actor, at: float) -> None:
        """Set an actor's only alarm, in trio's time; `math.inf` removes it."""
        before = self._numbers_of.pop(actor, None)
        if before is not None:
            del self._active[before]
        if at != math.inf:
            number = self._numbers_of[actor] = next(self._numbers)
            self._active[number] = actor
            heappush(self._heap, (at, number))
            if len(self._heap) > 2 * len(self._active) + _SLACK:
                self._heap = [entry for entry in self._heap if entry[1] in self._active]
                heapify(self._heap)
            if at < self._sleep.deadline:
                self._sleep.deadline = at

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Wake actors until cancelled."""
        while True:
            self._wake_due()
            self._sleep = trio.CancelScope(deadline=self._heap[0][0] if self._heap else math.inf)
            with self._sleep:
                await trio.sleep_forever()

    def _wake_due(self) -> None:
        now = self.now()
        while self._heap and self._heap[0][0] <= now:
            actor = self._active.pop(heappop(self._heap)[1], None)
            if actor is not None:
                del self._numbers_of[actor]
                actor.channel.wake()
