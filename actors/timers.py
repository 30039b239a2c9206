"""The deadlines of one run, and the clock of its executing time."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import trio

Action = Callable[[], Awaitable[None]]


class Timers:
    """What to do when, in trio's time."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due: dict[Action, float] = {}

    def __len__(self) -> int:
        return len(self._due)

    def set(self, action: Action, at: float) -> None:
        """Do this at that time; what was set for it before is forgotten."""
        if at != math.inf:
            self._due[action] = at

    def drop(self, action: Action) -> None:
        """Don't do it."""
        self._due.pop(action, None)

    def clear(self) -> None:
        """Do nothing of all this."""
        self._due.clear()

    def left(self, action: Action) -> float:
        """Seconds until it is done."""
        return self._due.get(action, math.inf) - trio.current_time()

    def next(self) -> float:
        """When the first is due."""
        return min(self._due.values(), default=math.inf)

    async def act(self, now: float) -> None:
        """Do what is due, the earliest first. An action may clear what comes after it."""
        for action, at in sorted(self._due.items(), key=lambda item: item[1]):
            if at <= now and self._due.pop(action, None) is not None:
                await action()


class RunClock:
    """Seconds of executing in this attempt; waits without a slot don't count."""

    __slots__ = ("_since", "_until_now")

    def __init__(self) -> None:
        self._until_now = 0.0
        self._since: float | None = None

    def start(self) -> float:
        """Go on; returns the seconds counted so far."""
        self._since = trio.current_time()
        return self._until_now

    def stop(self) -> None:
        """Stand still."""
        if self._since is not None:
            self._until_now += trio.current_time() - self._since
            self._since = None

    def reset(self) -> None:
        """Begin anew, for another attempt."""
        self._until_now = 0.0
        self._since = None
