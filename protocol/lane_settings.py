"""Checks of the settings of lanes: what callers and configurations write."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, get_args

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from .errors import Invalid
from .lanes import DEFAULT_RULES, NAMES, RATE, LaneRules, RatePer
from .names import MAX_NAME, check_name
from .notify import read_notify
from .suggestions import suggestion
from .validation import check_limit, check_text
from .values import shown

LOWEST_PRIORITY, HIGHEST_PRIORITY = -100, 100

MOST_WEIGHT = 1000
_MOST_WEIGHTS = 1000
_LONGEST_AGE = 1e9


_OF_NONE = {name: getattr(DEFAULT_RULES, name) for name in ("weights", "burst", "rate_per", "priority")}
"""What `None` means for rules that are always set. For the others it is no such rule."""


class LaneConfig(msgspec.Struct, frozen=True, gc=False):
    """What is configured of a lane: its limit, and changes of its rules. The rest remains as it is."""

    limit: int | UnsetType | None = UNSET
    changes: dict[str, Any] = {}


LaneSettings = int | Mapping[str, Any] | None
"""A lane's limit (`None` for only the global limit), or a table with its limit and rules."""


def read_lane(lane: str, settings: LaneSettings) -> LaneConfig:
    """Read the settings of a lane. Raises `Invalid`."""
    if not isinstance(settings, Mapping):
        return LaneConfig(_limit(lane, settings))
    changes = dict(settings)
    limit = _limit(lane, changes.pop("limit")) if "limit" in changes else UNSET
    check_rules(lane, changes, also=("limit",))
    return LaneConfig(limit, changes)


def check_rules(
    lane: str, changes: Mapping[str, Any], base: LaneRules = DEFAULT_RULES, *, also: tuple[str, ...] = ()
) -> LaneRules:
    """Return the rules of a lane after changes. Raises `Invalid` with the name of what is wrong."""
    about = f"of lane {shown(lane)}"
    check_names(lane, changes, also=also)
    given = {name: _OF_NONE.get(name) if value is None else value for name, value in changes.items()}
    rules = replace(base, **given)
    if rules.fair_by is not None:
        check_path(f"fair_by {about}", rules.fair_by)
    _check_weights(f"weights {about}", rules.weights)
    if rules.limit_per_key is not None:
        _check_whole(f"limit_per_key {about}", rules.limit_per_key)
    if rules.rate is not None:
        _check_rate(f"rate {about}", rules.rate)
    elif any(changes.get(name) is not None for name in ("burst", "rate_per")):
        raise Invalid(f"burst and rate_per {about} require a rate, such as 100/min")
    else:
        rules = replace(rules, burst=1, rate_per="lane")
    _check_whole(f"burst {about}", rules.burst)
    if rules.rate_per not in get_args(RatePer):
        raise Invalid(f'rate_per {about} must be "lane" or "key" (got {shown(rules.rate_per)})')
    check_priority(f"priority {about}", rules.priority)
    age = rules.age
    if age is not None and not _is_above_zero(age):
        raise Invalid(f"age {about} must be a number of seconds above 0, or none (got {shown(age)})")
    age = None if age is None or age == math.inf else age
    if age is not None and age > _LONGEST_AGE:
        raise Invalid(f"age {about} must be at most {_LONGEST_AGE:,.0f} seconds, or none (got {shown(age)})")
    age = None if age is None else float(age)
    notify = None if rules.notify is None else read_notify(f"notify {about}", rules.notify)
    rules = replace(rules, age=age, weights=dict(rules.weights), notify=notify)
    return DEFAULT_RULES if rules == DEFAULT_RULES else rules  # the object itself is omitted on the wire


def check_names(lane: str, changes: Iterable[str], *, also: tuple[str, ...] = ()) -> None:
    """Raise `Invalid` for a name that is none of a rule."""
    for name in changes:
        if name == "limit" and "limit" not in also:
            raise Invalid(
                f"limit of lane {shown(lane)} is not a rule: set it with set_concurrency, or "
                "`greenroom lanes set`"
            )
        if name not in NAMES:
            raise Invalid(
                f"rules of lane {shown(lane)} do not include {shown(name)}{suggestion(name, (*also, *NAMES))}"
            )


def _limit(lane: str, limit: object) -> int | None:
    try:
        return None if limit is None else check_limit(f"limit of lane {lane!r}", limit)
    except Invalid as error:
        raise Invalid(f"{error.message}, or None for only the global limit", **error.details) from None


def check_priority(what: str, priority: object) -> int:
    """Check a priority: 0 is normal, and higher ones are first."""
    low, high = LOWEST_PRIORITY, HIGHEST_PRIORITY
    if isinstance(priority, bool) or not isinstance(priority, int) or not low <= priority <= high:
        raise Invalid(
            f"{what} must be an integer between {low} and {high} (got {shown(priority)})",
            value=shown(priority),
        )
    return priority


def check_path(what: str, path: object) -> str:
    """Check the path of a parameter: names with dots between them."""
    check_text(what, path)
    assert isinstance(path, str), "it is text"
    if len(path) > MAX_NAME or not all(path.split(".")):
        raise Invalid(
            f"{what} must be names with dots between them, such as user.id, of at most {MAX_NAME} characters "
            f"(got {shown(path)})"
        )
    return path


def _is_above_zero(seconds: object) -> bool:
    return not isinstance(seconds, bool) and isinstance(seconds, int | float) and seconds > 0


def _check_rate(what: str, rate: object) -> None:
    if not isinstance(rate, str) or RATE.fullmatch(rate.strip()) is None or _is_zero(rate):
        raise Invalid(
            f"{what} must be a count per s, min, h or day, such as 100/min or 1/10s (got {shown(rate)}); to "
            f"let nothing start, pause the lane"
        )


def _is_zero(rate: str) -> bool:
    count, _, period = rate.partition("/")
    return int(count) == 0 or re.match(r"\s*0+\s*[a-z]", period) is not None


def _check_weights(what: str, weights: object) -> None:
    if not isinstance(weights, dict) or len(weights) > _MOST_WEIGHTS:
        raise Invalid(f"{what} must be a table of at most {_MOST_WEIGHTS:,} keys (got {shown(weights)})")
    for key, weight in weights.items():
        check_name(f"key in {what}", key)
        _check_whole(f"{what}: the weight of {shown(key)}", weight, MOST_WEIGHT)


def _check_whole(what: str, value: object, most: int | None = None) -> None:
    whole = check_limit(what, value)
    if whole == 0 or (most is not None and whole > most):
        upper = "" if most is None else f" and at most {most:,}"
        raise Invalid(f"{what} must be at least 1{upper} (got {shown(value)})")
