"""Limits that count: the request rate of a connection, and what it has in flight."""

from __future__ import annotations

from typing import Any

import trio

from ..protocol.commands import SubmitMany
from ..protocol.errors import RateLimited
from .config import Limits


class Rate:
    """A token bucket: a rate per second and a burst size."""

    __slots__ = ("_at", "_left")

    def __init__(self, burst: int) -> None:
        self._left = float(burst)
        self._at = trio.current_time()

    def take(self, rate: float, burst: int) -> float:
        """Take one. Returns 0, or the number of seconds until one is available."""
        now = trio.current_time()
        self._left = min(float(burst), self._left + (now - self._at) * rate)
        self._at = now
        if self._left >= 1.0:
            self._left -= 1.0
            return 0.0
        return (1.0 - self._left) / rate if rate > 0 else 1.0

    def take_more(self, rate: float, burst: int, count: int) -> float:
        """Take `count` more after `take`. If `count` is more than a full bucket has, a full one is enough,
        and it owes the rest. Returns 0, or the number of seconds until they can be taken."""
        needed = min(count, burst - 1)
        if self._left >= needed:
            self._left -= count
            return 0.0
        return (needed - self._left) / rate if rate > 0 else 1.0

    def spend(self, rate: float, count: int) -> float:
        """Take `count`, even if fewer are available. The bucket gathers at most what one second adds.

        Returns 0, or the number of seconds until `count` would have been available.
        """
        now = trio.current_time()
        self._left = min(rate, self._left + (now - self._at) * rate) - count
        self._at = now
        return 0.0 if self._left >= 0 else -self._left / rate if rate > 0 else 1.0


class Credit:
    """A budget for what is in flight. A caller that needs more than remains waits for a release."""

    __slots__ = ("_enough", "left", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self.left = total
        self._enough: trio.Event | None = None

    async def spend(self, cost: int) -> int:
        """Wait until enough remains, and take it. One caller at a time can wait. Returns the cost, to be
        released with `give_back`."""
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


def check_rate_of_runs(rate: Rate, limits: Limits, command: Any) -> None:
    """Count the runs of a batch as that many messages, one of which is already counted. Raises
    `RateLimited`."""
    if not isinstance(command, SubmitMany) or len(command.runs) < 2:
        return
    after = rate.take_more(limits.rate, limits.burst, len(command.runs) - 1)
    if after:
        raise RateLimited(
            f"rate limit exceeded: at most {limits.rate:g} messages per second, and each run of a batch "
            f"counts (got {len(command.runs)}): retry in {after:.3g} seconds, or submit fewer runs together",
            retry_after=round(after, 3),
        )
