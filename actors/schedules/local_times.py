"""The local times that a cron expression matches: calendar arithmetic, without time zones.

A library reads the expression, and says whether a date matches. Everything else is computed here, because
the library can neither count nor skip: the number of local times in a period costs a step per month, however
many they are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from datetime import MAXYEAR, MINYEAR, date, datetime, time, timedelta
from functools import lru_cache

from ...protocol.errors import Invalid
from ...protocol.values import shown

_LONGEST = 1000
_FIELDS = 5
_DAY = timedelta(days=1)

_MOST_YEARS = 50
"""The longest search for the next date, longer than the 40 years between two leap days on the same weekday
around a year such as 2100."""


class LocalTimes:
    """The local times of an expression. Raises `Invalid` for a bad one."""

    def __init__(self, expression: str) -> None:
        # Imported on demand: many engines have no schedules.
        from cronsim import CronSim, CronSimError

        fields = expression.split() if isinstance(expression, str) else []
        if len(fields) != _FIELDS:
            raise Invalid(
                "cron must have five fields: minute, hour, day of month, month and day of week, "
                f'as in "0 3 * * *" (got {shown(expression)})',
                value=shown(expression),
            )
        try:
            if len(expression) > _LONGEST:
                raise ValueError(f"it has {len(expression):,} characters, at most {_LONGEST} are allowed")
            cron = CronSim(expression, datetime(2000, 1, 1))
        except (CronSimError, ValueError) as error:
            if len(expression) <= _LONGEST and _never_matches(*fields):
                raise Invalid(
                    f"cron {shown(expression)} is never due: no month that it names has such a day",
                    value=shown(expression),
                ) from None
            raise Invalid(
                f"cron {shown(expression)} is not valid: {str(error).lower()}; the fields are minute, hour, "
                "day of month, month and day of week",
                value=shown(expression),
            ) from None
        self._months = cron.months
        self._is_day = cron.match_day
        self._minutes = [60 * hour + minute for hour in sorted(cron.hours) for minute in sorted(cron.minutes)]
        self._days_by_calendar: dict[tuple[int, int], int] = {}  # days of the month, weekday of the first

    def after(self, local: datetime) -> Iterator[datetime]:
        """Yield the local times after this one, in order."""
        start = local.date()
        skipped = bisect_right(self._minutes, _minute(local))
        for day in self._days(start, forward=True):
            for minute in self._minutes[skipped if day == start else 0 :]:
                yield _at(day, minute)

    def up_to(self, local: datetime) -> Iterator[datetime]:
        """Yield the local times up to this one, the last one first."""
        start = local.date()
        count = bisect_right(self._minutes, _minute(local))
        for day in self._days(start, forward=False):
            for minute in reversed(self._minutes[: count if day == start else None]):
                yield _at(day, minute)

    def count(self, after: datetime, until: datetime) -> int:
        """Return the number of local times with `after < time <= until`."""
        if until <= after:
            return 0
        days = self._count_days(after.date(), until.date())
        return days * len(self._minutes) - self._count_of_day(after) + self._count_of_day(until)

    def _count_of_day(self, until: datetime) -> int:
        """The number of local times of this day up to this time."""
        return bisect_right(self._minutes, _minute(until)) if self._matches(until.date()) else 0

    def _count_days(self, first: date, end: date) -> int:
        """The number of matching days from `first` to the one before `end`."""
        total = 0
        while first < end:
            next_month = _next_month(first)
            if first.day == 1 and next_month <= end:
                total += self._count_days_of_month(first, next_month)
            else:
                total += self._count_each_day(first, min(next_month, end))
            first = next_month
        return total

    def _count_days_of_month(self, first: date, next_month: date) -> int:
        """Months of the same length that begin on the same weekday have the same matching days."""
        if first.month not in self._months:
            return 0
        calendar = (next_month - first).days, first.weekday()
        if calendar not in self._days_by_calendar:
            self._days_by_calendar[calendar] = self._count_each_day(first, next_month)
        return self._days_by_calendar[calendar]

    def _count_each_day(self, first: date, end: date) -> int:
        return sum(self._matches(first + number * _DAY) for number in range((end - first).days))

    def _matches(self, day: date) -> bool:
        return day.month in self._months and self._is_day(day)

    def _days(self, day: date, *, forward: bool) -> Iterator[date]:
        """Yield the matching days from this one on, until there is none for a long time."""
        found = day.year
        while abs(day.year - found) <= _MOST_YEARS and MINYEAR < day.year < MAXYEAR:
            if day.month not in self._months:
                day = _next_month(day) if forward else day.replace(day=1) - _DAY
                continue
            if self._is_day(day):
                found = day.year
                yield day
            day += _DAY if forward else -_DAY


def _never_matches(minute: str, hour: str, day: str, month: str, weekday: str) -> bool:
    """Whether the day exists, but in none of these months. The library then says only that it is bad."""
    from cronsim import CronSim, CronSimError

    try:
        for fields in (f"{minute} {hour} 1 {month} {weekday}", f"0 0 {day} * *"):
            CronSim(fields, datetime(2000, 1, 1))
    except CronSimError:
        return False
    return True


@lru_cache(maxsize=256)
def local_times(expression: str) -> LocalTimes:
    """The local times of an expression; many schedules have the same one."""
    return LocalTimes(expression)


def _minute(local: datetime) -> int:
    return 60 * local.hour + local.minute


def _at(day: date, minute: int) -> datetime:
    return datetime.combine(day, time(minute // 60, minute % 60))


def _next_month(day: date) -> date:
    return (day.replace(day=1) + 32 * _DAY).replace(day=1)
