"""Delayed runs: the options that say when a run can start at the earliest."""

from __future__ import annotations

import math
from datetime import datetime

from .errors import Invalid
from .validation import check_seconds
from .values import shown

LATEST = 253_402_300_799.0
"""The latest time of a start, the end of the year 9999, in Unix seconds."""


def check_delay(start_at: object, delay: object, *, reserve: object) -> None:
    """Raise `Invalid` for bad options of a delayed run."""
    if start_at is not None and delay is not None:
        raise Invalid(
            f"start_at and delay exclude each other (got {shown(start_at)} and {shown(delay)}): "
            "pass one of them"
        )
    unix_seconds(start_at)
    if delay is not None and check_seconds("delay", delay, 0) > LATEST:
        raise Invalid(f"delay must be at most {LATEST:,.0f} seconds (got {shown(delay)})", value=shown(delay))
    if not isinstance(reserve, bool):
        raise Invalid(f"reserve must be true or false (got {shown(reserve)})", value=shown(reserve))
    if reserve and start_at is None and delay is None:
        raise Invalid("reserve is only for a delayed run: pass start_at or delay, too")


def unix_seconds(start_at: object) -> float | None:
    """Return the time of a start in Unix seconds. Raises `Invalid`."""
    if start_at is None:
        return None
    if isinstance(start_at, datetime):
        if start_at.utcoffset() is None:
            raise Invalid(
                f"start_at must have a time zone (got {start_at.isoformat()}): for example "
                "datetime.now(timezone.utc), or datetime.astimezone() for local time",
                value=start_at.isoformat(),
            )
        return max(0.0, start_at.timestamp())
    # NaN is not `>= 0`.
    if isinstance(start_at, bool) or not isinstance(start_at, int | float) or not 0 <= start_at <= LATEST:
        raise Invalid(
            f"start_at must be Unix seconds between 0 and {LATEST:.0f}, or an aware datetime "
            f"(got {shown(start_at)})",
            value=shown(start_at),
        )
    return float(start_at)


def not_before(start_at: object, delay: float | None, now: float) -> float | None:
    """Return the time before which a run does not start, if it is later than now. The options are checked."""
    at = unix_seconds(start_at) if delay is None else min(now + delay, LATEST)
    return at if at is not None and at > now else None


def check_deadline(deadline: float | None, not_before: float, now: float) -> None:
    """Raise `Invalid` if a delayed run could not start before its deadline, which is in seconds from now."""
    if deadline is not None and deadline != math.inf and now + deadline <= not_before:
        raise Invalid(
            f"deadline must be later than the start of the run, {not_before - now:g} s after its submission "
            f"(got {deadline:g} s): the deadline counts from the submission",
            value=deadline,
        )
