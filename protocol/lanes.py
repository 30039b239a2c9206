"""The rules by which a lane chooses its next run, in addition to its limit; and the order that follows from
them, as formulas.

The rank of a queued run is

    rank = queued_at - priority * age

where `queued_at` is when the run got its place, and `age` is the lane's: after `age` seconds of waiting, a run
has gained one step of priority on one that arrives then. Of two runs, the one with the lower rank is first;
of equal ranks, the lower place. So runs of equal priority are in the order of their places.

With `fair_by`, the keys of a lane take turns. They stand in a ring. A key joins at its end with its first
queued run, and leaves with its last. The first key in the ring with a run that can start does start one,
the one with the lowest rank; after as many starts as its weight, it goes to the end of the ring.

A rate `count/period` with `burst` is a bucket with room for `burst` tokens, full at first, which gains
`count` tokens in each period. A run that starts a body takes a token; without one, it waits. So in any `t`
seconds, at most `burst + t * count / period` bodies start.

A run that goes on in the body that it has, after a wait, takes neither a turn nor a token.
"""

from __future__ import annotations

import math
import re
from typing import Any, Literal, get_args

import msgspec

from .errors import Invalid
from .names import MAX_NAME, check_name
from .suggestions import suggestion
from .validation import check_limit, check_seconds, check_text
from .values import shown

RatePer = Literal["lane", "key"]

LOWEST_PRIORITY, HIGHEST_PRIORITY = -100, 100

_MOST_WEIGHT = 1000
_MOST_WEIGHTS = 1000
_RATE = re.compile(r"(\d{1,9})\s*/\s*(\d{0,9})\s*(s|sec|second|min|minute|h|hour|d|day)")
_SECONDS = {
    "s": 1,
    "sec": 1,
    "second": 1,
    "min": 60,
    "minute": 60,
    "h": 3600,
    "hour": 3600,
    "d": 86400,
    "day": 86400,
}


class LaneRules(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """How a lane chooses its next run; see the module's docstring.

    `fair_by` is the path of the parameter by which its runs take turns, such as `tenant` or `user.id`; a run
    that was submitted with a key has that key instead. `limit_per_key` bounds the executing runs of one key.
    `rate_per`: whether the lane has one bucket, or each key its own. `age` is `None` if waiting does not raise
    a run's priority. `priority` is that of runs for which neither the submission nor the job has one.
    """

    fair_by: str | None = None
    weights: dict[str, int] = {}
    limit_per_key: int | None = None
    rate: str | None = None
    burst: int = 1
    rate_per: RatePer = "lane"
    age: float | None = 60.0
    priority: int = 0

    @property
    def interval(self) -> float:
        """The seconds in which a bucket gains one token."""
        assert self.rate is not None, "the lane has a rate"
        return _interval(self.rate)

    @property
    def has_keys(self) -> bool:
        """Whether the lane tells its runs apart by key."""
        return self.fair_by is not None or self.limit_per_key is not None or self.rate_per == "key"


DEFAULT_RULES = LaneRules()
NAMES = tuple(LaneRules.__struct_fields__)


def check_rules(lane: str, given: dict[str, Any]) -> LaneRules:
    """Return the rules of a lane from what a caller wrote. Raises `Invalid` with the name of what is wrong."""
    about = f"of lane {shown(lane)}"
    for name in given:
        if name not in NAMES:
            raise Invalid(f"lane {shown(lane)} has no setting {shown(name)}{suggestion(name, NAMES)}")
    rules = LaneRules(**given)
    if rules.fair_by is not None:
        check_path(f"fair_by {about}", rules.fair_by)
    _check_weights(f"weights {about}", rules.weights)
    if rules.limit_per_key is not None:
        _check_whole(f"limit_per_key {about}", rules.limit_per_key)
    if rules.rate is not None:
        _check_rate(f"rate {about}", rules.rate)
    _check_whole(f"burst {about}", rules.burst)
    if rules.rate_per not in get_args(RatePer):
        raise Invalid(f'rate_per {about} must be "lane" or "key" (got {shown(rules.rate_per)})')
    if rules.rate is None and (rules.burst != 1 or rules.rate_per != "lane"):
        raise Invalid(f"burst and rate_per {about} require a rate, such as 100/min")
    check_priority(f"priority {about}", rules.priority)
    age = rules.age
    if age is not None and check_seconds(f"age {about}", age, 0) == 0:
        raise Invalid(f"age {about} must be more than 0 seconds, or none (got {shown(age)})")
    if age is not None and math.isinf(age):
        age = None
    return msgspec.structs.replace(
        rules, age=None if age is None else float(age), weights=dict(rules.weights)
    )


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
    if not all(path.split(".")):
        raise Invalid(f"{what} must be names with dots between them, such as user.id (got {shown(path)})")
    return path


def key_of(rules: LaneRules, key: str | None, params: Any) -> str | None:
    """Return the key by which a lane tells a run apart; `None` if it has none."""
    if key is not None or rules.fair_by is None:
        return key
    found = params
    for name in rules.fair_by.split("."):
        if not isinstance(found, dict):
            return None
        found = found.get(name)
    if found is None or isinstance(found, dict | list):
        return None
    text = found if isinstance(found, str) else msgspec.json.encode(found).decode()
    return text[:MAX_NAME]


def rank(queued_at: float, priority: int, rules: LaneRules) -> float:
    """Return the rank of a run; see the module's docstring. Without ageing, priority is all that counts."""
    if not priority:
        return queued_at
    return queued_at - priority * (_NEVER if rules.age is None else rules.age)


_NEVER = 1e12
"""Seconds that no run waits: as `age`, it leaves the order to the priorities."""


def _interval(rate: str) -> float:
    found = _RATE.fullmatch(rate.strip())
    assert found is not None, "the rate is checked"
    count, periods, unit = found.groups()
    return (int(periods) if periods else 1) * _SECONDS[unit] / int(count)


def _check_rate(what: str, rate: object) -> None:
    if not isinstance(rate, str) or _RATE.fullmatch(rate.strip()) is None or _is_zero(rate):
        raise Invalid(
            f"{what} must be a count per s, min, h or day, such as 100/min or 1/10s (got {shown(rate)}); to let "
            f"nothing start, pause the lane"
        )


def _is_zero(rate: str) -> bool:
    count, _, period = rate.partition("/")
    return int(count) == 0 or re.match(r"\s*0+\s*[a-z]", period) is not None


def _check_weights(what: str, weights: object) -> None:
    if not isinstance(weights, dict) or len(weights) > _MOST_WEIGHTS:
        raise Invalid(f"{what} must be a table of at most {_MOST_WEIGHTS:,} keys (got {shown(weights)})")
    for key, weight in weights.items():
        check_name(f"key in {what}", key)
        _check_whole(f"{what}: the weight of {shown(key)}", weight, _MOST_WEIGHT)


def _check_whole(what: str, value: object, most: int | None = None) -> None:
    check_limit(what, value)
    if value == 0 or (most is not None and value > most):  # type: ignore[operator]  # an integer: just checked
        upper = "" if most is None else f" and at most {most:,}"
        raise Invalid(f"{what} must be at least 1{upper} (got {shown(value)})")
