"""The times at which a schedule is due: pure functions of its definition, never of the current time.

A cron expression describes local times. A local time `L` is due at the first instant whose local time is `L`
or later:

    due(L) = min { u : local(u) >= L }

So when a clock change skips `L`, it is due right after the gap, together with every other time in the gap;
and when a clock change repeats `L`, it is due at its first occurrence only. With the latest local time that
clocks have shown,

    reached(u) = max { local(v) : v <= u }

the local times `L` with `reached(a) < L <= reached(b)` are those that are due in `a < u <= b`. Only local
times in the same gap are due together. So due times are counted without visiting them.

`every` is an interval from an anchor, in elapsed time: `due(k) = since + k * every` for `k >= 1`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import datetime
from itertools import islice

from .clock_changes import DAY, clock_changes, zone_of
from .local_times import local_times


class DueTimes(ABC):
    """The due times of one schedule, in Unix seconds."""

    @abstractmethod
    def from_after(self, instant: float) -> Iterator[float]:
        """Yield the due times after this instant, in order."""

    @abstractmethod
    def count(self, after: float, until: float) -> int:
        """Return the number of due times with `after < time <= until`."""

    @abstractmethod
    def last(self, after: float, until: float, most: int) -> list[float]:
        """Return the last `most` due times with `after < time <= until`, in order."""

    def next(self, after: float) -> float | None:
        """Return the first due time after this instant, if there is one."""
        return next(self.from_after(after), None)

    def following(self, after: float, most: int) -> tuple[float, ...]:
        """Return the first `most` due times after this instant."""
        return tuple(islice(self.from_after(after), most))


class Interval(DueTimes):
    """Due every `every` seconds, counted from `since`. Times are rounded to milliseconds."""

    def __init__(self, every: float, since: float) -> None:
        self._every = every
        self._since = since

    def _time(self, number: int) -> float:
        return round(self._since + number * self._every, 3)

    def _number(self, instant: float) -> int:
        """The number of due times up to this instant."""
        number = max(0, math.floor((instant - self._since) / self._every))
        while number and self._time(number) > instant:
            number -= 1
        while self._time(number + 1) <= instant:
            number += 1
        return number

    def from_after(self, instant: float) -> Iterator[float]:
        number = self._number(instant)
        while True:
            number += 1
            yield self._time(number)

    def count(self, after: float, until: float) -> int:
        return max(0, self._number(until) - self._number(after))

    def last(self, after: float, until: float, most: int) -> list[float]:
        end = self._number(until)
        first = max(self._number(after), end - most) + 1
        return [self._time(number) for number in range(first, end + 1)]


class Cron(DueTimes):
    """Due at the local times of a cron expression. Raises `Invalid` for a bad expression or time zone."""

    def __init__(self, expression: str, timezone: str) -> None:
        self._local = local_times(expression)
        self._zone = zone_of(timezone)

    def from_after(self, instant: float) -> Iterator[float]:
        latest = instant
        for local in self._local.after(self._reached(instant)):
            due = self._due(local)
            if due > latest:  # else it is in the same gap as the one before
                latest = due
                yield due

    def count(self, after: float, until: float) -> int:
        if until <= after:
            return 0
        total = self._local.count(self._reached(after), self._reached(until))
        for change in clock_changes(self._zone, after, until):
            if change.is_forward:
                in_gap = self._local.count(self._reached(change.at - 1), self._reached(change.at))
                total -= max(0, in_gap - 1)
        return total

    def last(self, after: float, until: float, most: int) -> list[float]:
        found: list[float] = []
        for local in self._local.up_to(self._reached(until)):
            due = self._due(local)
            if due <= after or len(found) == most:
                break
            if not found or due < found[-1]:  # else it is in the same gap
                found.append(due)
        return found[::-1]

    def _reached(self, instant: float) -> datetime:
        """The latest local time that clocks have shown up to this instant."""
        reached = self._local_time(instant)
        for change in clock_changes(self._zone, instant - 2 * DAY, instant):
            if not change.is_forward:  # clocks showed a later time immediately before
                reached = max(reached, self._local_time(change.at - 1))
        return reached

    def _local_time(self, instant: float) -> datetime:
        return datetime.fromtimestamp(instant, self._zone).replace(tzinfo=None)

    def _due(self, local: datetime) -> float:
        """The first instant with this local time or a later one."""
        aware = local.replace(tzinfo=self._zone)  # its first occurrence, if it occurs twice
        instant = aware.timestamp()
        if self._local_time(instant) == local:
            return instant
        # It is in a gap, which ends between these two instants.
        before = aware.replace(fold=1).timestamp()
        return float(next(change.at for change in clock_changes(self._zone, before, instant)))
