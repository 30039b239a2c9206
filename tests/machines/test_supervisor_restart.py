"""The supervisor after a restart: restored runs, starts that wait for recovery, and warnings of long
waits."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest
import trio

from greenroom.actors.channel import Reply
from greenroom.actors.messages import (
    Cancelling,
    Ended,
    Enter,
    KeepTime,
    Leave,
    Left,
    NotStarted,
    NotStored,
    Phase,
    Recover,
    Recovered,
    Reject,
    ResetLanes,
    RunsEnded,
    SetDraining,
    Submission,
)
from greenroom.actors.scheduling.order import Wait
from greenroom.persistence.store import Deaths, Stored, StoredRequest, StoredRun
from greenroom.protocol.records import RunRecord
from greenroom.protocol.states import PENDING, Status

from .driving import WALL
from .making import submission
from .supervising import Desk, describe


class Store:
    """The stored state when the engine ended."""

    def __init__(self) -> None:
        self.stored = Stored("e", 0, 9, 3, False, {}, {}, {}, [], [], [])
        self.submissions: list[Submission] = []

    def holds(
        self,
        run: str,
        status: Status = Status.QUEUED,
        *,
        place: int | None,
        handle: str | None = None,
        deaths: int = 0,
        tried: bool = False,
        doomed: bool = False,
        waiting_for: str | None = None,
        executor: str | None = None,
        detached: bool = False,
        lane: str = "main",
        **terms: Any,
    ) -> Submission:
        begun = status is not Status.QUEUED
        made = submission(handle or f"of-{run}", run, place=place, begun=begun, lane=lane, **terms)
        record = RunRecord(
            id=run,
            handle=made.handle,
            lane=lane,
            job="walk",
            kind="start",
            params={},
            status=status,
            place=place,
            waiting_for=waiting_for,
            executor=executor,
            detached=detached,
            created_at=WALL,
            updated_at=WALL,
        )
        made.stored = StoredRun(record, made.terms, files_doomed=doomed, deaths=deaths, tried=tried)
        self.stored.pending.append(made.stored)
        self.submissions.append(made)
        return made

    def opened(self, limit: int = 3, rejects: dict[str, str] | None = None, now: float = 0.0) -> Desk:
        """An engine that has loaded it, after its first turn."""
        desk = Desk(limit)
        desk.now = now
        desk.machine.restore(self.stored, self.submissions, rejects or {}, now, WALL)
        desk.turn()
        return desk


def changes(desk: Desk) -> list[str]:
    return [describe(change) for change in desk.changes()]


# Restoring.


def test_queued_runs_enter_again_in_the_order_of_their_places() -> None:
    store = Store()
    store.holds("b", place=2)
    store.holds("a", place=1)
    desk = store.opened(limit=1)
    assert changes(desk) == ["start a"]
    assert desk.pending("b").phase is Phase.QUEUED
    assert desk.ends("a") == ["start b"]


def test_places_continue_after_the_last_one() -> None:
    desk = Store().opened()
    desk.submits("a")
    assert desk.pending("a").place == 10


def test_runs_that_waited_in_their_handles_wait_there() -> None:
    store = Store()
    store.holds("a", place=1, handle="h")
    store.holds("b", place=None, handle="h")
    store.holds("c", place=None, handle="h")
    desk = store.opened()
    assert changes(desk) == ["start a"]
    assert desk.pending("b").phase is Phase.WAITING
    assert desk.ends("a") == ["place b 10", "start b"]
    assert desk.ends("b") == ["place c 11", "start c"]


def test_a_handle_that_is_free_after_the_restart_admits_the_first_waiting_run() -> None:
    store = Store()
    store.holds("b", place=None, handle="h")
    assert changes(store.opened()) == ["place b 10", "start b"]


def test_a_replacement_waits_in_front_and_the_replaced_run_is_cancelled() -> None:
    store = Store()
    store.holds("a", Status.SUSPENDED, place=1, handle="h")
    store.holds("b", place=None, handle="h")
    store.holds("c", place=None, handle="h", front=True)
    desk = store.opened()
    (cancel,) = desk.told("supervisor")
    assert (cancel.run, cancel.reason, cancel.by) == ("a", "replaced", "engine")
    desk.turn(Recovered())
    assert desk.ends("a", generation=None) == ["place c 10", "start c"]


@pytest.mark.parametrize(
    ("status", "doomed", "joins"),
    [
        (Status.CANCELLING, False, False),
        (Status.SUSPENDED, True, False),
        (Status.SUSPENDED, False, True),
    ],
)
def test_a_run_that_was_being_cancelled_before_the_restart_can_not_be_joined(status, doomed, joins) -> None:
    store = Store()
    store.holds("a", status, place=1, handle="h", doomed=doomed)
    desk = store.opened()
    desk.turn(desk.submit("b", "join", handle="h"))
    assert (desk.answers()[0].error is None) == joins


def test_a_replacement_after_a_restart_supersedes_those_that_waited_to_replace() -> None:
    store = Store()
    store.holds("a", Status.CANCELLING, place=1, handle="h")
    store.holds("b", place=None, handle="h", front=True)
    desk = store.opened()
    desk.turn(desk.submit("c", "replace", handle="h"))
    assert [cancel.run for _, _, cancel in desk.changes()[0].notify] == ["b"]


def test_drafts_and_request_ids_are_restored() -> None:
    store = Store()
    store.holds("a", place=1, request_id="r")
    store.stored.drafts["h"] = {"x": 1}
    store.stored.requests += [
        StoredRequest("r", "a", None, None),
        StoredRequest("old", "z", None, WALL - 24 * 3600 + 5),
    ]
    desk = store.opened()
    assert desk.machine.handles.drafts == {"h": {"x": 1}}
    desk.submits("b", request_id="r")
    assert desk.answer(desk.replies["b"]).run == "a"
    desk.submits("c", request_id="old")
    assert desk.answer(desk.replies["c"]).run == "z"
    desk.now = 5.0
    assert desk.submits("d", request_id="old") == ["create d, start d"]


def test_a_run_that_can_no_longer_be_started_is_rejected_and_gets_no_slot() -> None:
    store = Store()
    store.holds("a", place=1, deadline=9.0, warn_after=2.0)
    store.holds("b", place=2)
    desk = store.opened(rejects={"a": "unknown"})
    assert desk.told("run") == [Reject("unknown")]
    assert changes(desk) == ["start b"]
    assert desk.machine.deadline() == math.inf


def test_a_queued_run_watches_its_own_deadline() -> None:
    store = Store()
    store.holds("a", place=1, deadline=9.0)
    assert store.opened(limit=0).told("run") == [KeepTime()]


def test_a_wait_that_was_reported_before_the_restart_is_not_reported_again() -> None:
    store = Store()
    store.holds("a", place=1, warn_after=2.0, created_at=90.0)
    assert store.opened(limit=0, now=100.0).machine.deadline() == math.inf


# No run starts before the recovery of all begun runs: their places can be lower.


def test_nothing_starts_before_the_recovery_of_every_run_that_had_begun() -> None:
    store = Store()
    store.holds("a", Status.SUSPENDED, place=2, waiting_for="slot")
    store.holds("b", Status.RUNNING, place=3)
    store.holds("c", place=1)
    desk = store.opened(limit=1)
    assert [(name, what) for kind, name, what in desk.decided if kind == "run"] == [
        ("a", Recover([], 0)),
        ("b", Recover([], 1)),
    ]
    assert changes(desk) == []
    assert desk.turn(Recovered()) == []
    assert desk.submits("d") == ["create d"]
    assert desk.turn(Recovered()) == ["start c"]


def test_a_run_that_had_begun_receives_its_children() -> None:
    store = Store()
    store.holds("a", Status.SUSPENDED, place=1, waiting_for="child", bodiless=True)
    store.holds("b", place=2, parent="a", ancestors=("a",))
    store.holds("c", place=3, parent="a", ancestors=("a",))
    assert store.opened().told("run") == [Recover(["b", "c"], 0)]


def test_a_run_that_had_begun_is_not_watched_by_the_supervisor() -> None:
    store = Store()
    store.holds("a", Status.SUSPENDED, place=1, deadline=9.0, warn_after=2.0)
    assert store.opened().machine.deadline() == math.inf


# Suspects: runs that executed when the process died are tried one at a time.


def suspects(*runs: str, deaths: int = 0) -> Desk:
    """Runs that all executed when the process died, with the number of their earlier deaths."""
    store = Store()
    for place, run in enumerate(runs):
        store.holds(run, Status.RUNNING, place=place, deaths=deaths)
    desk = store.opened()
    for run in runs:
        desk.asks(run)
    for _ in runs:
        desk.turn(Recovered())
    return desk


def test_suspects_execute_one_at_a_time_until_they_are_tried() -> None:
    desk = suspects("a", "b", "c")
    assert list(desk.machine.order.executing) == ["a"]
    assert desk.submits("d") == ["create d, start d"]
    assert desk.machine.deadline() == 30.0
    assert desk.at(30) == ["remember Deaths a", "start b"]
    (change, _) = desk.changes()
    assert (change.memos, change.expect, change.run) == ((Deaths("a", 1, tried=True),), PENDING, "a")
    assert len(desk.machine.order.trials) == 2
    assert desk.ends("b") == ["start c"]
    assert len(desk.machine.order.trials) == 1


def test_a_suspect_that_has_ended_while_it_was_set_aside_gets_no_slot() -> None:
    desk = suspects("a", "b", "c")
    desk.pending("b").over = True
    assert desk.ends("a") == ["start c"]
    other = suspects("a", "b", "c")
    other.turn(RunsEnded([Ended("b", False)]))
    assert other.ends("a") == ["start c"]


def test_a_reset_ends_the_trial_of_an_executing_run() -> None:
    desk = suspects("a", "b")
    assert desk.turn(ResetLanes("ann", Reply())) == ["lane_changed main", "run_changed a", "start b"]


def test_a_suspect_that_waits_in_its_body_lets_others_execute_and_its_trial_continues() -> None:
    desk = suspects("a", "b")
    desk.now = 10.0
    assert desk.turn(Left("a", 0, body_waits=True)) == ["start b"]
    assert desk.asks("a", live_body=True) == []
    assert desk.machine.deadline() == 30.0
    assert desk.turn(Left("b", 0, body_waits=True)) == ["start a"]
    assert desk.turn(Left("a", 0, body_waits=True)) == []
    desk.turn(Leave("a", live_body=True))
    assert desk.machine.deadline() == 30.0
    desk.turn(Leave("a"))
    assert desk.machine.deadline() == 40.0
    other = suspects("a", "b")
    assert other.waits("a") == ["start b"]


def test_a_suspect_that_did_not_start_lets_others_execute_and_its_trial_ends() -> None:
    desk = suspects("a", "b")
    desk.now = 10.0
    assert desk.turn(NotStarted("a", 0)) == ["start b"]
    assert desk.machine.deadline() == 40.0


def test_a_suspect_that_is_cancelled_as_its_wait_ends_is_alone_until_its_body_has_ended() -> None:
    desk = suspects("a", "b", deaths=1)
    assert desk.turn(Left("a", 0, body_waits=True)) == []
    assert desk.asks("a", live_body=True) == ["start a"]
    assert desk.turn(Left("a", None), Cancelling("a"), NotStarted("a", 0)) == []
    assert desk.turn(RunsEnded([Ended("a", False)])) == ["start b"]


def test_a_suspect_that_no_longer_requests_a_slot_is_on_trial_until_its_slot_is_free() -> None:
    desk = suspects("a", "b")
    assert desk.turn(Leave("a")) == []
    assert desk.waits("a") == ["start b"]
    other = suspects("a", "b")
    assert other.turn(Leave("a")) == []
    assert other.turn(NotStarted("a", 0)) == ["start b"]


def test_a_run_that_waited_in_its_body_is_a_suspect_like_those_that_executed() -> None:
    store = Store()
    store.holds("a", Status.RUNNING, place=1)
    store.holds("b", Status.SUSPENDED, place=2, waiting_for="answer")
    store.holds("c", Status.SUSPENDED, place=3, waiting_for="answer", bodiless=True)
    desk = store.opened()
    assert [what.deaths for what in desk.told("run")] == [1, 1, 0]
    for run in "abc":
        desk.turn(Enter(run, 1), Recovered())
    assert list(desk.machine.order.executing) == ["a", "c"]


# Long waits.


def waiting(desk: Desk, *runs: str, **fields: Any) -> None:
    desk.submits(*runs, **({"warn_after": 2.0} | fields))


def said(desk: Desk) -> list[tuple[str, float, int, list[str]]]:
    """The events of long waits in the last turn."""
    events = [event for change in desk.changes() for event in change.events if event.type == "run_waiting"]
    return [(event.run, event.waited, event.ahead, event.blockers) for event in events]


def test_a_long_wait_in_a_lane_is_reported_with_the_blocking_runs(caplog) -> None:
    desk = Desk(limit=1)
    desk.submits("a")
    waiting(desk, "b", "c")
    assert desk.machine.deadline() == 2.0
    desk.at(2)
    assert said(desk) == [("b", 2.0, 0, ["a"])]
    (change,) = desk.changes()
    assert change.expect == frozenset({Status.QUEUED})
    assert "1 more wait too long" in caplog.text
    assert desk.machine.deadline() == math.inf


def test_a_run_that_is_not_committed_yet_is_not_reported(caplog) -> None:
    desk = Desk(limit=0)
    desk.commits = False
    waiting(desk, "a", on_wait=lambda *_: None)
    desk.at(2)
    assert (said(desk), desk.helpers(), caplog.text) == ([], [], "")
    assert desk.machine.deadline() == 3.0
    desk.pending("a").committed = True
    desk.at(3)
    assert said(desk) == [("a", 3.0, 0, [])]
    assert len(desk.helpers()) == 1


def test_a_run_that_starts_in_time_is_not_reported() -> None:
    desk = Desk(limit=1)
    desk.submits("a")
    waiting(desk, "b")
    desk.now = 1.0
    desk.ends("a")
    assert desk.machine.deadline() == math.inf


def test_a_run_that_could_not_be_stored_is_not_reported() -> None:
    desk = Desk(limit=0)
    waiting(desk, "a")
    desk.turn(NotStored("a"))
    assert desk.machine.deadline() == math.inf


def test_a_long_wait_in_a_handle_is_reported() -> None:
    desk = Desk(limit=9)
    desk.submits("a", handle="h")
    waiting(desk, "b", handle="h", on_conflict="queue")
    waiting(desk, "c", handle="h", on_conflict="queue", on_wait=lambda *args: None)
    desk.at(2)
    assert said(desk) == [("b", 2.0, 0, ["a"])]
    assert len(desk.helpers()) == 1


def test_a_long_wait_in_a_handle_is_reported_with_the_number_of_runs_ahead() -> None:
    heard: list[Any] = []
    desk = Desk(limit=9)
    desk.submits("a", handle="h")
    waiting(desk, "b", handle="h", on_conflict="queue")
    waiting(desk, "c", handle="h", on_conflict="queue", on_wait=lambda *args: heard.append(args))
    desk.at(2)
    (helper,) = desk.helpers()
    trio.run(helper)
    assert heard == [(2.0, 1, ["a"])]


def test_a_run_that_was_cancelled_when_it_was_next_is_not_reported() -> None:
    desk = Desk(limit=9)
    desk.submits("a", handle="h")
    waiting(desk, "b", handle="h", on_conflict="queue")
    desk.turn(desk.cancel("b"))
    desk.ends("a")
    desk.at(2)
    assert said(desk) == []


def test_the_longest_wait_of_each_lane_is_reported_and_each_on_wait_is_called(caplog) -> None:
    desk = Desk(limit=0)
    waiting(desk, "a", "b")
    waiting(desk, "c", on_wait=lambda *args: None)
    waiting(desk, "d", lane="x")
    desk.at(2)
    assert [run for run, *_ in said(desk)] == ["a", "d"]
    assert len(desk.helpers()) == 1
    (line,) = [line for line in caplog.records if line.levelno == logging.WARNING]
    assert "run a of handle 'of-a'" in line.message
    assert "3 more wait too long" in line.message
    assert "blocked by a limit of 0" in line.message


def test_while_the_engine_drains_the_warning_names_draining_as_the_cause(caplog) -> None:
    desk = Desk(limit=1)
    waiting(desk, "a")
    desk.submits("z")
    waiting(desk, "b")
    desk.turn(SetDraining(True, "ann", Reply()))
    desk.turn(Left("a", 0), RunsEnded([Ended("a", False)]))
    desk.at(2)
    assert "blocked by draining" in caplog.text


def test_a_run_that_left_the_queue_is_not_reported() -> None:
    desk = Desk(limit=0)
    waiting(desk, "a", "b")
    desk.turn(desk.cancel("a"))
    desk.at(2)
    assert said(desk) == []  # it is the longest wait, and has ended


def test_a_warning_that_has_to_wait_is_logged_a_second_later(caplog) -> None:
    desk = Desk(limit=0)
    waiting(desk, "a")
    desk.at(2)
    desk.now = 0.5
    waiting(desk, "b", lane="x")
    desk.at(2.5)
    assert caplog.text.count("has waited") == 1
    assert desk.machine.deadline() == 3.0
    desk.at(3)
    assert caplog.text.count("has waited") == 2


def test_a_warning_that_is_due_is_logged_in_any_turn(caplog) -> None:
    desk = Desk(limit=0)
    waiting(desk, "a")
    desk.at(2)
    desk.now = 0.5
    waiting(desk, "b", lane="x")
    desk.at(2.5)
    desk.now = 3.0
    desk.turn()
    assert caplog.text.count("has waited") == 2


def test_the_reason_of_a_wait_is_found_out_once_a_second_for_each_lane(caplog, monkeypatch) -> None:
    desk = Desk(limit=0)
    asked: list[str] = []
    wait_of = desk.machine.order.wait_of

    def counted(run: str, lane: str, now: float) -> Wait | None:
        asked.append(run)
        return wait_of(run, lane, now)

    monkeypatch.setattr(desk.machine.order, "wait_of", counted)
    for number in range(20):
        desk.now = number / 100
        waiting(desk, f"run {number}")
    for number in range(20):
        desk.at(2 + number / 100)
    desk.at(3)
    assert len(asked) == 2  # at the first warning, and for the next one
    assert "19 more wait too long" in caplog.text or "18 more wait too long" in caplog.text
