"""The clock of a run's executing time, and its deadlines."""

from __future__ import annotations

from greenroom.actors.run.timers import RunClock, Timers


def test_the_clock_counts_only_while_it_goes() -> None:
    clock = RunClock()
    clock.stop(3.0)
    assert clock.start(5.0) == 0.0
    clock.stop(8.0)
    clock.stop(20.0)
    assert clock.start(30.0) == 3.0
    clock.stop(31.0)
    assert clock.start(40.0) == 4.0


def test_a_clock_begins_anew_for_another_attempt() -> None:
    clock = RunClock()
    clock.start(5.0)
    clock.stop(8.0)
    clock.start(9.0)
    clock.reset()
    clock.stop(20.0)
    assert clock.start(30.0) == 0.0


def test_what_is_due_comes_in_the_order_of_its_times_and_once() -> None:
    timers = Timers()
    timers.set("deadline", 3.0)
    timers.set("retry", 2.0)
    timers.set("wake", 4.0)
    assert list(timers.take_due(3.0)) == ["retry", "deadline"]
    assert list(timers.take_due(3.0)) == []
    assert timers.next() == 4.0


def test_what_is_dropped_while_another_is_handled_does_not_come() -> None:
    timers = Timers()
    timers.set("deadline", 3.0)
    timers.set("retry", 2.0)
    came = []
    for timer in timers.take_due(9.0):
        came.append(timer)
        timers.drop("deadline")
    assert came == ["retry"]
