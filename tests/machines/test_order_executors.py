"""The order of starts where executors have room or not: each rule, and the formula from scratch."""

from __future__ import annotations

import sys
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from greenroom.actors.scheduling.executor_pool import IN_PROCESS, Demand
from greenroom.actors.scheduling.order import Order, Slot, Wait

from .test_order import never

LANES = ("main", "a", "b")
DEMANDS = (IN_PROCESS, Demand("x"), Demand("y"), Demand("x", ("gpu",)), Demand("nowhere"))


def order_of(limit: int = 9, local: tuple[str, ...] = (), **executors: int | None) -> Order:
    """An order with executors that have the jobs `x` and `y`, with their slots."""
    order = Order(local)
    order.limit = limit
    for id, slots in executors.items():
        attach(order, id, slots)
    return order


def attach(order: Order, id: str, slots: int | None = 1, jobs: str = "xy", draining: bool = False) -> None:
    order.pool.ready(id, slots, frozenset(jobs), frozenset(), draining=draining)
    order.regroup()


def enters(order: Order, run: str, place: int, demand: Demand | str = "x", lane: str = "main") -> None:
    wanted = Demand(demand) if isinstance(demand, str) else demand
    order.enter(run, lane, place, privileged=False, demand=wanted)


def granted(order: Order) -> list[tuple[str, str | None]]:
    return [(slot.run, slot.executor) for slot in order.grants(0.0, never)]


def released(order: Order, run: str, *, body_waits: bool = False) -> None:
    order.release(run, "main", 0, 0.0, body_waits=body_waits)


def test_a_run_without_an_executor_delays_no_other_and_keeps_its_place() -> None:
    order = order_of(a=1)
    enters(order, "first", 1, "z")
    enters(order, "second", 2, "x")
    enters(order, "third", 3, "y")
    assert granted(order) == [("second", "a")]
    attach(order, "a", 1, "xyz")
    released(order, "second")
    assert granted(order) == [("first", "a")]
    released(order, "first")
    assert granted(order) == [("third", "a")]


def test_runs_that_wait_for_a_slot_of_the_same_executor_get_it_in_the_order_of_their_places() -> None:
    order = order_of(a=1)
    enters(order, "1", 1, "x")
    enters(order, "2", 2, "y")
    enters(order, "3", 3, "x", "lane")
    enters(order, "4", 4, "y")
    for run in ("1", "2", "3"):
        assert granted(order) == [(run, "a")]
        order.release(run, "lane" if run == "3" else "main", 0, 0.0, body_waits=False)
    assert granted(order) == [("4", "a")]


def test_the_engines_own_process_has_as_many_slots_as_the_global_limit() -> None:
    order = order_of(3, ("x",), a=1)
    for number in range(5):
        enters(order, str(number), number)
    assert granted(order) == [("0", None), ("1", None), ("2", "a")]
    order.limit = 4
    assert granted(order) == [("3", None)]


def test_a_body_that_waits_frees_its_slot_and_resumes_at_its_executor() -> None:
    order = order_of(a=1, b=1)
    enters(order, "1", 1)
    assert granted(order) == [("1", "a")]
    released(order, "1", body_waits=True)
    enters(order, "2", 2, "y")
    enters(order, "3", 3, "y")
    assert granted(order) == [("2", "a"), ("3", "b")]
    assert order.pool.body_of("1") == "a"
    enters(order, "1", 1, Demand(at="a"))
    released(order, "3")
    assert granted(order) == []
    released(order, "2")
    assert granted(order) == [("1", "a")]


def test_a_run_whose_body_is_gone_can_continue_anywhere() -> None:
    order = order_of(a=1, b=1)
    enters(order, "1", 1)
    assert granted(order) == [("1", "a")]
    released(order, "1")
    assert order.pool.body_of("1") is None
    order.pool.removed("a")
    order.regroup()
    enters(order, "1", 1)
    assert granted(order) == [("1", "b")]


def test_the_body_of_a_new_slot_remains_when_an_older_slot_is_released() -> None:
    order = order_of(a=2)
    enters(order, "1", 1)
    assert granted(order) == [("1", "a")]
    order.reset("main")
    enters(order, "1", 1)
    assert list(order.grants(0.0, never)) == [Slot("1", 1, "a")]
    released(order, "1")
    assert order.pool.body_of("1") == "a"


def test_a_reset_frees_the_slots_of_executors() -> None:
    order = order_of(a=1)
    enters(order, "1", 1)
    enters(order, "2", 2)
    assert granted(order) == [("1", "a")]
    assert granted(order) == []
    order.reset("main")
    assert granted(order) == [("2", "a")]


