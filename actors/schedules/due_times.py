"""The times at which a schedule is due: pure functions of its definition, never of the current time.

A cron expression describes local times. A local time `L` is due at the first instant whose local time is `L`
or later:

    due(L) = min { u : local(u) >= L }

So when a clock change skips `L`, it is due right after the gap, together with every other time in the gap;
and when a clock change repeats `L`, it is due at its first occurrence only. The library that reads cron
expressions is used for local times only, so this rule does not depend on it.

`every` is an interval from an anchor, in elapsed time: `due(k) = since + k * every` for `k >= 1`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ...protocol.errors import Invalid
from ...protocol.values import shown

if TYPE_CHECKING:
    from cronsim import CronSim

_LONGEST_CRON = 1000
_DAY = 86_400
_FIELDS = 5


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
        self._expression = expression
        self._zone = _zone(timezone)
        fields = expression.split() if isinstance(expression, str) else []
        if len(fields) != _FIELDS:
            raise Invalid(
                "cron must have five fields: minute, hour, day of month, month and day of week, "
                f'as in "0 3 * * *" (got {shown(expression)})',
                value=shown(expression),
            )
        self._days = f"0 0 {' '.join(fields[2:])}"  # midnight of each day on which it is due
        self._per_day: int | None = None
        _matches(expression, datetime(2000, 1, 1))  # check it now

    def from_after(self, instant: float) -> Iterator[float]:
        start = datetime.fromtimestamp(instant, self._zone).replace(tzinfo=None)
        latest = instant
        for local in _matches(self._expression, start):
            due = self._due(local)
            if due > latest:  # else a clock change repeats or skips this local time
                latest = due
                yield due

    def count(self, after: float, until: float) -> int:
        """Count whole days at once, except those with a clock change."""
        if until - after < 2 * _DAY:
            return self._count_each(after, until)
        first = self._local_day(after) + timedelta(days=1)
        end = self._local_day(until)
        total = self._count_each(after, self._due(first) - 1) + self._count_each(self._due(end) - 1, until)
        for day in _matches(self._days, first - timedelta(seconds=1)):
            if day >= end:
                break
            starts, ends = self._due(day), self._due(day + timedelta(days=1))
            if ends - starts == _DAY:
                total += self._count_of_day(day)
            else:
                total += self._count_each(starts - 1, ends - 1)
        return total

    def last(self, after: float, until: float, most: int) -> list[float]:
        span = 3600.0
        while True:
            start = max(after, until - span)
            found = self._between(start, until)
            if len(found) >= most or start == after:
                return found[-most:]
            span *= 8

    def _between(self, after: float, until: float) -> list[float]:
        found: list[float] = []
        for due in self.from_after(after):
            if due > until:
                break
            found.append(due)
        return found

    def _count_each(self, after: float, until: float) -> int:
        return len(self._between(after, until))

    def _count_of_day(self, day: datetime) -> int:
        if self._per_day is None:
            end = day + timedelta(days=1)
            times = _matches(self._expression, day - timedelta(seconds=1))
            self._per_day = sum(1 for _ in _until(times, end))
        return self._per_day

    def _local_day(self, instant: float) -> datetime:
        local = datetime.fromtimestamp(instant, self._zone)
        return datetime(local.year, local.month, local.day)

    def _due(self, local: datetime) -> float:
        """The first instant with this local time or a later one."""
        aware = local.replace(tzinfo=self._zone)  # its first occurrence, if it occurs twice
        instant = aware.timestamp()
        if datetime.fromtimestamp(instant, self._zone).replace(tzinfo=None) == local:
            return instant
        # It is in a gap, which ends between these two instants. Clock changes occur at whole seconds.
        before, after = int(aware.replace(fold=1).timestamp()), int(instant)
        offset = self._offset(after)
        while after - before > 1:
            middle = (before + after) // 2
            if self._offset(middle) == offset:
                after = middle
            else:
                before = middle
        return float(after)

    def _offset(self, instant: int) -> timedelta | None:
        return datetime.fromtimestamp(instant, self._zone).utcoffset()


def _until(times: Iterator[datetime], end: datetime) -> Iterator[datetime]:
    for time in times:
        if time >= end:
            return
        yield time


def _matches(expression: str, after: datetime) -> CronSim:
    """An iterator over the local times of a cron expression after a local time."""
    # Imported on demand: many engines have no schedules.
    from cronsim import CronSim, CronSimError

    try:
        if len(expression) > _LONGEST_CRON:
            raise ValueError(f"it has {len(expression):,} characters, at most {_LONGEST_CRON} are allowed")
        return CronSim(expression, after)
    except (CronSimError, ValueError) as error:
        raise Invalid(
            f"cron {shown(expression)} is not valid: {str(error).lower()}; the fields are minute, hour, "
            "day of month, month and day of week",
            value=shown(expression),
        ) from None


@lru_cache(maxsize=256)
def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError):
        raise Invalid(
            f"timezone {shown(name)} is unknown: use a name of the IANA database, such as "
            '"Europe/Berlin", or "UTC"',
            value=shown(name),
        ) from None
