"""Rule 3 where lanes have rules: priorities, fairness, limits per key, rates and pauses.

The formulas are those of `protocol/lanes.py`, evaluated on the committed events. Of fairness, this rule
checks what follows from the ring for every order of events: while a run of one key can start, any other key
starts at most as many runs as its weight. The ring itself is compared with a plain model where there are no
races.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from ...protocol.events import LaneChanged, RunStateChanged
from ...protocol.lanes import DEFAULT_RULES, LaneRules, key_of, rank
from ..model.state import ModelRun, ModelState

_MOMENT = 0.01
"""Seconds that can pass between a decision and the time of its event."""


class _Passed(msgspec.Struct):
    """How often each other key started a run while this run waited, since its own key's last start."""

    run: str
    starts: dict[str | None, int]


class LaneRulesCheck:
    """Checks the starts in lanes with rules."""

    def __init__(self, model: ModelState) -> None:
        self._model = model
        self._full_at: dict[tuple[str, str | None], float] = {}  # of the buckets
        self._passed: defaultdict[str, dict[str | None, _Passed]] = defaultdict(dict)

    def opened(self) -> None:
        """After a restart, the keys stand in new rings."""
        self._passed.clear()

    def changed(self, event: LaneChanged, before: LaneRules) -> None:
        """The rules of a lane changed."""
        self._passed.pop(event.lane, None)
        rules = event.rules
        kept = rules.rate is not None and rules.rate_per == before.rate_per
        for lane, key in [it for it in self._full_at if it[0] == event.lane]:
            if kept:
                latest = event.at + rules.burst * rules.interval
                self._full_at[lane, key] = min(self._full_at[lane, key], latest)
            else:
                del self._full_at[lane, key]

    def key(self, run: ModelRun) -> str | None:
        """The key by which the lane of a run tells it apart."""
        return key_of(self._model.lane(run.lane).rules, run.key, run.params)

    def begins(self, event: RunStateChanged, run: ModelRun) -> str | None:
        """Check a grant. Returns the reason why the run must not start, or `None`."""
        lane = self._model.lane(run.lane)
        if lane.paused:
            return f"lane {run.lane} is paused"
        if lane.rules == DEFAULT_RULES:
            return None
        if not self.key_has_room(run):
            return f"{lane.rules.limit_per_key} runs with key {self.key(run)} execute already in {run.lane}"
        if event.interactive is None:
            return None  # it goes on in its body
        return self._takes_token(event, run)

    def key_has_room(self, run: ModelRun) -> bool:
        """Whether the limit per key lets a run start."""
        limit, key = self._model.lane(run.lane).rules.limit_per_key, self.key(run)
        if limit is None or key is None:
            return True
        return sum(self.key(other) == key for other in self._model.holders(run.lane)) < limit

    def may_lack_token(self, run: ModelRun, now: float) -> bool:
        """Whether a run may wait for a token. A start that was refused has taken its token, too."""
        rules = self._model.lane(run.lane).rules
        if rules.rate is None or run.has_body:
            return False
        full_at = self._full_at.get((run.lane, self._bucket(run)), 0.0)
        return now <= full_at + rules.burst * rules.interval

    def precedes(self, other: ModelRun, run: ModelRun, now: float) -> bool:
        """Whether a queued run had to start before another one, if there was room for it."""
        lane, own = self._model.lane(other.lane), self._model.lane(run.lane)
        if lane.paused or not self.key_has_room(other) or self.may_lack_token(other, now):
            return False
        if lane.rules.fair_by is not None and not other.has_body:
            if lane is own:
                if run.has_body or self.key(other) != self.key(run):
                    return False  # it was another key's turn
            elif any(not self._is_before(each, run) for each in self._model.queues().get(other.lane, [])):
                return False  # it may not have been the turn of this run
        return self._is_before(other, run)

    def _is_before(self, other: ModelRun, run: ModelRun) -> bool:
        first, second = self._rank(other), self._rank(run)
        if other.priority == run.priority == 0 or (other.priority, other.lane) == (run.priority, run.lane):
            return (other.place or 0) < (run.place or 0)
        return first < second - _MOMENT

    def _rank(self, run: ModelRun) -> float:
        return rank(run.placed_at, run.priority, self._model.lane(run.lane).rules)

    def _bucket(self, run: ModelRun) -> str | None:
        return self.key(run) if self._model.lane(run.lane).rules.rate_per == "key" else None

    def _takes_token(self, event: RunStateChanged, run: ModelRun) -> str | None:
        rules, bucket = self._model.lane(run.lane).rules, (run.lane, self._bucket(run))
        if rules.rate is None or (rules.rate_per == "key" and bucket[1] is None):
            return None
        full_at = self._full_at.get(bucket, event.at)
        self._full_at[bucket] = max(full_at, event.at) + rules.interval
        opens_at = full_at - (rules.burst - 1) * rules.interval
        if opens_at > event.at + _MOMENT:
            return f"the rate {rules.rate} of {bucket} has no token before {opens_at}, and it is {event.at}"
        return None

    def take_turn(self, run: ModelRun, now: float, *, draining: bool) -> list[ModelRun]:
        """A run starts a body. Returns the runs of other keys whose turn it was."""
        lane = self._model.lane(run.lane)
        if lane.rules.fair_by is None or draining:
            self._passed.pop(run.lane, None)
            return []
        passed, key = self._passed[run.lane], self.key(run)
        waiting: dict[str | None, ModelRun] = {}
        for other in self._model.queues().get(run.lane, []):
            if other is not run and not other.has_body and not other.deaths:
                waiting.setdefault(self.key(other), other)
        for each in (key, *[name for name in passed if name not in waiting]):
            passed.pop(each, None)
            waiting.pop(each, None)
        overdue: list[ModelRun] = []
        for name, other in waiting.items():
            known = passed.get(name)
            if known is not None and not self._model.runs[known.run].is_in_queue:
                del passed[name]  # its key may have left the ring, and joined it again
            if not self.key_has_room(other) or self.may_lack_token(other, now):
                passed.pop(name, None)
                continue
            starts = passed.setdefault(name, _Passed(other.id, {})).starts
            starts[key] = starts.get(key, 0) + 1
            if starts[key] > lane.rules.weights.get(key or "", 1):
                overdue.append(other)
        return overdue