def test_a_restored_slot_counts_for_its_lane_its_executor_and_the_limit() -> None:
    order = order_of(2)
    order.generations["lane"] = 3
    assert order.restore_slot("1", "lane", "a") == 3
    assert order.executing == {"1": 3}
    attach(order, "a", 1)
    attach(order, "b", 9)
    enters(order, "2", 2, "x", "lane")
    enters(order, "3", 3)
    enters(order, "4", 4)
    assert granted(order) == [("3", "b")]
    order.release("1", "lane", 3, 0.0, body_waits=False)
    assert granted(order) == [("2", "b")]


def test_the_first_run_of_each_demand_that_only_lacks_an_executor_is_reported_once() -> None:
    order = order_of(9, a=1)
    order.limits["lane"] = 0
    for place, (run, job) in enumerate([("1", "x"), ("2", "z"), ("3", "x"), ("4", "y"), ("5", "z")]):
        enters(order, run, place, job)
    enters(order, "6", 6, "z", "other")
    enters(order, "7", 7, "z", "lane")
    assert granted(order) == [("1", "a")]
    assert order.take_blocked() == ["2", "3", "4", "6"]
    assert order.take_blocked() == []
    released(order, "1")
    assert granted(order) == [("3", "a")]
    assert order.take_blocked() == []
    order.leave("2", "main")
    assert granted(order) == []
    assert order.take_blocked() == ["5"]
    order.set_limit("lane", None)
    assert granted(order) == []
    assert order.take_blocked() == ["7"]


def test_no_run_is_reported_while_the_global_limit_is_reached() -> None:
    order = order_of(1, ("x",))
    enters(order, "1", 1, "z")
    enters(order, "2", 2)
    assert granted(order) == [("2", None)]
    assert order.take_blocked() == []
    released(order, "2")
    assert granted(order) == []
    assert order.take_blocked() == ["1"]


def test_a_run_that_lost_room_in_its_lane_is_reported_when_the_lane_has_room_again() -> None:
    order = order_of(9)
    order.limits["lane"] = 1
    enters(order, "1", 1, IN_PROCESS, "lane")
    enters(order, "2", 2, "z", "lane")
    assert granted(order) == [("1", None)]
    assert order.take_blocked() == []
    order.release("1", "lane", 0, 0.0, body_waits=False)
    assert granted(order) == []
    assert order.take_blocked() == ["2"]


def test_a_run_that_requests_a_slot_again_is_reported_again() -> None:
    order = order_of(9, a=1)
    for place in range(2):
        enters(order, str(place), place)
    assert granted(order) == [("0", "a")]
    assert order.take_blocked() == ["1"]
    order.leave("1", "main")
    enters(order, "1", 1)
    assert order.take_blocked() == ["1"]


def test_a_run_that_has_started_and_lacks_an_executor_again_is_reported_again() -> None:
    order = order_of(9, a=1)
    enters(order, "0", 0)
    enters(order, "1", 1)
    assert granted(order) == [("0", "a")]
    assert order.take_blocked() == ["1"]
    released(order, "0")
    assert granted(order) == [("1", "a")]
    released(order, "1")
    attach(order, "a", 0)
    enters(order, "1", 1)
    assert granted(order) == []
    assert order.take_blocked() == ["1"]


def test_a_wait_for_an_executor_names_the_reason_and_the_runs_that_have_its_slots() -> None:
    order = order_of(9, a=1)
    enters(order, "0", 0, IN_PROCESS)
    enters(order, "1", 1)
    enters(order, "2", 2, "z")
    enters(order, "3", 3)
    granted(order)
    assert order.wait_of("2", "main", 0.0) == Wait(0, [], "no executor has the job 'z'")
    assert order.wait_of("3", "main", 0.0) == Wait(
        1, ["1"], "executors a that have job 'x' have no free slot"
    )
    order.limit = 2
    assert order.wait_of("3", "main", 0.0) == Wait(
        1, ["0", "1"], "executors a that have job 'x' have no free slot"
    )


def test_a_wait_for_a_lane_names_no_executor_that_has_room() -> None:
    order = order_of(9, a=9)
    enters(order, "1", 1, "x", "lane")
    enters(order, "2", 2, "x", "lane")
    assert granted(order) == [("1", "a")]
    assert order.wait_of("2", "lane", 0.0) == Wait(0, ["1"])


def calls_of(what: Any) -> int:
    """The number of Python functions that are called."""
    calls = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        what()
    finally:
        sys.setprofile(before)
    return calls


