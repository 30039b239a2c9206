"""The token buckets of lanes with a rate; one for the lane, or one for each of its keys.

A bucket is one number: the time at which it is full again. Each token moves it on by the interval of the
rate, so a bucket that was full long ago is the same as a new one, and need not be kept. The formula is in
`protocol/lanes.py`. Plain data: no clock.
"""

from __future__ import annotations

from heapq import heappop, heappush

import msgspec

from ...protocol.lanes import LaneRules

_MOST_FORGOTTEN = 100
"""The number of full buckets that one taken token removes from the store."""


class Taken(msgspec.Struct, frozen=True, gc=False):
    """A token was taken: the bucket is full again `full_in` seconds later. The buckets of the keys in `full`
    are full."""

    lane: str
    key: str | None
    full_in: float
    full: tuple[str, ...] = ()


class Buckets:
    """The buckets of one lane."""

    __slots__ = ("_full", "_full_at")

    def __init__(self) -> None:
        self._full_at: dict[str | None, float] = {}
        self._full: list[tuple[float, str | None]] = []  # of keys, by time; some outdated

    def names(self) -> list[str | None]:
        """The keys of the buckets that are not full; `None` for the lane's."""
        return list(self._full_at)

    def restore(self, key: str | None, full_at: float) -> None:
        """Restore a bucket that is not full."""
        self._full_at[key] = full_at
        if key is not None:
            heappush(self._full, (full_at, key))

    def opens_at(self, key: str | None, rules: LaneRules) -> float:
        """When the bucket has a token; in the past if it has one."""
        full_at = self._full_at.get(key)
        return 0.0 if full_at is None else full_at - (rules.burst - 1) * rules.interval

    def take(self, lane: str, key: str | None, rules: LaneRules, now: float) -> Taken:
        """Take a token."""
        full_at = max(now, self._full_at.get(key, now)) + rules.interval
        self.restore(key, full_at)
        return Taken(lane, key, full_at - now, self._forget(now))

    def limit(self, rules: LaneRules, now: float) -> None:
        """The rate has changed: no bucket takes longer to fill than an empty one."""
        latest = now + rules.burst * rules.interval
        self._full_at = {key: min(full_at, latest) for key, full_at in self._full_at.items()}
        self._full = sorted((at, key) for key, at in self._full_at.items() if key is not None)

    def _forget(self, now: float) -> tuple[str, ...]:
        forgotten: list[str] = []
        while self._full and self._full[0][0] <= now and len(forgotten) < _MOST_FORGOTTEN:
            at, key = heappop(self._full)
            if key is not None and self._full_at.get(key) == at:
                del self._full_at[key]
                forgotten.append(key)
        return tuple(forgotten)
