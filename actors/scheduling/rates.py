"""The token buckets of lanes with a rate; one for the lane, or one for each of its keys.

A bucket is one number: the time at which it is full again. Each token moves it on by the interval of the
rate, so a bucket that was full long ago is the same as a new one, and need not be kept. The formula is in
`protocol/lanes.py`. Plain data: no clock.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush

import msgspec

from ...protocol.lanes import LaneRules

_MOST_FORGOTTEN = 100
"""The number of full buckets that one taken token removes from the store."""


class Taken(msgspec.Struct, frozen=True, gc=False):
    """A run takes a token: if it starts, the bucket is full again `full_in` seconds later. The buckets of the
    keys in `full` are full."""

    lane: str
    key: str | None
    full_in: float
    full: tuple[str, ...] = ()


class Buckets:
    """The buckets of one lane.

    A token is taken when the start of its run is committed, which can be late. Until then it is reserved: no
    more of them than the bucket has room for, so that starts that are committed together are no more either.
    """

    __slots__ = ("_full", "_full_at", "_reserved")

    def __init__(self) -> None:
        self._full_at: dict[str | None, float] = {}
        self._full: list[tuple[float, str | None]] = []  # of keys, by time; some outdated
        self._reserved: dict[str | None, int] = {}

    def names(self) -> list[str | None]:
        """The keys of the buckets that are not full; `None` for the lane's."""
        return list({**self._full_at, **self._reserved})

    def restore(self, key: str | None, full_at: float) -> None:
        """Restore a bucket that is not full."""
        self._full_at[key] = full_at
        if key is not None:
            heappush(self._full, (full_at, key))

    def opens_at(self, key: str | None, rules: LaneRules) -> float:
        """When the bucket has a token that can be reserved; in the past if it has one now."""
        reserved = self._reserved.get(key, 0)
        if reserved >= rules.burst:
            return math.inf
        return self._full_at.get(key, -math.inf) - (rules.burst - 1 - reserved) * rules.interval

    def reserve(self, lane: str, key: str | None, rules: LaneRules, now: float) -> Taken:
        """Reserve a token."""
        reserved = self._reserved[key] = self._reserved.get(key, 0) + 1
        full_at = max(now, self._full_at.get(key, now)) + reserved * rules.interval
        return Taken(lane, key, full_at - now, self._forget(now))

    def settle(self, key: str | None, rules: LaneRules, now: float, *, starts: bool) -> None:
        """A run that has reserved a token starts, or it does not start."""
        reserved = self._reserved.pop(key, 0) - 1
        if reserved > 0:
            self._reserved[key] = reserved
        if starts:
            self.restore(key, max(now, self._full_at.get(key, now)) + rules.interval)

    def limit(self, rules: LaneRules, now: float) -> None:
        """The rate has changed: no bucket takes longer to fill than an empty one."""
        latest = now + rules.burst * rules.interval
        self._full_at = {key: min(full_at, latest) for key, full_at in self._full_at.items()}
        self._full = sorted((at, key) for key, at in self._full_at.items() if key is not None)

    def _forget(self, now: float) -> tuple[str, ...]:
        forgotten: list[str] = []
        while self._full and self._full[0][0] <= now and len(forgotten) < _MOST_FORGOTTEN:
            at, key = heappop(self._full)
            if key is not None and self._full_at.get(key) == at and key not in self._reserved:
                del self._full_at[key]
                forgotten.append(key)
        return tuple(forgotten)