def test_100_000_runs_without_an_executor_cost_a_grant_nothing() -> None:
    order = order_of(100_000, a=1)
    for place in range(90_000):
        enters(order, f"queued{place}", place, "z")
    for place in range(90_000, 100_000):
        enters(order, f"queued{place}", place, "z", f"lane{place}")
    enters(order, "first", 100_000)
    assert granted(order) == [("first", "a")]
    assert len(order.take_blocked()) == 10_001

    def one_more() -> None:
        released(order, "first")
        enters(order, "first", 100_000)
        assert granted(order) == [("first", "a")]
        assert order.take_blocked() == []

    one_more()
    assert calls_of(one_more) < 60


def test_runs_that_leave_a_blocked_group_use_no_memory() -> None:
    order = order_of()
    enters(order, "first", 0, "z")
    assert granted(order) == []
    for place in range(1, 2_000):
        enters(order, str(place), place, "z", f"lane{place}")
        order.leave(str(place), f"lane{place}")
    (group,) = order._offers._groups.values()
    assert len(group.heads) < 200
    assert len(group.unreported) == 1
    assert list(order.lanes) == ["main"]


def test_the_order_stays_the_same_when_many_runs_leave_a_blocked_group() -> None:
    order = order_of(9, a=1)
    enters(order, "busy", 0)
    assert granted(order) == [("busy", "a")]
    places = [place * 7 % 401 for place in range(1, 401)]
    for place in places:
        enters(order, str(place), place, "x", f"lane{place}")
    assert granted(order) == []
    for place in places:
        if place % 10:
            order.leave(str(place), f"lane{place}")
    released(order, "busy")
    for place in range(10, 401, 10):
        assert granted(order) == [(str(place), "a")]
        order.release(str(place), f"lane{place}", 0, 0.0, body_waits=False)


def test_demands_that_no_run_of_a_lane_has_use_no_memory() -> None:
    order = order_of(9, a=9)
    for place, job in enumerate("xyxyz"):
        enters(order, str(place), place, job)
    assert len(granted(order)) == 4
    order.leave("4", "main")
    assert len(order._lanes["main"].queues) == 1


