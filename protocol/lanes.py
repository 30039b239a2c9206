"""The rules by which a lane chooses its next run, in addition to its limit; and the order that follows from
them, as formulas.

The rank of a queued run is

    rank = queued_at - priority * age

where `queued_at` is when the run got its place, and `age` is the lane's: after `age` seconds of waiting, a
run has gained one step of priority on one that arrives then. Of two runs, the one with the lower rank is
first; of equal ranks, the lower place. So runs of equal priority are in the order of their places.

With `fair_by`, the keys of a lane take turns. They stand in a ring. A key joins at its end with its first
queued run, and leaves with its last. The first key in the ring with a run that can start does start one,
the one with the lowest rank; after as many starts as its weight, it goes to the end of the ring.

A rate `count/period` with `burst` is a bucket with room for `burst` tokens, full at first, which gains
`count` tokens in each period. A run that starts a body takes a token; without one, it waits. So in any `t`
seconds, at most `burst + t * count / period` bodies start.

A run that goes on in the body that it has, after a wait, takes neither a turn nor a token.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from .names import MAX_NAME
from .notify import Notify

RatePer = Literal["lane", "key"]

RATE = re.compile(r"(\d{1,9})\s*/\s*(\d{0,9})\s*(s|sec|second|min|minute|h|hour|d|day)", re.ASCII)
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
    `rate_per`: whether the lane has one bucket, or each key its own. `age` is `None` if waiting does not
    raise a run's priority. `priority` is that of runs for which neither the submission nor the job has one.
    `notify` is where the events of its later runs are delivered.
    """

    fair_by: str | None = None
    weights: dict[str, int] = {}
    limit_per_key: int | None = None
    rate: str | None = None
    burst: int = 1
    rate_per: RatePer = "lane"
    age: float | None = 60.0
    priority: int = 0
    notify: Notify | None = None

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
    found = RATE.fullmatch(rate.strip())
    assert found is not None, "the rate is checked"
    count, periods, unit = found.groups()
    return (int(periods) if periods else 1) * _SECONDS[unit] / int(count)
