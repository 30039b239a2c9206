"""Due times against a plain model that walks minute by minute through UTC."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from greenroom.actors.schedules import local_times as local_times_module
from greenroom.actors.schedules.due_times import Cron, Interval
from greenroom.actors.schedules.local_times import local_times
from greenroom.protocol.errors import Invalid

MINUTE = 60

# Two days before a clock change: forward and backward, by an hour and by half an hour. Some changes end at
# midnight, and one skips a day.
CHANGES = [
    ("Europe/Berlin", datetime(2026, 3, 27, 12, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 23, 12, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 3, 6, 12, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 10, 30, 12, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 3, 12, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 2, 12, tzinfo=UTC)),
    ("America/Nuuk", datetime(2024, 3, 29, 12, tzinfo=UTC)),
    ("America/Nuuk", datetime(2024, 10, 25, 12, tzinfo=UTC)),
    ("America/Scoresbysund", datetime(2024, 3, 29, 12, tzinfo=UTC)),
    ("Pacific/Kwajalein", datetime(1993, 8, 19, 0, tzinfo=UTC)),
    ("UTC", datetime(2026, 2, 27, 12, tzinfo=UTC)),
]
WINDOW = 3 * 24 * 60  # minutes


class Fields:
    """A cron expression as the sets of its fields, with its text."""

    def __init__(self, minutes, hours, days, months, weekdays):
        self.minutes, self.hours, self.days, self.months, self.weekdays = (
            minutes,
            hours,
            days,
            months,
            weekdays,
        )

    @property
    def text(self):
        fields = (self.minutes, self.hours, self.days, self.months, self.weekdays)
        return " ".join("*" if field is None else ",".join(map(str, sorted(field))) for field in fields)

    def __repr__(self):
        return self.text

    def matches(self, local):
        for field, value in (
            (self.minutes, local.minute),
            (self.hours, local.hour),
            (self.months, local.month),
        ):
            if field is not None and value not in field:
                return False
        weekday = local.isoweekday() % 7
        if self.days is None or self.weekdays is None:  # a star does not restrict the day
            return (self.days is None or local.day in self.days) and (
                self.weekdays is None or weekday in self.weekdays
            )
        return local.day in self.days or weekday in self.weekdays


def field(lowest, highest):
    return st.none() | st.sets(st.integers(lowest, highest), min_size=1, max_size=4)


expressions = st.builds(
    Fields,
    st.sets(st.integers(0, 59), min_size=1, max_size=3) | st.none(),
    st.sets(st.integers(0, 4), min_size=1, max_size=3) | field(0, 23),
    st.none() | st.sets(st.integers(1, 31), min_size=1),
    st.none(),
    st.none() | st.sets(st.integers(0, 6), min_size=1),
)


def model(fields, zone, start):
    """The due minutes: a minute is due if it is the first whose local time reaches a matching one."""
    reached = None
    due = []
    for number in range(-24 * 60, WINDOW):
        instant = start + timedelta(minutes=number)
        local = instant.astimezone(zone).replace(tzinfo=None)
        if reached is None:
            reached = local
        fires = False
        while reached < local:
            reached += timedelta(minutes=1)
            fires = fires or fields.matches(reached)
        if fires and number > 0:
            due.append(instant.timestamp())
    return due


@given(expressions, st.sampled_from(CHANGES))
@example(Fields({30}, {2}, None, None, None), CHANGES[0])
@example(Fields({30}, {2}, None, None, None), CHANGES[1])
@example(Fields({0, 15, 30}, {2}, None, None, None), CHANGES[5])
@example(Fields(None, None, None, None, None), CHANGES[3])
@example(Fields({30}, {23}, None, None, None), CHANGES[6])
@example(Fields({0, 30}, {0, 23}, None, None, None), CHANGES[8])
@example(Fields({0}, {12}, None, None, None), CHANGES[9])
def test_a_skipped_time_is_due_after_the_gap_and_a_repeated_one_once(fields, change):
    timezone, start = change
    expected = model(fields, ZoneInfo(timezone), start)
    cron = Cron(fields.text, timezone)
    first, end = start.timestamp(), start.timestamp() + (WINDOW - 1) * MINUTE
    assert [due for due in cron.following(first, len(expected) + 1) if due <= end] == expected
    assert cron.count(first, end) == len(expected)
    assert cron.last(first, end, 3) == expected[-3:]
    assert cron.last(first, end, 10_000) == expected


@given(expressions, st.sampled_from(CHANGES), st.integers(0, WINDOW), st.integers(0, 40 * 24 * 60))
def test_the_count_is_the_number_of_due_times(fields, change, begin, length):
    timezone, start = change
    cron = Cron(fields.text, timezone)
    after = start.timestamp() + begin * MINUTE
    until = after + length * MINUTE
    assert cron.count(after, until) == sum(1 for _ in due_until(cron, after, until))


def due_until(times, after, until):
    for due in times.from_after(after):
        if due > until:
            return
        yield due


@given(
    st.floats(1, 1e7),
    st.floats(0, 2e9).map(lambda since: round(since, 3)),
    st.floats(-10, 1e5),
    st.integers(0, 50),
)
def test_an_interval_counts_from_its_anchor(every, since, offset, length):
    times = Interval(every, since)
    after, until = since + offset, since + offset + length * every
    around = max(0, int(offset / every))
    numbers = range(max(1, around - 2), around + length + 3)
    expected = [time for number in numbers if after < (time := round(since + number * every, 3)) <= until]
    due = list(due_until(times, after, until))
    assert due == expected
    assert times.count(after, until) == len(due)
    assert times.last(after, until, 5) == due[-5:]
    assert all(time > since for time in due)


def test_a_year_of_minutes_is_counted_without_visiting_each():
    cron = Cron("* * * * *", "Europe/Berlin")
    start = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    assert cron.count(start, start + 365 * 86_400) == 365 * 24 * 60 - 60  # one hour is repeated


class Visits:
    """Counts the local times and the days that a search visits."""

    def __init__(self, monkeypatch, expression):
        self.count = 0
        local = local_times(expression)
        monkeypatch.setattr(local, "_is_day", self._counted(local._is_day))
        monkeypatch.setattr(local_times_module, "_at", self._counted(local_times_module._at))

    def _counted(self, function):
        def counted(*arguments):
            self.count += 1
            return function(*arguments)

        return counted


def test_the_last_due_times_of_many_years_are_found_without_visiting_the_others(monkeypatch):
    visits = Visits(monkeypatch, "*/2 * * * *")
    cron = Cron("*/2 * * * *", "Europe/Berlin")
    start, end = (datetime(year, 5, 5, tzinfo=UTC).timestamp() for year in (1996, 2026))
    assert cron.last(start, end, 100) == [end - 120 * number for number in reversed(range(100))]
    assert visits.count < 110
    assert cron.count(start, end) > 7_000_000
    assert visits.count < 1500, "each month of the calendar, but not each day of 30 years"


@pytest.mark.parametrize(
    ("expression", "timezone", "complaint"),
    [
        ("1" * 5000 + " * * * *", "UTC", "it has 5,008 characters"),
        ("61 * * * *", "UTC", 'cron "61 * * * *" is not valid: bad minute'),
        ("0 0 30 2 *", "UTC", 'cron "0 0 30 2 *" is never due: no month that it names has such a day'),
        ("0 0 31 4,6 *", "UTC", "is never due"),
        ("0 0 32 2 *", "UTC", "is not valid: bad day"),
        ("61 0 30 2 *", "UTC", "is not valid: bad minute"),
        ("0 3 * * * *", "UTC", "cron must have five fields"),
        ("@daily", "UTC", "cron must have five fields"),
        (5, "UTC", "cron must have five fields"),
        ("0 3 * * *", "Mars/Olympus", 'timezone "Mars/Olympus" is unknown'),
        ("0 3 * * *", "Europe", 'timezone "Europe" is unknown'),
        ("0 3 * * *", "../UTC", 'timezone "../UTC" is unknown'),
        ("0 3 * * *", "", 'timezone "" is unknown'),
        ("0 3 * * *", None, "timezone null is unknown"),
        ("0 3 * * *", ["UTC"], 'timezone ["UTC"] is unknown'),
        ("0 3 * * *", "localtime", 'timezone "localtime" is unknown: use a name of the IANA database'),
        ("0 3 * * *", "posixrules", 'timezone "posixrules" is unknown'),
        ("0 3 * * *", "posix/Europe/Berlin", 'timezone "posix/Europe/Berlin" is unknown'),
        ("0 3 * * *", "right/Europe/Berlin", 'timezone "right/Europe/Berlin" is unknown'),
    ],
)
def test_a_bad_expression_or_time_zone_is_named(expression, timezone, complaint):
    with pytest.raises(Invalid) as error:
        Cron(expression, timezone)
    assert complaint in error.value.message
