"""The clock of a run's executing time, and its deadlines."""

from __future__ import annotations

from greenroom.actors.run.timers import RunClock, Timers


def test_the_clock_counts_only_between_start_and_stop() -> None:
    clock = RunClock()
    clock.stop(3.0)
    assert clock.start(5.0) == 0.0
    clock.stop(8.0)
    clock.stop(20.0)
    assert clock.start(30.0) == 3.0
    clock.stop(31.0)
    assert clock.start(40.0) == 4.0


def test_the_clock_is_reset_for_another_attempt() -> None:
    clock = RunClock()
    clock.start(5.0)
    clock.stop(8.0)
    clock.start(9.0)
    clock.reset()
    clock.stop(20.0)
    assert clock.start(30.0) == 0.0


def test_due_timers_are_yielded_once_in_order_of_time() -> None:
    timers = Timers()
    timers.set("deadline", 3.0)
    timers.set("retry", 2.0)
    timers.set("wake", 4.0)
    assert list(timers.take_due(3.0)) == ["retry", "deadline"]
    assert list(timers.take_due(3.0)) == []
    assert timers.next() == 4.0


def test_a_timer_that_is_dropped_while_another_is_handled_is_not_yielded() -> None:
    timers = Timers()
    timers.set("deadline", 3.0)
    timers.set("retry", 2.0)
    came = []
    for timer in timers.take_due(9.0):
        came.append(timer)
        timers.drop("deadline")
    assert came == ["retry"]