class Executors(RuleBasedStateMachine):
    """Any sequence of changes: the runs get slots, and executors, as the formula says; and the runs that only
    lack an executor are reported."""

    @initialize(limit=st.integers(0, 5), local=st.sampled_from([(), ("x",)]))
    def begin(self, limit: int, local: tuple[str, ...]) -> None:
        self.order = Order(local)
        self.order.limit = limit
        self.local = local
        self.limits: dict[str, int | None] = {"main": None, "a": 1, "b": 1}
        self.generations = dict.fromkeys(LANES, 0)
        self.queued: dict[str, tuple[int, str, bool, Demand]] = {}
        self.executing: dict[str, tuple[str, int, str | None]] = {}  # run: lane, generation, executor
        self.demands: dict[str, Demand] = {}
        self.lanes: dict[str, str] = {}
        self.away: dict[str, str | None] = {}  # runs that have released their slot, with their body
        self.executors: dict[str, tuple[int | None, frozenset[str], frozenset[str], bool]] = {}
        self.refused: set[tuple[str, str]] = set()
        self.reported: set[str] = set()
        self.holding = False

    # Executors.

    @rule(
        id=st.sampled_from(["e", "f", "g"]),
        slots=st.none() | st.integers(0, 2),
        jobs=st.frozensets(st.sampled_from(["x", "y"])),
        labels=st.sampled_from([frozenset[str](), frozenset({"gpu"})]),
        draining=st.booleans(),
    )
    def ready(self, id: str, slots: Any, jobs: Any, labels: Any, draining: bool) -> None:
        self.executors[id] = (slots, jobs, labels, draining)
        self.order.pool.ready(id, slots, jobs, labels, draining=draining)
        self.order.regroup()

    @precondition(lambda self: self.executors)
    @rule(data=st.data())
    def removed(self, data: Any) -> None:
        id = data.draw(st.sampled_from(sorted(self.executors)))
        del self.executors[id]
        self.refused = {entry for entry in self.refused if entry[0] != id}
        self.order.pool.removed(id)
        self.order.regroup()

    @precondition(lambda self: self.executors)
    @rule(data=st.data(), job=st.sampled_from(["x", "y"]))
    def unfit(self, data: Any, job: str) -> None:
        id = data.draw(st.sampled_from(sorted(self.executors)))
        self.refused.add((id, job))
        self.order.pool.unfit(id, job, "why")
        self.order.regroup()

    # Runs.

    @rule(lane=st.sampled_from(LANES), privileged=st.booleans(), demand=st.sampled_from(DEMANDS))
    def enter(self, lane: str, privileged: bool, demand: Demand) -> None:
        place = len(self.demands)
        run = f"r{place}"
        self.demands[run], self.lanes[run] = demand, lane
        self.queued[run] = (place, lane, privileged, demand)
        self.order.enter(run, lane, place, privileged=privileged, demand=demand)

    @precondition(lambda self: self.away)
    @rule(data=st.data(), keeps=st.booleans())
    def enter_again(self, data: Any, keeps: bool) -> None:
        run = data.draw(st.sampled_from(sorted(self.away)))
        at = self.away.pop(run)
        demand = Demand(at=at) if at is not None and keeps else self.demands[run]
        if not keeps:
            self.order.pool.lose_body(run)
        assert self.order.pool.body_of(run) == (at if keeps else None)
        self.queued[run] = (int(run[1:]), self.lanes[run], True, demand)
        self.order.enter(run, self.lanes[run], int(run[1:]), privileged=True, demand=demand)

    @precondition(lambda self: self.queued)
    @rule(data=st.data())
    def leave(self, data: Any) -> None:
        run = data.draw(st.sampled_from(sorted(self.queued)))
        del self.queued[run]
        self.reported.discard(run)
        self.order.leave(run, self.lanes[run])

    @precondition(lambda self: self.executing)
    @rule(data=st.data(), body_waits=st.booleans())
    def release(self, data: Any, body_waits: bool) -> None:
        run = data.draw(st.sampled_from(sorted(self.executing)))
        lane, generation, executor = self.executing.pop(run)
        self.away[run] = executor if body_waits else None
        self.order.release(run, lane, generation, 0.0, body_waits=body_waits)

    # Limits.

    @rule(lane=st.sampled_from(LANES), limit=st.none() | st.integers(0, 3))
    def set_limit(self, lane: str, limit: int | None) -> None:
        self.limits[lane] = limit
        self.order.set_limit(lane, limit)

    @rule(limit=st.integers(0, 6))
    def set_global_limit(self, limit: int) -> None:
        self.order.limit = limit

    @rule(holding=st.booleans())
    def hold(self, holding: bool) -> None:
        self.holding = holding
        self.order.hold(holding)

    @rule(lane=st.sampled_from(LANES))
    def reset(self, lane: str) -> None:
        held = [run for run, (of, _, _) in self.executing.items() if of == lane]
        assert sorted(self.order.reset(lane)) == sorted(held)
        for run in held:
            self.away[run] = self.executing.pop(run)[2]
        self.generations[lane] += 1

    # The formula.

    @rule()
    def grant(self) -> None:
        expected = []
        while len(self.executing) < self.order.limit:
            can_start = [
                (place, run, lane, chosen)
                for run, (place, lane, privileged, demand) in self.queued.items()
                if (privileged or not self.holding) and self.has_room(lane)
                for chosen in self.choose(demand)
            ]
            if not can_start:
                break
            _, run, lane, executor = min(can_start)
            del self.queued[run]
            self.reported.discard(run)
            self.executing[run] = (lane, self.generations[lane], executor)
            expected.append(Slot(run, self.generations[lane], executor))
        assert list(self.order.grants(0.0, never)) == expected
        assert self.order.take_blocked() == self.blocked()

    def blocked(self) -> list[str]:
        if len(self.executing) >= self.order.limit:
            return []
        first: dict[tuple[str, Demand], tuple[int, str]] = {}
        for run, (place, lane, privileged, demand) in self.queued.items():
            if (privileged or not self.holding) and self.has_room(lane):
                first[lane, demand] = min((place, run), first.get((lane, demand), (place, run)))
        found = [run for _, run in sorted(first.values()) if run not in self.reported]
        self.reported.update(found)
        return found

    def choose(self, demand: Demand) -> list[str | None]:
        """The executor that a run with this demand gets, if any."""
        if demand.job is None and demand.at is None:
            return [None]
        free: list[tuple[float, int, bool, str]] = []
        for id, (slots, jobs, labels, draining) in self.executors.items():
            fits = demand.job in jobs and labels.issuperset(demand.needs) and not draining
            if demand.at != id and (not fits or (id, demand.job) in self.refused):
                continue
            used = self.used(id)
            if slots is None:
                free.append((-float("inf"), used, False, id))
            elif used < slots:
                free.append((used - slots, 0, False, id))
        if demand.job in self.local and not demand.needs:
            free.append((self.used(None) - self.order.limit, 0, True, ""))
        return [min(free)[3] or None] if free else []

    def used(self, id: str | None) -> int:
        return sum(executor == id for _, _, executor in self.executing.values())

    def has_room(self, lane: str) -> bool:
        limit = self.limits[lane]
        return limit is None or sum(of == lane for of, _, _ in self.executing.values()) < limit

    @invariant()
    def knows_who_executes(self) -> None:
        assert self.order.executing == {run: generation for run, (_, generation, _) in self.executing.items()}


TestExecutors = Executors.TestCase
TestExecutors.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
