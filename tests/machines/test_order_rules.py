"""The order with priorities, fairness, limits per key and rates: the implementation against the formulas."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from greenroom.actors.scheduling.order import Order
from greenroom.protocol.lanes import LaneRules, rank

LANES = ("a", "b")
KEYS = (None, "x", "y", "z")


class Queued(NamedTuple):
    run: str
    lane: str
    place: int
    queued_at: float
    priority: int
    key: str | None
    has_body: bool
    privileged: bool


class ModelLane:
    """A lane as the formulas describe it, evaluated anew for each slot."""

    def __init__(self) -> None:
        self.rules = LaneRules()
        self.limit: int | None = None
        self.paused = False
        self.executing: dict[str, str | None] = {}
        self.queued: list[Queued] = []
        self.ring: list[str | None] = []
        self.left: dict[str | None, int] = {}
        self.tokens: dict[str | None, float] = {}
        self.at = 0.0

    def weight(self, key: str | None) -> int:
        return self.rules.weights.get(key or "", 1)

    def advance(self, now: float) -> None:
        if self.rules.rate is not None:
            gained = (now - self.at) / self.rules.interval
            self.tokens = {key: min(self.rules.burst, it + gained) for key, it in self.tokens.items()}
        self.at = now

    def bucket(self, run: Queued) -> str | None:
        return run.key if self.rules.rate_per == "key" else None

    def takes_token(self, run: Queued) -> bool:
        if self.rules.rate is None or run.has_body:
            return False
        return self.rules.rate_per == "lane" or run.key is not None

    def join(self, run: Queued) -> None:
        self.queued.append(run)
        if not run.has_body and run.key not in self.ring:
            self.ring.append(run.key)
            self.left[run.key] = self.weight(run.key)

    def part(self, run: Queued) -> None:
        self.queued.remove(run)
        if run.key in self.ring and not any(it.key == run.key and not it.has_body for it in self.queued):
            self.ring.remove(run.key)

    def can_start(self, run: Queued, holding: bool) -> bool:
        if holding and not run.privileged:
            return False
        if self.takes_token(run) and self.tokens.get(self.bucket(run), self.rules.burst) < 1 - 1e-9:
            return False
        limit = self.rules.limit_per_key
        return limit is None or run.key is None or list(self.executing.values()).count(run.key) < limit

    def candidates(self, holding: bool) -> list[Queued]:
        """The runs of the lane that could be the next: with fairness, new ones only of the key whose turn it
        is."""
        if self.paused or (self.limit is not None and len(self.executing) >= self.limit):
            return []
        able = [run for run in self.queued if self.can_start(run, holding)]
        if self.rules.fair_by is None:
            return able
        turn = next((key for key in self.ring if any(it.key == key and not it.has_body for it in able)), None)
        return [run for run in able if run.has_body or run.key == turn]

    def start(self, run: Queued) -> None:
        if not run.has_body:
            self.left[run.key] -= 1
            if not self.left[run.key]:
                self.ring.remove(run.key)
                self.ring.append(run.key)
                self.left[run.key] = self.weight(run.key)
        if self.takes_token(run):
            bucket = self.bucket(run)
            self.tokens[bucket] = self.tokens.get(bucket, self.rules.burst) - 1
        self.part(run)
        self.executing[run.run] = run.key


RULES = st.builds(
    LaneRules,
    fair_by=st.sampled_from((None, "tenant")),
    weights=st.sampled_from(({}, {"x": 2}, {"x": 3, "y": 2})),
    limit_per_key=st.sampled_from((None, 1, 2)),
    rate=st.sampled_from((None, "1/s", "1/4s")),
    burst=st.sampled_from((1, 2)),
    rate_per=st.sampled_from(("lane", "key")),
    age=st.sampled_from((1.0, 8.0, None)),
)


class OrderMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.order = Order()
        self.order.limit = 3
        self.lanes = {name: ModelLane() for name in LANES}
        for name in LANES:
            self.order.set_limit(name, None)
        self.now, self.places, self.holding = 0.0, 0, False

    def queued(self) -> list[Queued]:
        return [run for lane in self.lanes.values() for run in lane.queued]

    def key(self, lane: ModelLane, run: Any) -> str | None:
        return run.key if lane.rules.has_keys else None

    @rule(
        lane=st.sampled_from(LANES),
        priority=st.sampled_from((0, 0, 0, 1, 5, -2)),
        key=st.sampled_from(KEYS),
        has_body=st.booleans(),
        privileged=st.booleans(),
    )
    def enter(self, lane: str, priority: int, key: str | None, has_body: bool, privileged: bool) -> None:
        self.places += 1
        run = Queued(
            str(self.places), lane, self.places, self.now, priority, key, has_body, privileged or has_body
        )
        self.lanes[lane].join(run)
        self.order.enter(
            run.run,
            lane,
            run.place,
            privileged=run.privileged,
            queued_at=self.now,
            priority=priority,
            key=key,
            has_body=has_body,
        )

    @precondition(lambda self: self.queued())
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(self.queued()))
        self.lanes[run.lane].part(run)
        self.order.leave(run.run, run.lane)

    @precondition(lambda self: self.queued())
    @rule(data=st.data(), priority=st.sampled_from((0, 1, 3, -4)))
    def change_priority(self, data: st.DataObject, priority: int) -> None:
        run = data.draw(st.sampled_from(self.queued()))
        lane = self.lanes[run.lane]
        lane.queued[lane.queued.index(run)] = run._replace(priority=priority)
        self.order.set_priority(run.run, run.lane, priority)

    @precondition(lambda self: self.order.executing)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(sorted(self.order.executing)))
        lane = next(name for name, lane in self.lanes.items() if run in lane.executing)
        del self.lanes[lane].executing[run]
        self.order.release(run, lane, self.order.executing[run], self.now, body_waits=False)

    @rule(lane=st.sampled_from(LANES), rules=RULES)
    def set_rules(self, lane: str, rules: LaneRules) -> None:
        model = self.lanes[lane]
        keys = {run.run: run.key for run in model.queued} | model.executing
        before = model.rules
        if rules == before:
            self.order.set_rules(lane, rules, self.now, keys.__getitem__)
            return
        same_buckets = None not in (rules.rate, before.rate) and rules.rate_per == before.rate_per
        keeps_ring = before.has_keys and rules.has_keys and rules.fair_by == before.fair_by
        lacking = {key: (model.rules.burst - it) * model.rules.interval for key, it in model.tokens.items()}
        model.rules = rules
        model.tokens = {}
        if same_buckets:
            most = rules.burst * rules.interval if rules.interval != before.interval else float("inf")
            model.tokens = {
                key: rules.burst - min(most, seconds) / rules.interval for key, seconds in lacking.items()
            }
        ring, left = (model.ring, dict(model.left)) if keeps_ring else ([], {})
        model.ring = []
        queued, model.queued = sorted(model.queued, key=lambda run: run.place), []
        for run in queued:
            model.join(run)
        model.ring.sort(key=lambda key: ring.index(key) if key in ring else len(ring))
        model.left |= {key: min(left[key], model.weight(key)) for key in model.ring if key in ring}
        self.order.set_rules(lane, rules, self.now, keys.__getitem__)

    @rule(lane=st.sampled_from(LANES), limit=st.sampled_from((None, 0, 1, 2)))
    def set_limit(self, lane: str, limit: int | None) -> None:
        self.lanes[lane].limit = limit
        self.order.set_limit(lane, limit)

    @rule(lane=st.sampled_from(LANES), paused=st.booleans())
    def pause(self, lane: str, paused: bool) -> None:
        self.lanes[lane].paused = paused
        self.order.pause(lane, paused=paused)

    @rule(lane=st.sampled_from(LANES))
    def reset(self, lane: str) -> None:
        assert sorted(self.order.reset(lane)) == sorted(self.lanes[lane].executing)
        self.lanes[lane].executing.clear()

    @rule(holding=st.booleans())
    def hold(self, holding: bool) -> None:
        self.holding = holding
        self.order.hold(holding)

    @rule()
    def regroup(self) -> None:
        self.order.regroup()

    @rule(seconds=st.sampled_from((0.25, 1.0, 4.0)))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for lane in self.lanes.values():
            lane.advance(self.now)

    @invariant()
    def slots_are_granted_by_the_formula(self) -> None:
        granted: list[str] = []
        while slots := list(self.order.grants(self.now, lambda _: False)):
            granted += [slot.run for slot in slots]
            for slot in slots:
                self.order.settle(slot.run, self.now, starts=True)
        assert granted == self._grants()

    @invariant()
    def the_deadline_is_that_of_the_next_token(self) -> None:
        assert self.order.deadline() > self.now

    @invariant()
    def nothing_is_kept_of_lanes_without_runs(self) -> None:
        for name, lane in self.lanes.items():
            if not lane.queued and not lane.executing and lane.rules.rate is None:
                assert name not in self.order.lanes

    def _grants(self) -> list[str]:
        granted: list[str] = []
        while sum(len(lane.executing) for lane in self.lanes.values()) < self.order.limit:
            able = [run for lane in self.lanes.values() for run in lane.candidates(self.holding)]
            if not able:
                break
            run = min(
                able, key=lambda it: (rank(it.queued_at, it.priority, self.lanes[it.lane].rules), it.place)
            )
            self.lanes[run.lane].start(run)
            granted.append(run.run)
        return granted


TestOrderMachine = OrderMachine.TestCase
TestOrderMachine.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)


def test_a_change_of_the_priority_keeps_the_turn_of_the_key() -> None:
    order = Order()
    order.limit = 1
    order.set_rules("a", LaneRules(fair_by="tenant"), 0.0, lambda run: None)
    for place, key in enumerate("zxy"):
        order.enter(f"of {key}", "a", place, privileged=False, key=key)
    assert [slot.run for slot in order.grants(0.0, lambda run: False)] == ["of z"]
    order.set_priority("of x", "a", -5)
    order.release("of z", "a", 0, 0.0, body_waits=False)
    assert [slot.run for slot in order.grants(0.0, lambda run: False)] == ["of x"]


def test_a_change_of_other_rules_keeps_the_turns_of_the_keys() -> None:
    order = Order()
    order.limit = 1
    order.set_rules("a", LaneRules(fair_by="tenant"), 0.0, lambda run: None)
    keys = {f"big {number}": "big" for number in range(9)} | {"small": "small"}
    for place, (run, key) in enumerate(keys.items()):
        order.enter(run, "a", place, privileged=False, key=key)
    started: list[str] = []
    for number in range(3):
        started += [slot.run for slot in order.grants(0.0, lambda run: False)]
        order.set_rules("a", LaneRules(fair_by="tenant", age=60.0 + number), 0.0, keys.__getitem__)
        order.release(started[-1], "a", 0, 0.0, body_waits=False)
    assert started == ["big 0", "small", "big 1"]


def test_unchanged_rules_of_empty_buckets_cost_no_memory() -> None:
    order = Order()
    order.limit = 100
    rules = LaneRules(rate="1/d", rate_per="key")
    order.set_limit("a", None)
    order.set_rules("a", rules, 0.0, lambda run: None)
    for number in range(50):
        order.enter(f"{number}", "a", number, privileged=False, key=f"{number}")
    for slot in list(order.grants(0.0, lambda run: False)):
        order.settle(slot.run, 0.0, starts=True)
    for number in range(20):
        order.set_rules("a", LaneRules(rate="1/d", rate_per="key", age=60.0 + number % 2), 0.0, str)
    assert len(order._tokens.opens) == 50
