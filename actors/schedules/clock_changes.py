"""Time zones: their names, and the changes of their clocks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from ...protocol.errors import Invalid
from ...protocol.values import shown

DAY = 86_400


class ClockChange(msgspec.Struct, frozen=True, gc=False):
    """From this instant on, in Unix seconds, the offset of a zone's local time from UTC is another one."""

    at: int
    before: timedelta
    after: timedelta

    @property
    def is_forward(self) -> bool:
        """Whether local times are skipped; otherwise some are repeated."""
        return self.after > self.before


def zone_of(name: str) -> tzinfo:
    """Return the time zone of a name. Raises `Invalid`.

    Machines have further names, such as `localtime`, whose zone depends on the machine. Their first letter is
    a small one, which no name of the IANA database has.
    """
    if name == "UTC":
        return UTC
    try:
        if not isinstance(name, str) or name[:1].islower():
            raise ValueError("not a name of the IANA database")
        return _load(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Invalid(
            f"timezone {shown(name)} is unknown: use a name of the IANA database, such as "
            '"Europe/Berlin", or "UTC"',
            value=shown(name),
        ) from None


def clock_changes(zone: tzinfo, after: float, until: float) -> Iterator[ClockChange]:
    """Yield the changes of a zone's clocks with `after < at <= until`, in order."""
    if zone is UTC:
        return
    for year in range(datetime.fromtimestamp(after, UTC).year, datetime.fromtimestamp(until, UTC).year + 1):
        for change in _changes_of_year(zone, year):
            if after < change.at <= until:
                yield change


def offset(zone: tzinfo, instant: int) -> timedelta:
    """The offset of a zone's local time from UTC at an instant."""
    return datetime.fromtimestamp(instant, zone).utcoffset() or timedelta()


@lru_cache(maxsize=256)
def _load(name: str) -> tzinfo:
    return ZoneInfo(name)


@lru_cache(maxsize=4096)
def _changes_of_year(zone: tzinfo, year: int) -> tuple[ClockChange, ...]:
    """The changes in a year of UTC. No zone has ever changed its clocks forth and back within a day."""
    start = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
    end = int(datetime(year + 1, 1, 1, tzinfo=UTC).timestamp())
    found: list[ClockChange] = []
    before = offset(zone, start - 1)
    for day in range(start - 1, end - 1, DAY):
        after = offset(zone, day + DAY)
        if after != before:
            found.append(_change_between(zone, day, day + DAY))
            before = after
    return tuple(found)


def _change_between(zone: tzinfo, before: int, after: int) -> ClockChange:
    """The change between two instants. Clocks change at whole seconds."""
    old, new = offset(zone, before), offset(zone, after)
    while after - before > 1:
        middle = (before + after) // 2
        if offset(zone, middle) == old:
            before = middle
        else:
            after = middle
    return ClockChange(after, old, new)
