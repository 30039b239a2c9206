"""Schedules: what is submitted when, and what the events of a schedule change in its record.

`decide` says what a schedule does at a time. It is a pure function of the record, so an engine that was
killed at any moment decides the same again:

    late(t)   = now - t > GRACE + jitter            the due times that count as missed
    skip      leaves out every late time
    latest    if a time is late: leaves out all but the last due one
    all       leaves out all but the last `missed_limit` late ones
    due at    t + delay(t), with 0 <= delay(t) < jitter and the same for the same `t`

All due times up to `decided_until` are decided: they have fired, or were left out. It only grows, so a clock
that is set back fires nothing twice.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec
from msgspec.structs import replace

from .due_times import Cron, DueTimes, Interval
from .errors import Invalid
from .names import check_name
from .values import shown

if TYPE_CHECKING:
    from .events import ScheduleFired, ScheduleMissed

Missed = Literal["skip", "latest", "all"]
"""What to do with due times that were missed."""

GRACE = 60.0
"""Seconds by which a firing can be late, in addition to its jitter, without counting as missed."""

MAX_SCHEDULES = 10_000
NEXT_TIMES = 3
"""How many due times a record lists."""

_MAX_NAME = 128  # a request id contains it
_SHORTEST_EVERY = 1.0
_LONGEST_EVERY = 366 * 86_400.0
_LONGEST_JITTER = 86_400.0
_MOST_MISSED = 1000


class ScheduleDefinition(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a schedule submits, and when. `options` are those of the submission, as in the command `submit`.
    Either `cron` or `every` is set."""

    name: str
    job: str
    handle: str
    params: Any = None
    options: dict[str, Any] = {}
    cron: str | None = None
    every: float | None = None
    timezone: str = "UTC"
    jitter: float = 0.0
    missed: str = "latest"
    missed_limit: int = 100


class ScheduleRecord(ScheduleDefinition, frozen=True, kw_only=True, gc=False):
    """A schedule, as clients see it. Times are Unix seconds.

    `id` is another one whenever its times are changed. `source` is `code` for a schedule that is declared in
    code, and `api` for any other. `every` counts from `since`. `next` are the next due times, without jitter;
    none while it is paused. `last_run` is the run of the firing at `last_fired`; `None` if it was refused.
    """

    id: str
    source: str
    paused: bool
    since: float
    decided_until: float
    next: tuple[float, ...]
    last_fired: float | None = None
    last_run: str | None = None

    def request_id(self, planned: float) -> str:
        """The request id of the firing at this due time: the same after a crash, and no other's."""
        return f"schedule:{self.name}:{self.id}:{planned:.3f}"

    def starts_at(self, planned: float) -> float:
        """When the firing of this due time is submitted: at the due time, or up to `jitter` seconds later."""
        if not self.jitter:
            return planned
        digest = hashlib.blake2b(f"{self.id}:{planned:.3f}".encode(), digest_size=8).digest()
        return planned + self.jitter * int.from_bytes(digest, "big") / 2**64


class LeaveOut(msgspec.Struct, frozen=True, gc=False):
    """Leave out the first `count` due times after `decided_until`, the last of which is `until`."""

    count: int
    until: float


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
        return LeaveOut(count, times.last(after, late, 1)[-1])
    if schedule.missed == "all":
        surplus = count - schedule.missed_limit
        return (
            LeaveOut(surplus, times.last(after, late, schedule.missed_limit + 1)[0]) if surplus > 0 else None
        )
    due = count
    last = times.last(after, late, 1)[-1]
    for planned in times.from_after(last):
        if schedule.starts_at(planned) > now:
            break
        due += 1
        last = planned
    return LeaveOut(due - 1, times.last(after, last, 2)[0]) if due > 1 else None


# The fold.


def after_firing(schedule: ScheduleRecord, event: ScheduleFired) -> ScheduleRecord:
    """Return the record after this event; a triggered firing changes nothing in it."""
    if event.triggered:
        return schedule
    return replace(
        schedule,
        decided_until=event.at_planned,
        next=event.next,
        last_fired=event.at_planned,
        last_run=event.run,
    )


def after_missing(schedule: ScheduleRecord, event: ScheduleMissed) -> ScheduleRecord:
    """Return the record after this event."""
    return replace(schedule, decided_until=event.until, next=event.next)


# Definitions.


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
        record = replace(record, decided_until=max(record.decided_until, now))
    upcoming = () if paused else times_of(record, record.since).following(record.decided_until, NEXT_TIMES)
    return replace(record, paused=paused, next=upcoming)


def define(
    name: str,
    job: str,
    *,
    handle: str | None,
    params: Any,
    cron: str | None,
    every: float | None,
    timezone: str,
    jitter: float,
    missed: str,
    missed_limit: int,
    options: Mapping[str, Any],
) -> ScheduleDefinition:
    """Return a checked definition. Raises `Invalid`. The job, the parameters and the options are checked
    elsewhere."""
    name = check_schedule(name)
    if (cron is None) == (every is None):
        raise Invalid(
            f"schedule {shown(name)} requires either cron or every (got "
            f"{'neither' if cron is None else 'both'})"
        )
    if every is not None:
        every = _seconds("every", every, _SHORTEST_EVERY, _LONGEST_EVERY)
        if timezone != "UTC":
            raise Invalid(
                f"timezone applies to cron only (got {shown(timezone)} with every): remove timezone",
                value=shown(timezone),
            )
    if missed not in get_args(Missed):
        known = ", ".join(get_args(Missed))
        raise Invalid(f"missed must be one of {known} (got {shown(missed)})", value=shown(missed))
    if (
        isinstance(missed_limit, bool)
        or not isinstance(missed_limit, int)
        or not 1 <= missed_limit <= _MOST_MISSED
    ):
        raise Invalid(
            f"missed_limit must be an integer between 1 and {_MOST_MISSED:,} (got {shown(missed_limit)})",
            value=shown(missed_limit),
        )
    definition = ScheduleDefinition(
        name=name,
        job=job,
        handle=f"schedule:{name}" if handle is None else check_name("handle", handle),
        params=params,
        options=dict(options),
        cron=cron,
        every=every,
        timezone=timezone,
        jitter=_seconds("jitter", jitter, 0.0, _LONGEST_JITTER if every is None else every),
        missed=missed,
        missed_limit=missed_limit,
    )
    if times_of(definition, 0.0).next(0.0) is None:
        raise Invalid(f"cron {shown(cron)} has no due time: no date matches it", value=shown(cron))
    return definition


def check_schedule(name: object) -> str:
    """Return `name` if it is a valid name of a schedule. Raises `Invalid`."""
    checked = check_name("schedule", name)
    if len(checked) > _MAX_NAME:
        raise Invalid(
            f"schedule {shown(name)} has {len(checked)} characters: at most {_MAX_NAME} are allowed",
            value=shown(name),
        )
    return checked


def _seconds(what: str, value: object, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise Invalid(
            f"{what} must be a number of seconds between {least:g} and {most:,.15g} (got {shown(value)})",
            value=shown(value),
        )
    return float(value)
