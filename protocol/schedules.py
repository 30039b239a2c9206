"""Schedules: their definitions, their records, and what their events change in a record.

All due times up to `decided_until` are decided: they have fired, or were left out. It only grows, so a clock
that is set back fires nothing twice. `actors/schedules` decides; here is what clients see and fold.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec
from msgspec.structs import replace

from .errors import Invalid
from .names import check_name
from .values import shown

if TYPE_CHECKING:
    from .events import ScheduleFired, ScheduleMissed

Missed = Literal["skip", "latest", "all"]
"""What to do with due times that were missed."""

MAX_SCHEDULE_NAME = 128
"""The maximum length of a name, which request ids contain."""

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
    code, `config` for one of the configuration, and `api` for any other. `every` counts from `since`. `next`
    are the next due times, without jitter; none while it is paused. `last_run` is the run of the firing at
    `last_fired`; `None` if it was refused, and then `last_error` is the reason.
    """

    id: str
    source: str
    paused: bool
    since: float
    decided_until: float
    next: tuple[float, ...]
    last_fired: float | None = None
    last_run: str | None = None
    last_error: str | None = None

    def request_id(self, planned: float) -> str:
        """The request id of the firing at this due time: the same after a crash, and no other's."""
        return f"schedule:{self.name}:{self.id}:{planned:.3f}"

    def starts_at(self, planned: float) -> float:
        """When the firing of this due time is submitted: at the due time, or up to `jitter` seconds later."""
        if not self.jitter:
            return planned
        digest = hashlib.blake2b(f"{self.id}:{planned:.3f}".encode(), digest_size=8).digest()
        return planned + self.jitter * int.from_bytes(digest, "big") / 2**64


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
        last_error=event.error,
    )


def after_missing(schedule: ScheduleRecord, event: ScheduleMissed) -> ScheduleRecord:
    """Return the record after this event."""
    return replace(schedule, decided_until=event.until, next=event.next)


# Definitions.


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
    """Return a checked definition. Raises `Invalid`. The job, the parameters, the options, the cron
    expression and the time zone are checked elsewhere."""
    name = check_schedule(name)
    every = check_every(f"schedule {shown(name)}", cron, every, timezone)
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
    return ScheduleDefinition(
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


def check_every(what: str, cron: str | None, every: float | None, timezone: str) -> float | None:
    """Return the checked interval of what has either `cron` or `every`. Raises `Invalid`."""
    if (cron is None) == (every is None):
        raise Invalid(f"{what} requires either cron or every (got {'neither' if cron is None else 'both'})")
    if every is None:
        return None
    if timezone != "UTC":
        raise Invalid(
            f"timezone applies to cron only (got {shown(timezone)} with every): remove timezone",
            value=shown(timezone),
        )
    return _seconds("every", every, _SHORTEST_EVERY, _LONGEST_EVERY)


def check_schedule(name: object) -> str:
    """Return `name` if it is a valid name of a schedule. Raises `Invalid`."""
    checked = check_name("schedule name", name)
    if len(checked) > MAX_SCHEDULE_NAME:
        raise Invalid(
            f"schedule name {shown(name)} has {len(checked)} characters: at most {MAX_SCHEDULE_NAME} are "
            "allowed",
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
