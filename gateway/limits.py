"""Limits that need to count: how fast a connection may ask, and how much of it may be on its way."""

from __future__ import annotations

import trio


class Rate:
    """So many per second, and so many at once: a bucket that fills at a steady pace."""

    __slots__ = ("_at", "_left")

    def __init__(self, burst: int) -> None:
        self._left = float(burst)
        self._at = trio.current_time()

    def take(self, rate: float, burst: int) -> float:
        """Take one. Returns 0, or after how many seconds there will be one."""
        now = trio.current_time()
        self._left = min(float(burst), self._left + (now - self._at) * rate)
        self._at = now
        if self._left >= 1.0:
            self._left -= 1.0
            return 0.0
        return (1.0 - self._left) / rate if rate > 0 else 1.0

    def spend(self, rate: float, count: int) -> float:
        """Take so many, also more than there are; at most as many as fill a second gather. Returns after how
        many seconds there would have been enough."""
        now = trio.current_time()
        self._left = min(rate, self._left + (now - self._at) * rate) - count
        self._at = now
        return 0.0 if self._left >= 0 else -self._left / rate if rate > 0 else 1.0


class Credit:
    """What may be on its way at a time. Whoever wants more than is left waits until something has arrived."""

    __slots__ = ("_enough", "left", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self.left = total
        self._enough: trio.Event | None = None

    async def spend(self, cost: int) -> int:
        """Wait until there is enough left, for one waiter at a time. Returns the cost, to be given back."""
        while self.left < cost:
            self._enough = trio.Event()
            await self._enough.wait()
        self.left -= cost
        return cost

    def give_back(self, cost: int) -> None:
        self.left += cost
        if self._enough is not None:
            self._enough.set()
            self._enough = None
