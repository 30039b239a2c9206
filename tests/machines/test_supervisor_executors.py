"""The supervisor and executors: which one gets a body, runs that wait for one, restarts, and crashes."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest

from greenroom.actors.channel import Reply
from greenroom.actors.messages import (
    Cancelling,
    Ended,
    Enter,
    ExecutorReady,
    ExecutorRemoved,
    ExecutorUnfit,
    Leave,
    Left,
    NotStarted,
    Recover,
    Recovered,
    ResetLanes,
    RunsEnded,
    SetMaxConcurrent,
    StoreIsDown,
    Suspect,
    WaitForActive,
)
from greenroom.persistence.store import WakesAt
from greenroom.protocol.events import RunChanged, RunStateChanged, RunWaiting
from greenroom.protocol.states import Status

from .making import job
from .supervising import Desk
from .test_supervisor_restart import Store, changes


def ready(executor: str = "a", slots: int | None = 1, *labels: str, draining: bool = False) -> ExecutorReady:
    """An executor that has the jobs `walk` and `swim`."""
    return ExecutorReady(executor, slots, frozenset({"walk", "swim"}), frozenset(labels), draining)


def desk_of(*executors: ExecutorReady, limit: int = 9) -> Desk:
    """A supervisor whose engine executes no bodies itself."""
    desk = Desk(limit, local_jobs=())
    desk.turn(*executors)
    return desk


def starts(desk: Desk) -> dict[str, str | None]:
    """The runs that started in the last turn, with the executors that their events name."""
    return {
        event.run: event.executor
        for change in desk.changes()
        for event in change.events
        if isinstance(event, RunStateChanged) and event.to is Status.RUNNING
    }


def reported(desk: Desk) -> list[str]:
    """The runs that were reported to wait for an executor in the last turn."""
    return [
        event.run
        for change in desk.changes()
        for event in change.events
        if isinstance(event, RunChanged) and event.waiting_for == "executor"
    ]


# The choice.


def test_the_event_of_a_start_names_the_executor() -> None:
    desk = Desk(limit=3)
    desk.turn(ready(slots=3))
    desk.submits("1", "2")
    assert starts(desk) == {"1": "a", "2": None}


def test_a_flow_executes_in_the_engines_own_process() -> None:
    desk = desk_of(ready("a", 9))
    desk.submits("1", job=job("flow"), needs=("gpu",))
    assert starts(desk) == {"1": None}


def test_a_run_executes_where_its_labels_are() -> None:
    desk = desk_of(ready("a", 9), ready("b", 1, "gpu"))
    desk.submits("1", "2", needs=("gpu",))
    assert starts(desk) == {"1": "b"}
    desk.submits("3")
    assert starts(desk) == {"3": "a"}


def test_runs_start_when_an_executor_attaches_gets_slots_or_no_longer_drains() -> None:
    desk = desk_of()
    desk.submits("1", "2", "3", "4")
    assert desk.turn(ready("a", 1)) == ["start 1", "run_changed 2"]
    assert desk.turn(ready("a", 2)) == ["start 2", "run_changed 3"]
    assert desk.turn(ready("b", 1, draining=True)) == []
    assert desk.turn(ready("b", 1)) == ["start 3", "run_changed 4"]


def test_an_executor_that_refused_a_job_gets_no_other_body_of_it() -> None:
    desk = desk_of(ready("a", 2), ready("b", 1))
    desk.submits("1")
    assert starts(desk) == {"1": "a"}
    desk.turn(ExecutorUnfit("a", "walk", "no such module"), Left("1", 0), Enter("1", 1))
    assert starts(desk) == {"1": "b"}
    desk.submits("2", "3", job=job("swim"))
    assert starts(desk) == {"2": "a", "3": "a"}
    desk.submits("4")
    desk.ends("2")
    assert starts(desk) == {}
    desk.turn(ExecutorRemoved("a"), ready("a", 2))
    assert starts(desk) == {"4": "a"}


def test_a_queued_run_does_not_start_at_an_executor_that_refused_its_job() -> None:
    desk = desk_of(ready("a", 1), ready("b", 0))
    desk.submits("1", "2")
    desk.turn(ExecutorUnfit("a", "walk", "no such module"), Left("1", 0), Enter("1", 1))
    assert starts(desk) == {}
    assert desk.turn(ready("b", 1)) == ["start 1"]


# Bodies stay where they are.


def test_a_body_that_waited_resumes_at_its_executor_and_its_event_names_none() -> None:
    desk = desk_of(ready("a", 1), ready("b", 2))
    desk.submits("0", "1")
    desk.ends("0")
    desk.turn(Left("1", 0, body_waits=True))
    desk.submits("2", "3")
    assert starts(desk) == {"2": "b", "3": "a"}
    assert desk.asks("1", live_body=True) == ["run_changed 1"]
    desk.ends("3")
    assert starts(desk) == {"1": None}
    (event,) = [event for change in desk.changes() for event in change.events if event.run == "1"]
    assert (event.executor, event.interactive) == (None, None)
    desk.ends("2")
    desk.submits("4", "5", "6")
    assert starts(desk) == {"4": "b", "5": "b"}  # the slot of `a` is in use


def waiting_body() -> Desk:
    """A run whose body waits at executor `a`, which is full; `b` has room."""
    desk = desk_of(ready("a", 1))
    desk.submits("1")
    desk.turn(Left("1", 0, body_waits=True))
    desk.submits("2")
    assert starts(desk) == {"2": "a"}
    desk.turn(ready("b", 9))
    return desk


def test_a_waiting_body_in_the_engines_own_process_resumes_there() -> None:
    desk = Desk(limit=1)
    desk.submits("1")
    desk.turn(Left("1", 0, body_waits=True), ready("b", 9))
    assert desk.asks("1", live_body=True) == ["start 1"]
    desk.ends("1")
    desk.submits("2")
    assert starts(desk) == {"2": "b"}


@pytest.mark.parametrize(
    "lost",
    [
        [],
        [ExecutorRemoved("a")],
        [Leave("1")],
        [Enter("1", 1, live_body=True), Leave("1")],
    ],
)
def test_a_run_whose_body_is_gone_starts_another_one_anywhere(lost: list[Any]) -> None:
    desk = waiting_body()
    desk.turn(*lost)
    desk.asks("1")
    assert starts(desk) == {"1": "b"}


def test_a_body_that_replaces_a_lost_one_resumes_where_it_is_itself() -> None:
    desk = Desk(limit=1)
    desk.turn(ready("a", 1))
    desk.submits("1")
    desk.turn(Left("1", 0, body_waits=True), ready("a", 0))
    desk.asks("1")
    assert starts(desk) == {"1": None}
    desk.turn(Left("1", 0, body_waits=True))
    assert desk.asks("1", live_body=True) == ["start 1"]


@pytest.mark.parametrize("gone", [Leave("1"), RunsEnded([Ended("1", False)])])
def test_a_waiting_body_that_is_gone_is_forgotten(gone) -> None:
    desk = waiting_body()
    desk.turn(gone)
    assert desk.machine.order.pool.body_of("1") is None


@pytest.mark.parametrize("ending", [False, True])
def test_the_end_of_the_engine_waits_only_for_bodies_that_end_with_it(ending) -> None:
    desk = desk_of(ready("a", 1), ready("local-1", 1))
    desk.submits("1", "2")
    reply: Reply[bool] = Reply()
    desk.turn(WaitForActive(reply, ending))
    desk.ends("2")
    assert [said.reply for said in desk.answers()] == ([reply] if ending else [])
    desk.ends("1")
    assert [said.reply for said in desk.answers()] == ([] if ending else [reply])


def test_a_run_whose_executor_is_gone_waits_until_its_body_counts_as_lost() -> None:
    desk = waiting_body()
    desk.turn(ExecutorRemoved("a"))
    assert desk.asks("1", live_body=True) == ["run_changed 1"]
    assert desk.asks("1") == ["start 1"]


def test_a_refused_start_frees_the_executors_slot() -> None:
    desk = desk_of(ready("a", 1))
    desk.submits("1", "2")
    assert desk.turn(NotStarted("1", 0)) == ["start 2"]
    assert desk.machine.order.pool.body_of("1") is None


def test_a_body_that_is_cancelled_while_it_waits_uses_no_slot() -> None:
    desk = waiting_body()
    desk.asks("1", live_body=True)
    desk.turn(Left("1", None), Cancelling("1"))
    desk.ends("2")
    desk.turn(ready("b", 0))
    desk.submits("3")
    assert starts(desk) == {"3": "a"}


def test_the_slot_of_a_run_that_has_ended_is_free_and_its_body_is_forgotten() -> None:
    desk = desk_of(ready("a", 1))
    desk.submits("1", "2")
    desk.turn(RunsEnded([Ended("1", True)]))
    assert starts(desk) == {"2": "a"}
    assert desk.machine.order.pool.body_of("1") is None


def test_the_slots_of_an_executor_are_free_after_a_reset() -> None:
    desk = desk_of(ready("a", 1))
    desk.submits("1", "2")
    assert desk.turn(ResetLanes("ann", Reply()))[-1] == "start 2"
    desk.submits("3")
    desk.ends("1")
    assert starts(desk) == {}
    desk.ends("2", generation=1)
    assert starts(desk) == {"3": "a"}


# Runs that wait for an executor.


def test_a_queued_run_that_only_lacks_an_executor_is_reported_once() -> None:
    desk = desk_of(ready("a", 1))
    changes = desk.submits("1", "2", "3")
    assert changes == ["create 1, start 1", "create 2", "create 3", "run_changed 2"]
    change = desk.changes()[-1]
    assert (change.run, change.expect, change.memos) == ("2", frozenset({Status.QUEUED}), ())
    (event,) = change.events
    assert (event.waiting_for, event.by, event.place) == ("executor", "engine", None)
    assert desk.turn() == []
    assert desk.turn(ready("b", 0)) == []
    assert desk.ends("1") == ["start 2", "run_changed 3"]


def test_the_first_runs_of_each_job_and_labels_are_reported() -> None:
    desk = desk_of()
    desk.submits("1", "2")
    assert reported(desk) == ["1"]
    desk.turn(desk.submit("3", job=job("swim")), desk.submit("4", needs=("gpu",)), desk.submit("5", lane="x"))
    assert reported(desk) == ["3", "4", "5"]


def test_no_run_is_reported_while_it_waits_for_something_else() -> None:
    desk = desk_of(limit=0)
    desk.submits("1")
    assert reported(desk) == []
    desk.turn(StoreIsDown(True), SetMaxConcurrent(1, "ann", Reply()))
    assert reported(desk) == []
    desk.turn(StoreIsDown(False))
    assert reported(desk) == ["1"]


@pytest.mark.parametrize("bodiless", [False, True])
@pytest.mark.parametrize("live_body", [False, True])
def test_whether_a_suspended_run_that_lacks_an_executor_has_a_body_is_stored(bodiless, live_body) -> None:
    desk = waiting_body()
    desk.turn(ready("b", 0))
    desk.submits("3")
    made = desk.pending("1")
    made.terms = type(made.terms)(bodiless=bodiless, waits=4.0)
    assert desk.asks("1", live_body=live_body) == ["run_changed 1"]
    (change,) = desk.changes()
    assert change.expect == frozenset({Status.SUSPENDED})
    assert (made.terms.bodiless, made.terms.waits) == (not live_body, 4.0)
    assert change.memos == (() if bodiless != live_body else (WakesAt("1", None, made.terms),))


def test_a_long_wait_for_an_executor_is_reported_with_the_reason(caplog) -> None:
    desk = desk_of(ready("a", 1))
    desk.submits("1")
    desk.submits("2", warn_after=2.0, needs=("gpu",))
    desk.submits("3", warn_after=2.0, lane="x")
    desk.at(2)
    events = [event for change in desk.changes() for event in change.events if isinstance(event, RunWaiting)]
    assert [(event.run, event.ahead, event.blockers, event.reason) for event in events] == [
        ("2", 0, [], "no executor has the job 'walk' with label gpu"),
        ("3", 0, ["1"], "executors a that have job 'walk' have no free slot"),
    ]
    assert "0 ahead, no executor has the job 'walk' with label gpu; 1 more wait too long" in caplog.text


def test_a_warning_about_full_executors_names_the_runs_that_use_them(caplog) -> None:
    desk = desk_of(ready("a", 1))
    desk.submits("1")
    desk.submits("2", warn_after=2.0)
    desk.at(2)
    assert "0 ahead, executors a that have job 'walk' have no free slot; blocked by 1" in caplog.text


def test_a_long_wait_for_anything_else_has_no_reason() -> None:
    desk = Desk(limit=1)
    desk.submits("1")
    desk.submits("2", warn_after=2.0)
    desk.at(2)
    ((event,),) = [change.events for change in desk.changes()]
    assert isinstance(event, RunWaiting)
    assert (event.blockers, event.reason) == (["1"], None)


# Restarts.


def test_a_run_whose_body_survived_the_restart_keeps_its_slot_and_its_handle() -> None:
    store = Store()
    store.holds("1", Status.RUNNING, place=1, handle="h", executor="a")
    store.holds("2", place=None, handle="h")
    store.holds("3", place=2)
    store.holds("4", place=3)
    desk = store.opened(limit=2)
    assert desk.told("run") == [Recover([], awaits_executor=True, generation=0)]
    assert changes(desk) == ["start 3"]
    assert list(desk.machine.order.executing) == ["1", "3"]
    assert desk.machine.handles.taken_by("h") == "1"
    assert desk.ends("1") == ["start 4", "place 2 10"]


def test_a_restored_slot_has_the_generation_of_its_lane() -> None:
    store = Store()
    store.holds("1", Status.RUNNING, place=1, executor="a", lane="x")
    store.holds("2", place=2, lane="x")
    desk = Desk()
    desk.machine.order.generations = {"x": 4}
    desk.machine.restore(store.stored, store.submissions, {}, 0.0, 0.0)
    assert desk.turn() == []
    assert desk.told("run") == [Recover([], awaits_executor=True, generation=4)]
    assert desk.turn(Left("1", 0)) == []
    assert desk.turn(Left("1", 4)) == ["start 2"]


@pytest.mark.parametrize(
    ("status", "fields", "has_slot"),
    [
        (Status.RUNNING, {}, True),
        (Status.RUNNING, {"detached": True}, False),
        (Status.CANCELLING, {}, True),
        (Status.CANCELLING, {"waiting_for": "answer"}, False),
        (Status.SUSPENDED, {"waiting_for": "answer"}, False),
    ],
)
def test_a_surviving_body_has_a_slot_if_it_had_one(status, fields, has_slot) -> None:
    store = Store()
    store.holds("p", status, place=1, executor="a", **fields)
    store.holds("c", place=2, parent="p", ancestors=("p",))
    desk = store.opened(limit=1)
    assert desk.told("run") == [Recover(["c"], awaits_executor=True, generation=0 if has_slot else None)]
    assert changes(desk) == ([] if has_slot else ["start c"])
    assert desk.machine.order.pool.body_of("p") == "a"


def test_a_surviving_body_that_waited_resumes_at_its_executor() -> None:
    store = Store()
    store.holds("1", Status.SUSPENDED, place=1, waiting_for="answer", executor="a")
    desk = store.opened()
    assert desk.asks("1", live_body=True) == ["run_changed 1"]
    assert desk.turn(ready("b", 9)) == []
    assert desk.turn(ready("a", 1)) == ["start 1"]


def test_a_surviving_body_uses_a_slot_of_its_executor_until_it_counts_as_lost() -> None:
    store = Store()
    store.holds("1", Status.RUNNING, place=1, executor="a")
    desk = store.opened()
    desk.machine.order.pool.local.jobs = ()
    desk.turn(ready("a", 1))
    desk.submits("2")
    assert starts(desk) == {}
    desk.turn(ExecutorRemoved("a"), Left("1", 0), Enter("1", 1), ready("b", 1))
    assert starts(desk) == {"1": "b"}


def test_runs_start_before_the_executors_of_surviving_bodies_attach() -> None:
    store = Store()
    store.holds("1", Status.RUNNING, place=1, executor="a")
    store.holds("2", Status.RUNNING, place=2)
    store.holds("3", place=3)
    desk = store.opened()
    assert desk.told("run") == [Recover([], awaits_executor=True, generation=0), Recover([], 1)]
    assert changes(desk) == []
    assert desk.turn(Recovered()) == ["start 3"]


def test_a_suspect_whose_body_survived_is_on_trial() -> None:
    store = Store()
    store.holds("1", Status.RUNNING, place=1, executor="a", deaths=2)
    store.holds("2", Status.SUSPENDED, place=2, waiting_for="answer", executor="b", deaths=2, tried=True)
    store.holds("4", Status.SUSPENDED, place=4, waiting_for="answer", executor="c", deaths=1, tried=True)
    store.holds("3", Status.SUSPENDED, place=3, waiting_for="slot", deaths=2)
    desk = store.opened()
    desk.turn(Enter("3", 1), Recovered())
    assert list(desk.machine.order.executing) == ["1"]
    assert desk.machine.deadline() == 300.0
    assert desk.machine.order.trials.avoid("3") == {"a", "b"}
    assert desk.at(300) == ["remember Deaths 1", "start 3"]


def test_a_suspect_whose_body_survived_and_waits_lets_others_execute() -> None:
    store = Store()
    store.holds("1", Status.SUSPENDED, place=1, waiting_for="answer", executor="a", deaths=1)
    store.holds("2", Status.SUSPENDED, place=2, waiting_for="slot", deaths=1)
    desk = store.opened()
    assert desk.machine.deadline() == 30.0
    assert desk.turn(Enter("2", 1), Recovered()) == ["start 2"]


# Crashes of executor processes.


def crashes(desk: Desk, executor: str, deaths: int, *runs: str) -> list[str]:
    """A turn in which an executor process died with the bodies of these runs, and was restarted."""
    messages: list[Any] = [ExecutorRemoved(executor)]
    for run in runs:
        messages += [Left(run, 0), Suspect(run, deaths), Enter(run, 1)]
    return desk.turn(*messages, ready(executor, 9))


def test_runs_continue_together_after_the_first_death_of_their_executor() -> None:
    desk = desk_of(ready("a", 9))
    desk.submits("1", "2")
    assert crashes(desk, "a", 1, "1", "2") == ["start 1", "start 2"]
    assert desk.machine.deadline() == math.inf


def test_after_the_second_death_one_of_them_executes_at_a_time_and_other_runs_as_usual() -> None:
    desk = desk_of(ready("a", 9), ready("b", 9))
    desk.submits("1", "2")
    assert crashes(desk, "a", 2, "1", "2") == ["start 1"]
    assert desk.submits("3") == ["create 3, start 3"]
    assert desk.ends("1") == ["start 2"]


def test_a_suspect_that_has_been_tried_shares_no_process_with_the_next_one() -> None:
    desk = desk_of(ready("a", 9), ready("b", 1))
    desk.submits("1", "2")
    crashes(desk, "a", 2, "1", "2")
    assert starts(desk) == {"1": "a"}
    desk.at(300)
    assert starts(desk) == {"2": "b"}


def test_a_suspect_without_a_process_of_its_own_waits_and_delays_no_others() -> None:
    desk = desk_of(ready("a", 9))
    desk.submits("1", "2", "3")
    crashes(desk, "a", 2, "1", "2", "3")
    desk.at(300)
    assert starts(desk) == {}
    assert desk.submits("4") == ["create 4, start 4"]
    assert desk.ends("1") == ["start 2"]


def test_a_suspect_without_a_process_of_its_own_starts_after_ten_minutes() -> None:
    desk = desk_of(ready("a", 9))
    desk.submits("1", "2")
    crashes(desk, "a", 2, "1", "2")
    desk.at(300)
    assert starts(desk) == {}
    assert desk.machine.deadline() == 900.0
    assert desk.at(900) == ["start 2"]
    assert desk.machine.deadline() == 1200.0


def test_a_suspect_that_has_ended_is_none() -> None:
    desk = desk_of()
    desk.turn(Suspect("nobody", 2))
    assert len(desk.machine.order.trials) == 0


class PoisonPlay:
    """A poison run among 99 others on two executors. The poison's body soon kills its process, again and
    again. A run with three deaths fails."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.desk = desk_of(limit=100)
        self.desk.machine.order.limits["main"] = None
        self.runs = [f"r{number}" for number in range(100)]
        self.poison = self.random.choice(self.runs[:20])
        self.deaths = dict.fromkeys(self.runs, 0)
        self.bodies: dict[str, str] = {}  # run: executor
        self.waiting: set[str] = set()  # the runs of these that wait without a slot
        self.ends_at: dict[str, float] = {}  # of each body
        self.pending = set(self.runs)
        self.most_together = 0

    def turn(self, *messages: Any) -> None:
        self.desk.turn(*messages)
        self.note_starts()

    def note_starts(self) -> None:
        for run, executor in starts(self.desk).items():
            if executor is not None:
                self.bodies[run] = executor
                life = 600 if self.random.random() < 0.2 else self.random.randint(1, 20)
                if run == self.poison:
                    life = self.random.randint(0, 3)
                self.ends_at[run] = self.desk.now + life
            self.waiting.discard(run)
        suspects = [run for run in self.bodies if self.deaths[run] >= 2]
        if self.poison in suspects:
            together = sum(self.bodies[run] == self.bodies[self.poison] for run in suspects)
            self.most_together = max(self.most_together, together)

    def play(self) -> None:
        self.turn(ready("a", 8), ready("b", 8))
        self.turn(*(self.desk.submit(run) for run in self.runs))
        while self.pending:
            assert self.desk.now < 20_000, "a run waits forever"
            self.desk.at(self.desk.now + 1)
            self.note_starts()
            for run in sorted(self.bodies):
                if run in self.bodies:
                    self.step(run)

    def step(self, run: str) -> None:
        if self.ends_at[run] <= self.desk.now and run not in self.waiting:
            if run == self.poison:
                self.crash(self.bodies[run])
            else:
                self.end(run)
        elif run in self.waiting:
            if self.random.random() < 0.3:
                self.turn(Enter(run, 1, live_body=True))
        elif run != self.poison and self.random.random() < 0.1:
            self.waiting.add(run)
            self.turn(Left(run, 0, body_waits=True))

    def end(self, run: str) -> None:
        self.pending.discard(run)
        self.bodies.pop(run, None)
        self.turn(Left(run, 0), RunsEnded([Ended(run, False)]))

    def crash(self, executor: str) -> None:
        died = sorted(run for run, at in self.bodies.items() if at == executor)
        messages: list[Any] = [ExecutorRemoved(executor)]
        for run in died:
            del self.bodies[run]
            self.deaths[run] += 1
            messages.append(Leave(run) if run in self.waiting else Left(run, 0))
            self.waiting.discard(run)
            if self.deaths[run] == 3:
                self.pending.discard(run)
                messages.append(RunsEnded([Ended(run, False)]))
            else:
                messages += [Suspect(run, self.deaths[run]), Enter(run, 1)]
        self.turn(*messages)
        self.turn(ready(executor, 8))


@pytest.mark.parametrize("seed", range(30))
def test_a_poison_run_kills_its_company_at_most_twice_and_no_other_run_fails(seed: int) -> None:
    play = PoisonPlay(seed)
    play.play()
    assert play.deaths.pop(play.poison) == 3
    assert max(play.deaths.values()) <= 2
    assert play.most_together == 1
