"""The order of starts: the implementation against the formula, and each rule separately."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from greenroom.actors.scheduling.order import Order, Slot, Wait

LANES = ("main", "a", "b")


def never(run: str) -> bool:
    return False


def granted(order: Order, now: float = 0.0) -> list[str]:
    return [slot.run for slot in order.grants(now, never)]


def with_queue(limit: int, *runs: tuple[str, str, int], limits: dict[str, int | None] | None = None) -> Order:
    order = Order()
    order.limit = limit
    order.limits.update(limits or {})
    for run, lane, place in runs:
        order.enter(run, lane, place, privileged=False)
    return order


def test_slots_go_to_the_lowest_places_whatever_their_lanes() -> None:
    order = with_queue(3, ("c", "main", 3), ("b", "images", 2), ("a", "main", 1), ("d", "main", 4))
    assert granted(order) == ["a", "b", "c"]
    assert order.executing.keys() == {"a", "b", "c"}


def test_a_run_that_its_lane_delays_does_not_delay_others() -> None:
    order = with_queue(3, ("a", "x", 1), ("b", "x", 2), ("c", "main", 3))
    assert granted(order) == ["a", "c"]


def test_no_slot_is_granted_beyond_the_global_limit() -> None:
    order = with_queue(1, ("a", "main", 1), ("b", "main", 2))
    assert granted(order) == ["a"]
    assert granted(order) == []
    order.limit = 2
    assert granted(order) == ["b"]


def test_lowering_the_limit_of_a_lane_neither_revokes_nor_grants_slots() -> None:
    order = with_queue(9, ("a", "x", 1), ("b", "x", 2), ("c", "x", 3), limits={"x": 2})
    assert granted(order) == ["a", "b"]
    order.set_limit("x", 1)
    order.release("a", "x", 0, 0.0, body_waits=False)
    assert granted(order) == []
    order.release("b", "x", 0, 0.0, body_waits=False)
    assert granted(order) == ["c"]


def test_a_limit_of_0_pauses_a_lane() -> None:
    order = with_queue(9, ("a", "x", 1), limits={"x": 0})
    assert granted(order) == []
    order.set_limit("x", None)
    assert granted(order) == ["a"]


def test_a_lane_without_a_limit_has_one_slot_and_main_has_all() -> None:
    order = with_queue(9, ("a", "x", 1), ("b", "x", 2), ("c", "main", 3), ("d", "main", 4))
    assert granted(order) == ["a", "c", "d"]


def test_a_run_that_returns_with_its_place_precedes_later_runs() -> None:
    order = with_queue(1, ("a", "main", 1), ("b", "main", 2))
    assert granted(order) == ["a"]
    order.release("a", "main", 0, 0.0, body_waits=False)
    order.enter("a", "main", 1, privileged=True)
    assert granted(order) == ["a"]


def test_a_run_that_leaves_the_queue_is_passed_over() -> None:
    order = with_queue(1, ("a", "x", 1), ("b", "x", 2))
    order.leave("a", "x")
    assert granted(order) == ["b"]


def test_leaving_a_queue_that_does_not_contain_the_run_changes_nothing() -> None:
    order = with_queue(1, ("a", "x", 1))
    order.leave("z", "x")
    order.leave("z", "nowhere")
    assert granted(order) == ["a"]
    order.leave("a", "x")
    assert order.executing == {"a": 0}


def test_a_slot_of_an_older_generation_frees_nothing() -> None:
    order = with_queue(1, ("a", "x", 1), ("b", "x", 2), ("c", "x", 3))
    assert granted(order) == ["a"]
    assert order.reset("x") == ["a"]
    assert list(order.grants(0.0, never)) == [Slot("b", 1)]
    order.release("a", "x", 0, 0.0, body_waits=False)
    assert granted(order) == []
    order.release("b", "x", 1, 0.0, body_waits=False)
    assert list(order.grants(0.0, never)) == [Slot("c", 1)]


def test_a_run_that_has_a_slot_again_after_a_reset_keeps_it_when_its_old_slot_is_released() -> None:
    order = with_queue(1, ("a", "x", 1))
    assert granted(order) == ["a"]
    order.reset("x")
    order.enter("a", "x", 1, privileged=True)
    assert list(order.grants(0.0, never)) == [Slot("a", 1)]
    order.release("a", "x", 0, 0.0, body_waits=False)
    assert order.executing == {"a": 1}


def test_a_reset_of_a_lane_without_runs_raises_its_generation() -> None:
    order = with_queue(1)
    assert order.reset("x") == []
    order.enter("a", "x", 1, privileged=False)
    assert list(order.grants(0.0, never)) == [Slot("a", 1)]


def test_while_the_engine_drains_only_privileged_runs_start_in_order() -> None:
    order = with_queue(9, ("a", "main", 1))
    order.enter("b", "main", 2, privileged=True)
    order.hold(True)
    order.enter("c", "main", 3, privileged=True)
    order.enter("d", "main", 4, privileged=False)
    assert granted(order) == ["b", "c"]
    order.hold(False)
    assert granted(order) == ["a", "d"]


def test_a_run_that_is_due_to_end_gets_no_slot_and_its_lane_continues() -> None:
    order = with_queue(1, ("a", "x", 1), ("b", "x", 2))
    assert [slot.run for slot in order.grants(0.0, lambda run: run == "a")] == ["b"]
    order.release("b", "x", 0, 0.0, body_waits=False)
    assert granted(order) == []


def test_runs_on_trial_execute_one_at_a_time_and_delay_no_others() -> None:
    order = with_queue(9, ("a", "x", 1), ("b", "x", 2), ("c", "x", 3), limits={"x": None})
    order.trials.begin({"a": 1, "b": 1})
    assert granted(order) == ["a", "c"]
    order.release("a", "x", 0, 1.0, body_waits=False)
    assert order.trials.take_back() == ["b"]
    order.enter("b", "x", 2, privileged=True)
    assert granted(order, 1.0) == ["b"]


def test_the_trial_of_a_run_lasts_as_long_as_its_slot() -> None:
    order = with_queue(9, ("a", "main", 1), ("b", "main", 2))
    order.trials.begin({"a": 1, "b": 1})
    assert granted(order) == ["a"]
    order.leave("a", "main")
    assert order.trials.take_back() == []
    order.release("a", "main", 0, 1.0, body_waits=False)
    assert order.trials.take_back() == ["b"]


def test_a_wait_names_the_executing_runs_of_a_full_lane_or_else_all() -> None:
    order = with_queue(2, ("a", "x", 1), ("b", "main", 2), ("c", "x", 3), ("d", "main", 4), ("e", "main", 5))
    assert granted(order) == ["a", "b"]
    assert order.wait_of("c", "x", 0.0) == Wait(0, ["a"])
    assert order.wait_of("e", "main", 0.0) == Wait(1, ["a", "b"])
    assert order.wait_of("a", "x", 0.0) is None
    assert order.wait_of("a", "nowhere", 0.0) is None


def test_a_lane_without_runs_keeps_only_its_limit_and_generation() -> None:
    order = with_queue(9, ("a", "x", 1), ("b", "x", 2), limits={"x": 2})
    order.reset("x")
    assert granted(order) == ["a", "b"]
    order.release("a", "x", 1, 0.0, body_waits=False)
    order.release("b", "x", 1, 0.0, body_waits=False)
    assert list(order.lanes) == []
    order.enter("c", "x", 3, privileged=False)
    (report,) = order.reports()
    assert report == {
        "kind": "lane",
        "name": "x",
        "limit": 2,
        "paused": False,
        "generation": 1,
        "executing": [],
        "queued": 1,
    }


def test_an_order_with_a_limit_of_0_grants_nothing() -> None:
    order = Order()
    order.enter("a", "main", 1, privileged=False)
    assert granted(order) == []


def test_a_lane_that_no_longer_has_room_when_it_is_next_waits_for_it() -> None:
    order = with_queue(1, ("a", "x", 1), ("b", "x", 2), limits={"x": 2})
    assert granted(order) == ["a"]
    order.limit = 2
    order.set_limit("x", 1)
    assert granted(order) == []
    order.release("a", "x", 0, 0.0, body_waits=False)
    assert granted(order) == ["b"]


def test_a_run_that_returns_with_its_place_to_an_empty_queue_gets_its_slot() -> None:
    order = with_queue(2, ("a", "main", 1), ("b", "main", 2))
    assert granted(order) == ["a", "b"]
    order.release("b", "main", 0, 0.0, body_waits=False)
    order.enter("b", "main", 2, privileged=True)
    assert granted(order) == ["b"]


def test_a_lane_whose_last_run_has_left_is_forgotten() -> None:
    order = with_queue(1, ("a", "x", 1), ("b", "y", 2), ("c", "z", 3))
    order.leave("a", "x")
    assert list(order.lanes) == ["y", "z"]
    assert list(order.grants(0.0, lambda run: run == "b")) == [Slot("c", 0)]
    assert list(order.lanes) == ["z"]
    order.reset("z")
    assert list(order.lanes) == []


def test_a_run_that_waits_for_its_trial_and_leaves_is_not_tried() -> None:
    order = with_queue(9, ("a", "main", 1), ("b", "main", 2), ("c", "main", 3))
    order.trials.begin({"a": 1, "b": 1, "c": 1})
    assert granted(order) == ["a"]
    order.leave("b", "main")
    order.release("a", "main", 0, 1.0, body_waits=False)
    assert order.trials.take_back() == ["c"]
    order.enter("c", "main", 3, privileged=True)
    assert granted(order, 1.0) == ["c"]


class Formula(RuleBasedStateMachine):
    """Any sequence of changes: the runs that get slots are those of the formula, computed from scratch."""

    @initialize(limit=st.integers(0, 4))
    def begin(self, limit: int) -> None:
        self.order = Order()
        self.order.limit = limit
        self.limits: dict[str, int | None] = {"main": None, "a": 1, "b": 1}
        self.generations = dict.fromkeys(LANES, 0)
        self.queued: dict[str, tuple[int, str, bool]] = {}  # run: place, lane, privileged
        self.executing: dict[str, tuple[str, int]] = {}  # run: lane, generation
        self.away: dict[str, tuple[int, str]] = {}  # runs that have released their slot
        self.void: list[tuple[str, str, int]] = []  # slots of older generations
        self.holding = False
        self.places = 0

    @rule(lane=st.sampled_from(LANES), privileged=st.booleans())
    def enter(self, lane: str, privileged: bool) -> None:
        self.places += 1
        run = f"r{self.places}"
        self.queued[run] = (self.places, lane, privileged)
        self.order.enter(run, lane, self.places, privileged=privileged)

    @precondition(lambda self: self.away)
    @rule(data=st.data())
    def enter_again(self, data: Any) -> None:
        run = data.draw(st.sampled_from(sorted(self.away)))
        place, lane = self.away.pop(run)
        self.queued[run] = (place, lane, True)
        self.order.enter(run, lane, place, privileged=True)

    @precondition(lambda self: self.queued)
    @rule(data=st.data())
    def leave(self, data: Any) -> None:
        run = data.draw(st.sampled_from(sorted(self.queued)))
        _, lane, _ = self.queued.pop(run)
        self.order.leave(run, lane)

    @precondition(lambda self: self.executing)
    @rule(data=st.data(), comes_back=st.booleans())
    def release(self, data: Any, comes_back: bool) -> None:
        run = data.draw(st.sampled_from(sorted(self.executing)))
        lane, generation = self.executing.pop(run)
        if comes_back:
            self.away[run] = (int(run[1:]), lane)
        self.order.release(run, lane, generation, 0.0, body_waits=False)

    @precondition(lambda self: self.void)
    @rule(data=st.data())
    def give_back_what_is_void(self, data: Any) -> None:
        run, lane, generation = data.draw(st.sampled_from(self.void))
        self.order.release(run, lane, generation, 0.0, body_waits=False)

    @rule(lane=st.sampled_from(LANES), limit=st.none() | st.integers(0, 3))
    def set_limit(self, lane: str, limit: int | None) -> None:
        self.limits[lane] = limit
        self.order.set_limit(lane, limit)

    @rule(limit=st.integers(0, 5))
    def set_global_limit(self, limit: int) -> None:
        self.order.limit = limit

    @rule(holding=st.booleans())
    def hold(self, holding: bool) -> None:
        self.holding = holding
        self.order.hold(holding)

    @rule(lane=st.sampled_from(LANES))
    def reset(self, lane: str) -> None:
        held = [run for run, (of, _) in self.executing.items() if of == lane]
        assert sorted(self.order.reset(lane)) == sorted(held)
        for run in held:
            self.void.append((run, *self.executing.pop(run)))
            self.away[run] = (int(run[1:]), lane)
        self.generations[lane] += 1

    @rule()
    def grant(self) -> None:
        expected = []
        while len(self.executing) < self.order.limit:
            candidates = [
                (place, run, lane)
                for run, (place, lane, privileged) in self.queued.items()
                if (privileged or not self.holding) and self.has_room(lane)
            ]
            if not candidates:
                break
            _, run, lane = min(candidates)
            del self.queued[run]
            self.executing[run] = (lane, self.generations[lane])
            expected.append(Slot(run, self.generations[lane]))
        assert list(self.order.grants(0.0, never)) == expected

    def has_room(self, lane: str) -> bool:
        limit = self.limits[lane]
        return limit is None or sum(of == lane for of, _ in self.executing.values()) < limit

    @invariant()
    def knows_who_executes(self) -> None:
        assert self.order.executing == {run: generation for run, (_, generation) in self.executing.items()}


TestFormula = Formula.TestCase
TestFormula.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
