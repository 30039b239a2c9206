"""The tokens of all lanes with a rate: which runs have reserved one, and when empty buckets get one.

A part of the order (`order.py`), which holds the lanes and keys of empty buckets back. Plain data: no clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import heappop, heappush

from ...protocol.lanes import LaneRules
from .rates import Buckets, Taken

BucketId = tuple[str, str | None]
"""The bucket of a lane, or of a key in a lane."""


class Tokens:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._buckets: dict[str, Buckets] = {}  # by lane
        self._reserved: dict[str, BucketId] = {}  # by run
        self._opening: dict[BucketId, float] = {}  # the last entry of each bucket in `_opens`
        self.opens: list[tuple[float, int, BucketId]] = []
        """When empty buckets get a token, as a heap; some entries are outdated."""
        self._serial = 0

    @property
    def lanes(self) -> Collection[str]:
        """The lanes that have buckets."""
        return self._buckets.keys()

    def names(self, lane: str) -> Sequence[str | None]:
        """The keys of a lane's buckets that are not full; `None` for the lane's own."""
        buckets = self._buckets.get(lane)
        return () if buckets is None else buckets.names()

    def restore(
        self,
        buckets: Sequence[tuple[str, str | None, float]],
        rules_of: Callable[[str], LaneRules],
        now: float,
    ) -> dict[str, list[str | None]]:
        """Restore buckets, each with the time at which it is full. Returns those that are not used."""
        unused: dict[str, list[str | None]] = {}
        for lane, key, full_at in buckets:
            rules = rules_of(lane)
            if rules.rate is None or (key is not None) != (rules.rate_per == "key"):
                unused.setdefault(lane, []).append(key)
            else:
                latest = now + rules.burst * rules.interval  # the clock may have been set back
                self._buckets.setdefault(lane, Buckets()).restore(key, min(full_at, latest))
        return unused

    def change_rules(
        self, lane: str, before: LaneRules, rules: LaneRules, now: float
    ) -> tuple[str | None, ...]:
        """Change the rate of a lane. Returns the keys of buckets that are no longer used."""
        buckets = self._buckets.get(lane)
        if buckets is None:
            return ()
        if rules.rate is None or rules.rate_per != before.rate_per:
            del self._buckets[lane]
            return tuple(buckets.names())
        if rules.interval != before.interval:
            buckets.limit(rules, now)
        return ()

    def reserve(self, run: str, lane: str, key: str | None, rules: LaneRules, now: float) -> Taken:
        """A run gets a slot: it reserves a token."""
        self._reserved[run] = lane, key
        return self._buckets.setdefault(lane, Buckets()).reserve(lane, key, rules, now)

    def settle(
        self, run: str, rules_of: Callable[[str], LaneRules], now: float, *, starts: bool
    ) -> BucketId | None:
        """The start of a run is committed, and takes its token; or it does not start, and gives it back.
        Returns its bucket, unless the lane no longer has this rate."""
        id = self._reserved.pop(run, None)
        if id is None:
            return None
        buckets, rules = self._buckets.get(id[0]), rules_of(id[0])
        if buckets is None or rules.rate is None:
            return None
        buckets.settle(id[1], rules, now, starts=starts)
        return id

    def opens_at(self, lane: str, key: str | None, rules: LaneRules) -> float:
        """When a bucket has a token that can be reserved; in the past if it has one now."""
        buckets = self._buckets.get(lane)
        return -math.inf if buckets is None else buckets.opens_at(key, rules)

    def open_later(self, lane: str, key: str | None, at: float) -> None:
        """`opened` is to return an empty bucket at this time. If no time is known, it opens when the start of
        a run with a token is committed."""
        id = (lane, key)
        if at < math.inf and self._opening.get(id) != at:
            self._opening[id] = at
            self._serial += 1
            heappush(self.opens, (at, self._serial, id))

    def deadline(self) -> float:
        """When the next empty bucket gets a token."""
        return self.opens[0][0] if self.opens else math.inf

    def opened(self, now: float) -> Iterator[BucketId]:
        """Take the buckets that may have a token now."""
        while self.opens and self.opens[0][0] <= now:
            at, _, id = heappop(self.opens)
            if self._opening.get(id) == at:
                del self._opening[id]
            yield id
