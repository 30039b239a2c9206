"""Makes schedules for the tests of their machine and decisions."""

from msgspec.structs import replace

from greenroom.actors.schedules.decisions import NEXT_TIMES, revised, times_of
from greenroom.protocol.schedules import define

BEGAN = 1_795_000_000.0


def definition(name="tick", **options):
    """A definition; by default due every 100 s."""
    given = {
        "handle": None,
        "params": None,
        "cron": None,
        "every": None if options.get("cron") else 100.0,
        "timezone": "UTC",
        "jitter": 0.0,
        "missed": "latest",
        "missed_limit": 100,
        "options": {},
    }
    return define(name, "job", **given | options)


def record(name="tick", *, now=BEGAN, id="id1", source="api", paused=False, **options):
    """A new schedule, put at `now`."""
    return revised(None, definition(name, **options), id=id, source=source, paused=paused, now=now)


def decided(schedule, until):
    """The same schedule, decided up to this time."""
    times = times_of(schedule, schedule.since)
    return replace(schedule, decided_until=until, next=times.following(until, NEXT_TIMES))
