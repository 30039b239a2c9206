"""Which runs are blamed for the death of a process, and how suspects are tried one after the other."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace

from greenroom.actors.scheduling.stored_bodies import awaits_executor
from greenroom.actors.scheduling.trials import Trials, deaths_after_restart, suspects_after_restart
from greenroom.persistence.store import Deaths, StoredRun, Terms
from greenroom.protocol.states import Status

from .driving import record_of


def run(id: str, status: Status = Status.RUNNING, waiting_for: str | None = None, **fields: Any) -> StoredRun:
    """A run as it is stored when the process has died."""
    terms = Terms(bodiless=fields.pop("bodiless", False))
    return StoredRun(record_of(status, id=id, waiting_for=waiting_for), terms, **fields)


def waited(id: str, waiting_for: str = "answer", **fields: Any) -> StoredRun:
    return run(id, Status.SUSPENDED, waiting_for, **fields)


def at_executor(id: str, status: Status = Status.RUNNING, executor: str = "node", **fields: Any) -> StoredRun:
    """A run whose last body started at an executor."""
    made = run(id, status, **fields)
    made.record = replace(made.record, executor=executor)
    return made


def suspects(**deaths: int) -> Trials:
    trials = Trials()
    trials.begin(deaths)
    return trials


# Blame.


def test_a_death_counts_for_all_executing_runs() -> None:
    assert deaths_after_restart([run("a"), run("b", deaths=1)]) == {"a": 1, "b": 2}


@pytest.mark.parametrize("waiting_for", ["time", "answer", "child", "message"])
def test_a_death_counts_for_runs_that_waited_in_their_bodies_too(waiting_for) -> None:
    assert deaths_after_restart([waited("a", waiting_for), run("b")]) == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    "other",
    [
        run("b", Status.QUEUED),
        run("b", Status.CANCELLING),
        run("b", Status.CANCELLING, "answer"),
        waited("b", "slot"),
        waited("b", "retry"),
        *(waited("b", waiting_for, bodiless=True) for waiting_for in ("time", "answer", "signal", "message")),
    ],
)
def test_a_death_does_not_count_for_a_run_that_had_no_body_or_ends_anyway(other) -> None:
    assert deaths_after_restart([other]) == {}
    assert suspects_after_restart([run("a"), other]) == {"a": 1}


@pytest.mark.parametrize("new", [run("new"), waited("new")])
def test_a_death_does_not_count_for_tried_runs_if_another_was_not_tried(new) -> None:
    tried = [run("a", deaths=1, tried=True), waited("b", deaths=2, tried=True)]
    assert deaths_after_restart([*tried, new]) == {"a": 1, "b": 2, "new": 1}


def test_a_death_counts_for_all_if_all_were_tried() -> None:
    tried = [run("a", deaths=1, tried=True), waited("b", deaths=2, tried=True)]
    assert deaths_after_restart(tried) == {"a": 2, "b": 3}


def test_a_run_that_waited_for_its_trial_stays_a_suspect_and_a_tried_run_does_not() -> None:
    pending = [
        run("a"),
        waited("slot", "slot", deaths=1),
        waited("answer", bodiless=True, deaths=2),
        waited("tried", bodiless=True, deaths=2, tried=True),
    ]
    assert suspects_after_restart(pending) == {"slot": 1, "answer": 2, "a": 1}


# Bodies that can still execute after a restart.


@pytest.mark.parametrize(
    "stored",
    [
        at_executor("a"),
        at_executor("a", Status.CANCELLING),
        at_executor("a", Status.CANCELLING, waiting_for="answer"),
        *(at_executor("a", Status.SUSPENDED, waiting_for=what) for what in ("time", "answer", "child")),
        at_executor("a", Status.SUSPENDED, waiting_for="executor"),
    ],
)
def test_a_body_at_an_attached_executor_survives_the_engine_and_is_not_blamed(stored) -> None:
    assert awaits_executor(stored)
    assert deaths_after_restart([stored, run("b")]) == {"b": 1}


@pytest.mark.parametrize(
    "stored",
    [
        run("a"),
        at_executor("a", executor="local-1"),
        at_executor("a", Status.QUEUED),
        at_executor("a", Status.SUSPENDED, waiting_for="slot"),
        at_executor("a", Status.SUSPENDED, waiting_for="retry"),
        at_executor("a", Status.SUSPENDED, waiting_for="executor", bodiless=True),
        at_executor("a", Status.SUSPENDED, waiting_for="answer", bodiless=True),
    ],
)
def test_no_body_survives_in_the_engine_in_its_children_or_in_a_run_that_had_none(stored) -> None:
    assert not awaits_executor(stored)


def test_a_death_of_the_engine_does_not_count_for_bodies_in_its_child_processes() -> None:
    assert deaths_after_restart([at_executor("a", executor="local-1")]) == {}


# Trials.


def test_one_suspect_at_a_time_executes_and_other_runs_are_not_affected() -> None:
    trials = suspects(a=1, b=1)
    assert not trials.has_to_wait("a")
    trials.granted("a", 0.0)
    assert trials.has_to_wait("b")
    assert not trials.has_to_wait("a")  # it needs a slot again, for the body that it has
    assert not trials.has_to_wait("other")
    trials.granted("other", 0.0)
    assert trials.has_to_wait("b")


def test_a_suspect_that_waits_lets_others_execute_and_its_trial_continues() -> None:
    trials = suspects(a=1, b=1)
    trials.granted("a", 0.0)
    trials.set_aside("b")
    trials.waits("a")
    assert trials.take_back() == ["b"]
    trials.granted("b", 10.0)
    assert trials.has_to_wait("a")
    trials.waits("a")  # it is not on trial
    assert trials.has_to_wait("a")
    assert trials.take_tried(30.0) == [Deaths("a", 1, tried=True)]


def test_a_suspect_with_two_deaths_executes_alone_until_its_body_has_ended() -> None:
    trials = suspects(a=1, b=2, c=1)
    trials.granted("a", 0.0)
    trials.waits("a")
    assert trials.has_to_wait("b")  # perhaps it was not `a`, whose body still executes
    assert not trials.has_to_wait("c")
    trials.lost_body("a", 10.0)
    trials.granted("b", 10.0)
    trials.waits("b")
    assert not trials.has_to_wait("b")
    assert trials.has_to_wait("c")
    trials.set_aside("c")
    assert trials.take_back() == []
    trials.lost_body("b", 20.0)
    assert trials.take_back() == ["c"]


def test_a_suspect_that_still_has_to_wait_stays_set_aside() -> None:
    trials = suspects(a=1, b=2, c=1)
    trials.granted("a", 0.0)
    trials.set_aside("b")
    trials.set_aside("c")
    trials.waits("a")
    assert trials.take_back() == ["c"]
    trials.lost_body("a", 1.0)
    assert trials.take_back() == ["b"]


def test_a_suspect_is_tried_for_30_seconds() -> None:
    trials = suspects(a=1, b=1)
    trials.granted("a", 5.0)
    assert trials.deadline() == 35.0
    assert trials.take_tried(34.9) == []
    assert trials.take_tried(35.0) == [Deaths("a", 1, tried=True)]
    assert (trials.deadline(), len(trials)) == (math.inf, 1)
    assert not trials.has_to_wait("b")


def test_a_suspect_that_died_before_is_tried_ten_times_as_long() -> None:
    trials = suspects(a=2)
    trials.granted("a", 5.0)
    assert trials.deadline() == 305.0
    assert trials.take_tried(305.0) == [Deaths("a", 2, tried=True)]


@pytest.mark.parametrize(("once", "twice"), [(21, 0), (500, 0), (0, 3), (100, 50)])
def test_all_are_tried_within_ten_minutes(once: int, twice: int) -> None:
    deaths = {f"once{n}": 1 for n in range(once)} | {f"twice{n}": 2 for n in range(twice)}
    trials, now = suspects(**deaths), 0.0
    for suspect in deaths:
        assert not trials.has_to_wait(suspect)
        trials.granted(suspect, now)
        now = trials.deadline()
        trials.take_tried(now)
    assert (len(trials), now) == (0, pytest.approx(600.0))


def test_the_slots_of_a_body_that_waits_between_them_are_one_trial() -> None:
    trials = suspects(a=1)
    trials.granted("a", 0.0)
    trials.granted("a", 20.0)
    assert trials.deadline() == 30.0


def test_the_bodies_of_a_suspect_are_tried_for_30_seconds_together() -> None:
    trials = suspects(a=1, b=1)
    trials.granted("a", 5.0)
    trials.lost_body("a", 25.0)
    assert (trials.deadline(), trials.has_to_wait("b")) == (math.inf, False)
    trials.granted("b", 25.0)
    trials.lost_body("b", 26.0)
    trials.granted("a", 100.0)
    assert trials.deadline() == 110.0


def test_a_suspect_that_ends_lets_the_next_one_execute_and_is_forgotten() -> None:
    trials = suspects(a=1, b=1)
    trials.granted("a", 0.0)
    trials.forget("a")
    assert (trials.deadline(), len(trials), trials.has_to_wait("b")) == (math.inf, 1, False)
    trials.set_aside("b")
    trials.forget("b")
    assert trials.take_back() == []


def test_suspects_that_have_to_wait_are_taken_back_in_order_when_none_is_tried() -> None:
    trials = suspects(a=1, b=1, c=1, d=1)
    trials.granted("a", 0.0)
    for suspect in "bcd":
        trials.set_aside(suspect)
    trials.leave("c")
    assert trials.take_back() == []
    trials.lost_body("a", 1.0)
    assert trials.take_back() == ["b", "d"]
    assert trials.take_back() == []


def test_a_run_that_was_set_aside_can_leave_after_the_last_suspect_has_ended() -> None:
    trials = suspects(a=1, b=1)
    trials.granted("a", 0.0)
    trials.set_aside("a")
    trials.take_tried(30.0)
    trials.forget("b")
    assert (len(trials), trials.has_suspects) == (0, True)
    trials.leave("a")
    trials.forget("a")
    assert (trials.take_back(), trials.has_suspects) == ([], False)


def test_after_a_reset_the_next_suspect_is_tried_although_a_detached_body_still_executes() -> None:
    trials = suspects(a=1, b=1)
    trials.granted("a", 0.0)
    trials.reset()
    assert not trials.has_to_wait("b")
    trials.granted("b", 10.0)
    trials.lost_body("a", 15.0)
    assert trials.has_to_wait("a")
    assert trials.take_tried(40.0) == [Deaths("b", 1, tried=True)]


# Deaths of executor processes.


def test_the_first_death_of_an_executor_process_makes_no_suspects() -> None:
    trials = Trials()
    trials.suspect("a", 1)
    assert not trials.concerns("a")
    assert len(trials) == 0


def test_a_run_with_two_deaths_of_executor_processes_is_tried_like_after_a_restart() -> None:
    trials = Trials()
    trials.suspect("a", 2)
    trials.suspect("b", 2)
    trials.granted("a", 0.0, "x")
    assert trials.has_to_wait("b")
    assert trials.take_tried(299.9) == []
    assert trials.take_tried(300.0) == [Deaths("a", 2, tried=True)]
    assert not trials.has_to_wait("b")


@pytest.mark.parametrize("reported_first", [False, True])
def test_the_next_body_of_a_new_suspect_is_tried_for_its_whole_time(reported_first) -> None:
    trials = suspects(a=1)
    trials.granted("a", 0.0, "x")
    if reported_first:
        trials.suspect("a", 2)
    trials.lost_body("a", 20.0)
    if not reported_first:
        trials.suspect("a", 2)
    trials.granted("a", 20.0, "y")
    assert trials.deadline() == 320.0


def test_the_trials_of_many_runs_of_one_process_end_within_ten_minutes() -> None:
    trials, now = Trials(), 0.0
    for number in range(100):
        trials.suspect(f"r{number}", 2)
    for number in range(100):
        trials.granted(f"r{number}", now, "x")
        now = trials.deadline()
        trials.take_tried(now)
    assert now == pytest.approx(600.0)


def test_a_suspect_avoids_the_process_of_another_run_with_two_deaths_also_after_its_trial() -> None:
    trials = Trials()
    trials.suspect("a", 2)
    trials.suspect("b", 2)
    assert trials.avoid("a") == set()
    trials.granted("a", 0.0, "x")
    assert trials.avoid("a") == ()  # its body is there
    assert trials.avoid("b") == {"x"}
    assert trials.avoid("other") == ()
    trials.take_tried(300.0)
    trials.waits("a")
    assert trials.avoid("b") == {"x"}
    trials.lost_body("a", 301.0)
    assert trials.avoid("b") == set()


def test_a_tried_run_avoids_only_the_processes_of_suspects() -> None:
    trials = Trials()
    for run in "abc":
        trials.suspect(run, 2)
    trials.granted("a", 0.0, "x")
    trials.take_tried(300.0)
    trials.lost_body("a", 300.0)
    trials.granted("b", 300.0, "y")
    trials.take_tried(600.0)
    trials.granted("c", 600.0, "z")
    assert trials.avoid("a") == {"z"}
    trials.forget("c")
    assert trials.avoid("a") == set()


def test_a_suspect_avoids_tried_runs_for_at_most_ten_minutes() -> None:
    trials = Trials()
    trials.suspect("a", 2)
    trials.suspect("b", 2)
    trials.granted("a", 0.0, "x")
    trials.take_tried(300.0)
    trials.delay("b", 310.0)
    trials.delay("b", 320.0)
    assert trials.take_back() == ["b"]
    assert trials.deadline() == 910.0
    assert trials.take_tried(909.0) == []
    assert trials.avoid("b") == {"x"}
    assert trials.take_tried(910.0) == []
    assert trials.avoid("b") == set()
    assert trials.deadline() == math.inf


def test_runs_with_deaths_from_before_a_restart_are_avoided_too() -> None:
    trials = Trials()
    trials.begin({"a": 2, "b": 1}, ["c"])
    trials.granted("c", 0.0, "x")
    trials.granted("b", 0.0, "y")
    assert trials.avoid("a") == {"x"}


def test_bodies_in_the_engines_own_process_are_not_avoided() -> None:
    trials = suspects(a=2, b=2)
    trials.granted("a", 0.0)
    assert trials.avoid("b") == set()


def test_a_suspect_that_starts_or_ends_is_no_longer_late_for_its_trial() -> None:
    trials = Trials()
    for run in "abc":
        trials.suspect(run, 2)
    trials.granted("a", 0.0, "x")
    trials.take_tried(300.0)
    trials.delay("a", 300.0)  # it has been tried: it waits as long as suspects are there
    assert trials.deadline() == math.inf
    trials.delay("b", 310.0)
    trials.granted("b", 320.0, "y")
    assert trials.deadline() == 520.0
    trials.delay("c", 330.0)
    trials.forget("c")
    assert trials.deadline() == 520.0


def test_a_suspect_that_waited_ten_minutes_avoids_tried_runs_again_after_another_death() -> None:
    trials = Trials()
    trials.suspect("a", 2)
    trials.granted("a", 0.0, "x")
    trials.take_tried(300.0)
    trials.suspect("b", 2)
    trials.delay("b", 300.0)
    trials.take_tried(900.0)
    assert trials.avoid("b") == set()
    trials.granted("b", 900.0, "x")
    trials.lost_body("b", 901.0)
    assert trials.avoid("b") == {"x"}


def test_a_run_that_has_ended_is_neither_tried_nor_avoided() -> None:
    trials = Trials()
    trials.suspect("a", 2)
    trials.suspect("b", 2)
    trials.granted("a", 0.0, "x")
    trials.take_tried(300.0)
    trials.forget("a")
    assert not trials.concerns("a")
    assert trials.avoid("b") == set()
