"""Which delayed runs are due, and when the supervisor has to look."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.messages import Cancel, StoreIsDown
from greenroom.actors.scheduling.delays import CHECK_CLOCK_EVERY, Delays

from .supervising import WALL, Desk


class Watch:
    """Two clocks, and the delays that read them."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ahead = WALL
        self.delays = Delays(lambda: self.now + self.ahead)

    def add(self, run: str, seconds: float) -> None:
        self.delays.add(run, WALL + seconds, self.now)

    def due(self) -> list[str]:
        found = self.delays.due(self.now)
        for run in found:
            self.delays.drop(run)
        return found


def test_without_delayed_runs_there_is_no_deadline() -> None:
    watch = Watch()
    assert watch.delays.deadline == math.inf
    watch.add("a", 5)
    watch.now = 5
    assert watch.due() == ["a"]
    assert watch.delays.deadline == math.inf


def test_runs_are_due_in_the_order_of_their_times_then_of_their_submission() -> None:
    watch = Watch()
    for run, seconds in {"b": 2, "a": 1, "c": 2, "d": 3}.items():
        watch.add(run, seconds)
    assert watch.delays.deadline == 1
    watch.now = 2
    assert watch.due() == ["a", "b", "c"]
    assert (watch.delays.deadline, len(watch.delays)) == (3, 1)


def test_the_clock_is_read_again_before_a_long_delay_ends() -> None:
    watch = Watch()
    watch.add("a", 1000)
    assert watch.delays.deadline == CHECK_CLOCK_EVERY
    watch.now, watch.ahead = CHECK_CLOCK_EVERY, WALL + 2000
    assert watch.due() == ["a"]


def test_a_run_is_not_due_before_its_time_by_the_engines_clock() -> None:
    watch = Watch()
    watch.add("a", 10)
    watch.now, watch.ahead = 10, WALL - 5
    assert watch.due() == []
    assert watch.delays.deadline == 15


def test_a_rounding_error_is_waited_for() -> None:
    watch = Watch()
    watch.add("a", 1e-7)
    assert watch.delays.deadline == 0.001


def test_a_run_that_has_ended_is_not_due() -> None:
    watch = Watch()
    for number in range(1000):
        watch.add(str(number), number)
        if number:
            watch.delays.drop(str(number))
            watch.delays.drop("unknown")
    assert len(watch.delays) == 1
    watch.now = 1000
    assert watch.due() == ["0"]


def test_very_many_runs_are_taken_in_several_turns() -> None:
    watch = Watch()
    for number in range(2500):
        watch.add(str(number), 1)
    watch.now = 1
    assert [len(watch.due()) for _ in range(4)] == [1000, 1000, 500, 0]


@given(st.lists(st.tuples(st.sampled_from("adj"), st.integers(0, 40)), max_size=40))
def test_every_run_is_due_at_its_time_and_not_before(steps: list[tuple[str, int]]) -> None:
    watch = Watch()
    times: dict[str, float] = {}
    for number, (step, seconds) in enumerate(steps):
        if step == "a":
            times[str(number)] = watch.now + watch.ahead + seconds
            watch.delays.add(str(number), times[str(number)], watch.now)
        elif step == "d" and times:
            watch.delays.drop(times.popitem()[0])
        else:
            watch.ahead += seconds - 20
        watch.now = min(watch.now + seconds, watch.delays.deadline)
        if watch.delays.deadline <= watch.now:
            wall = watch.now + watch.ahead
            due = watch.due()
            assert set(due) == {run for run, at in times.items() if at <= wall}
            for run in due:
                del times[run]
    for _ in range(1000):
        if watch.delays.deadline == math.inf:
            break
        watch.now = watch.delays.deadline
        for run in watch.due():
            del times[run]
    assert not times


# The supervisor.


def delayed(desk: Desk, run: str, seconds: float, *, reserve: bool = False, **fields: object) -> list[str]:
    at = WALL + desk.now + seconds
    message = desk.submit(run, not_before=at, uncommon={"not_before": at}, **fields)
    message.submission.reserves = reserve
    return desk.turn(message)


def test_a_delayed_run_is_created_without_a_start_and_started_at_its_time() -> None:
    desk = Desk()
    assert delayed(desk, "a", 5) == ["create a waiting"]
    assert desk.machine.deadline() == 5
    assert desk.at(4.9) == []
    assert len(desk.at(5)) == 2
    assert "a" in desk.machine.order.executing


@pytest.mark.parametrize("reserve", [False, True])
def test_a_cancelled_delayed_run_is_not_started(reserve: bool) -> None:
    desk = Desk()
    delayed(desk, "a", 5, reserve=reserve)
    desk.turn(Cancel("a", "app", "cancelled", "keep", desk.replies["a"]))
    assert desk.at(5) == []


def test_no_delay_ends_while_the_store_is_down() -> None:
    desk = Desk()
    delayed(desk, "a", 5)
    desk.turn(StoreIsDown(True))
    assert desk.machine.deadline() == math.inf
    desk.now = 9
    desk.turn(StoreIsDown(False))
    assert desk.machine.deadline() <= 9
    desk.at(9)
    assert "a" in desk.machine.order.executing


def test_delayed_runs_count_as_pending() -> None:
    desk = Desk(max_pending=1)
    delayed(desk, "a", 5)
    assert desk.machine.count_pending == 1
    assert delayed(desk, "b", 5) == []
