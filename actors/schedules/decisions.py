"""What a schedule does at a time, and what a changed definition makes of its record: pure functions.

An engine that was killed at any moment decides the same again:

    late(t)   = now - t >= GRACE + jitter           the due times that count as missed
    skip      leaves out every late time
    latest    if a time is late: leaves out all but the last due one
    all       leaves out all but the last `missed_limit` late ones
    due at    t + delay(t), with 0 <= delay(t) < jitter and the same for the same `t`
"""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

from ...protocol.errors import Invalid
from ...protocol.schedules import ScheduleDefinition, ScheduleRecord, check_every
from ...protocol.values import shown
from .due_times import Cron, DueTimes, Interval

GRACE = 60.0
"""A firing that is late by these seconds, in addition to its jitter, counts as missed."""

NEXT_TIMES = 3
"""How many due times a record lists."""


class LeaveOut(msgspec.Struct, frozen=True, gc=False):
    """Leave out the first `count` due times after `decided_until`, the last of which is `until`. To decide
    this cost looking at `visited` due times."""

    count: int
    until: float
    visited: int


class Fire(msgspec.Struct, frozen=True, gc=False):
    """Submit the run for this due time."""

    planned: float


class Wait(msgspec.Struct, frozen=True, gc=False):
    """Nothing is due before this time."""

    until: float


def decide(schedule: ScheduleRecord, times: DueTimes, now: float) -> LeaveOut | Fire | Wait:
    """Return what to do now. Call it again after each firing and each time that was left out."""
    after = schedule.decided_until
    late = now - GRACE - schedule.jitter
    count = times.count(after, late) if late > after else 0
    if count:
        left_out = _left_out(schedule, times, late, count, now)
        if left_out is not None:
            return left_out
    planned = times.next(after)
    if planned is None:
        return Wait(math.inf)
    starts_at = schedule.starts_at(planned)
    return Fire(planned) if starts_at <= now else Wait(starts_at)


def _left_out(
    schedule: ScheduleRecord, times: DueTimes, late: float, count: int, now: float
) -> LeaveOut | None:
    after = schedule.decided_until
    if schedule.missed == "skip":
        return LeaveOut(count, times.last(after, late, 1)[-1], 1)
    if schedule.missed == "all":
        surplus, visited = count - schedule.missed_limit, schedule.missed_limit + 1
        return LeaveOut(surplus, times.last(after, late, visited)[0], visited) if surplus > 0 else None
    due = count
    last = times.last(after, late, 1)[-1]
    for planned in times.from_after(last):
        if schedule.starts_at(planned) > now:
            break
        due += 1
        last = planned
    return LeaveOut(due - 1, times.last(after, last, 2)[0], due - count + 3) if due > 1 else None


def times_of(definition: ScheduleDefinition, since: float) -> DueTimes:
    """Return the due times of a definition. Raises `Invalid` for a bad expression or time zone."""
    if definition.cron is not None:
        return Cron(definition.cron, definition.timezone)
    assert definition.every is not None, "a definition has one of both"
    return Interval(definition.every, since)


def same_times(one: ScheduleDefinition, other: ScheduleDefinition) -> bool:
    """Whether both have the same due times, given the same anchor."""
    return (one.cron, one.every, one.timezone) == (other.cron, other.every, other.timezone)


def revised(
    before: ScheduleRecord | None,
    definition: ScheduleDefinition,
    *,
    id: str,
    source: str,
    paused: bool | None,
    now: float,
) -> ScheduleRecord:
    """Return the record of a new or changed definition.

    A schedule whose due times stay the same keeps its id, its anchor and what is decided, so that a program
    can put its schedules at each start. `paused=None` keeps that, too.
    """
    definition_fields = {name: getattr(definition, name) for name in ScheduleDefinition.__struct_fields__}
    since = round(now, 3)
    if before is not None and same_times(before, definition):
        record = replace(before, **definition_fields, source=source)
    else:
        record = ScheduleRecord(
            **definition_fields,
            id=id,
            source=source,
            paused=before is not None and before.paused,
            since=since,
            decided_until=since,
            next=(),
        )
    paused = record.paused if paused is None else paused
    if record.paused and not paused:
        record = replace(record, decided_until=max(record.decided_until, since))
    upcoming = () if paused else times_of(record, record.since).following(record.decided_until, NEXT_TIMES)
    return replace(record, paused=paused, next=upcoming)


def preview(cron: str | None, every: float | None, timezone: str, now: float) -> tuple[float, ...]:
    """Return the next due times of a schedule that is put now. Raises `Invalid`."""
    every = check_every("a preview", cron, every, timezone)
    definition = ScheduleDefinition(name="", job="", handle="", cron=cron, every=every, timezone=timezone)
    return times_of(check_times(definition), round(now, 3)).following(now, NEXT_TIMES)


def check_times(definition: ScheduleDefinition) -> ScheduleDefinition:
    """Return a definition that has due times. Raises `Invalid`."""
    if times_of(definition, 0.0).next(0.0) is None:
        raise Invalid(
            f"cron {shown(definition.cron)} has no due time: no date matches it", value=shown(definition.cron)
        )
    return definition
