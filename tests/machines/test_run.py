"""How a run starts, waits, resumes and is retried: its machine, without a scheduler."""

from __future__ import annotations

import logging
import math

import pytest

from greenroom.actors.channel import Reply
from greenroom.actors.engine.suspends import Suspended
from greenroom.actors.messages import (
    BodyGone,
    Cancel,
    Ended,
    Enter,
    Inject,
    KeepTime,
    Leave,
    Left,
    Stop,
)
from greenroom.actors.run.background import BackgroundDone
from greenroom.actors.run.body_messages import BodyEnded, Flag, Resume, Returned, Suspend
from greenroom.actors.run.pause import AwaitedInterrupt, Pause
from greenroom.persistence.store import Checkpoint, WakesAt
from greenroom.protocol.errors import Conflict
from greenroom.protocol.events import InterruptOpened
from greenroom.protocol.states import Status

from .driving import WALL, Driver, after_restart, answer, executing, queued, record_of
from .making import submission

# Starts.


def test_a_run_that_gets_a_slot_starts_its_body_immediately() -> None:
    run = queued(params={"a": 1})
    run.hold(run.decide_start())
    assert not run.helpers
    assert len(run.bodies) == 1
    assert (run.body.attempt, run.body.checkpoint, run.body.inbox) == (1, None, ())
    assert (run.status, run.record.interactive) == (Status.RUNNING, True)


def test_a_run_of_kind_continue_resumes_from_what_another_run_saved() -> None:
    run = queued(kind="continue")
    run.saved = Checkpoint("alice", "walk", "another", {"page": 3})
    run.hold(run.decide_start())
    assert run.bodies == []
    run.settle()
    assert run.body.checkpoint == {"page": 3}


def test_a_run_of_kind_continue_starts_without_a_checkpoint_if_none_was_saved() -> None:
    run = queued(kind="continue")
    run.start()
    assert run.body.checkpoint is None


@pytest.mark.parametrize(("saver", "checkpoint"), [("another", None), ("own", {"page": 3})])
def test_a_second_attempt_resumes_only_from_a_checkpoint_of_its_own_run(saver, checkpoint) -> None:
    run = executing("retry")
    run.saved = Checkpoint("alice", "retry", run.id if saver == "own" else saver, {"page": 3})
    run.raises()
    run.at(5)
    run.start()
    assert run.body.attempt == 2
    assert run.body.checkpoint == checkpoint


def test_messages_that_arrive_while_the_checkpoint_is_read_are_handled_when_the_body_has_begun() -> None:
    run = queued(kind="continue", run_timeout=10.0)
    run.hold(run.decide_start())
    reply: Reply[str] = Reply()
    run.hold(Inject(run.id, "hello", "ann", reply))
    run.hold(Cancel(run.id, "ann", "user", "keep", Reply()))
    assert not reply.done
    assert run.machine.deadline() == math.inf
    assert run.machine.has_work()
    run.settle()
    assert answer(reply) == "accepted"
    assert [message.value for message in run.body.inbox] == ["hello"]
    assert run.status is Status.CANCELLING


def test_a_run_whose_deadline_passes_while_its_checkpoint_is_read_gets_no_body() -> None:
    run = queued(kind="continue", deadline=7.0)
    run.hold(run.decide_start())
    run.now = 8.0
    run.settle()
    assert run.bodies == []
    assert (run.status, run.record.reason) == (Status.TIMED_OUT, "deadline")


def test_a_start_ends_the_queue_timeout() -> None:
    run = queued(queue_timeout=3.0)
    assert run.machine.deadline() == 3.0
    run.start()
    assert run.machine.deadline() == math.inf


def test_a_new_body_is_interactive_and_in_no_other_phase() -> None:
    run = executing("retry")
    run.give(Flag("streaming", True, Reply()))
    run.give(Flag("compacting", True, Reply()))
    run.raises()
    run.at(5)
    run.start()
    assert (run.record.interactive, run.record.streaming, run.record.compacting) == (True, False, False)
    assert run.give(Inject(run.id, "hello", "ann", Reply())) == "accepted"


def test_the_error_of_a_helper_is_raised_in_the_runs_turn() -> None:
    run = queued(kind="continue")
    run.hold(run.decide_start())
    with pytest.raises(ZeroDivisionError):
        run.hold(BackgroundDone(error=ZeroDivisionError()))


# How a body ends by itself.


def test_the_slot_is_released_when_the_end_is_sent_and_not_before_the_body_has_ended() -> None:
    run = executing()
    run.hold(BodyEnded(Returned(None)))
    assert run.supervisor() == [Left(run.id, 0)]
    assert len(run.changes) == 1
    run.settle()
    assert run.supervisor() == [Ended(run.id, False)]


def test_a_body_that_returns_ends_its_run() -> None:
    run = executing()
    run.returns({"pages": 3})
    record = run.record
    assert (record.status, record.result, record.reason) == (Status.SUCCEEDED, {"pages": 3}, None)
    assert not record.interactive
    assert run.changed()[-1].by == "body"
    assert run.supervisor() == [Left(run.id, 0), Ended(run.id, False)]
    assert not run.machine.has_work()
    assert run.machine.state.ended


def test_a_body_that_raises_in_its_last_attempt_fails_its_run(caplog) -> None:
    run = executing()
    run.raises(ValueError("no"))
    record = run.record
    assert (record.status, record.error, record.reason) == (Status.FAILED, "ValueError: no", "error")
    assert run.changed()[-1].by == "body"
    assert "has no attempts left" in caplog.text


def test_a_body_that_raises_is_retried_after_its_backoff(caplog) -> None:
    run = executing("retry")
    run.raises(ValueError("no"))
    record = run.record
    assert (record.status, record.reason, record.waiting_for) == (Status.SUSPENDED, "retry", "retry")
    assert (record.interactive, record.attempt) == (False, 1)
    (event,) = run.changed()
    assert (event.by, event.error) == ("body", "ValueError: no")
    (memo,) = run.remembered()
    assert memo == WakesAt(run.id, WALL + 5, run.submission.terms)
    assert run.submission.terms.waits == 5
    assert run.supervisor() == [Left(run.id, 0)]
    assert "will be retried" in caplog.text
    assert run.machine.has_work()
    run.at(4.9)
    assert run.supervisor() == []
    run.at(5)
    assert run.supervisor() == [Enter(run.id, 2, False, True)]
    run.start()
    assert (run.record.attempt, run.body.attempt) == (2, 2)
    run.raises()
    assert run.status is Status.FAILED


def test_an_error_that_is_no_exception_of_the_job_is_not_retried() -> None:
    run = executing("retry")
    run.raises(KeyboardInterrupt())
    assert run.status is Status.FAILED


def test_a_backoff_that_fails_is_replaced_by_the_default(caplog) -> None:
    run = executing("broken")
    run.raises()
    assert run.machine.deadline() == 1.0
    assert "backoff function of job 'broken' failed for attempt 1" in caplog.text
    run.at(1)
    run.start()
    run.raises()
    assert run.machine.deadline() == 3.0


def test_each_attempt_has_its_own_run_timeout() -> None:
    run = executing("retry", run_timeout=10.0)
    run.at(4)
    run.raises()
    run.at(9)
    run.start()
    assert run.machine.deadline() == 19.0


def test_executing_time_of_an_attempt_does_not_count_for_the_next() -> None:
    run = executing("retry", run_timeout=10.0)
    run.at(4)
    run.give(Suspend("time", None, None, Reply()))
    run.give(Resume(Reply()))
    run.start(resumes=True)
    run.raises()
    run.at(9)
    assert run.machine.deadline() == math.inf  # the wait for its slot is not limited
    run.start()
    assert run.machine.deadline() == 19.0


def test_the_files_that_a_body_has_finished_are_its_runs() -> None:
    run = executing("retry")
    run.host.files = ("one",)
    run.raises()
    run.at(5)
    run.start()
    run.host.files = ("two",)
    run.cancel(files="delete")
    run.stopped()
    assert run.files.calls == [("delete", ["one", "two"])]


def test_messages_that_a_body_has_not_taken_are_for_the_next_one() -> None:
    run = executing("retry")
    run.give(Inject(run.id, "hello", "ann", Reply()))
    run.raises()
    run.at(5)
    run.start()
    assert [message.value for message in run.body.inbox] == ["hello"]
    assert run.machine.state.inbox == ()


def test_calls_of_a_body_that_has_ended_are_refused() -> None:
    run = executing("retry")
    run.raises()
    assert run.body.closed == "its body has ended"


# Waits without a slot.


def test_a_body_that_waits_releases_its_slot_and_continues_with_another() -> None:
    run = executing()
    assert run.give(Suspend("time", WALL + 60, 60.0, Reply())) is None
    assert (run.status, run.record.reason, run.record.waiting_for) == (Status.SUSPENDED, "time", "time")
    assert run.record.interactive
    assert run.changed()[-1].by == "body"
    assert run.remembered() == [WakesAt(run.id, WALL + 60, run.submission.terms)]
    assert run.submission.terms.waits == 60
    assert run.supervisor() == [Left(run.id, 0, body_waits=True)]
    resumed: Reply[None] = Reply()
    run.give(Resume(resumed))
    assert not resumed.done
    assert run.supervisor() == [Enter(run.id, 1, True, False)]
    run.start(resumes=True)
    assert resumed.done
    assert len(run.bodies) == 1
    assert (run.status, run.record.attempt, run.record.waiting_for) == (Status.RUNNING, 1, None)
    assert run.machine.state.waiting_for is None


def test_a_wait_without_an_end_stores_no_wake_time() -> None:
    run = executing()
    run.give(Suspend("child", None, None, Reply()))
    assert run.remembered() == []


def test_a_body_has_at_most_one_wait_without_its_slot_at_a_time() -> None:
    run = executing()
    run.give(Suspend("time", None, None, Reply()))
    refused = run.give(Suspend("time", None, None, Reply()))
    assert isinstance(refused, Conflict)
    assert "one such wait at a time" in str(refused)


def test_a_body_that_must_end_neither_waits_nor_requests_a_slot() -> None:
    run = executing()
    run.cancel()
    run.supervisor()
    assert run.give(Suspend("time", None, None, Reply())) is None
    assert run.give(Resume(Reply())) is None
    assert run.status is Status.CANCELLING
    assert run.supervisor() == []


def test_a_body_that_has_its_slot_requests_none() -> None:
    run = executing()
    assert run.give(Resume(Reply())) is None
    assert run.supervisor() == []


def test_waits_without_a_slot_do_not_count_as_executing() -> None:
    run = executing(run_timeout=10.0)
    run.at(4)
    run.give(Suspend("time", None, None, Reply()))
    assert run.machine.deadline() == math.inf
    run.at(100)
    run.give(Resume(Reply()))
    run.start(resumes=True)
    assert run.machine.deadline() == 106.0
    run.at(102)
    run.give(Suspend("time", None, None, Reply()))
    run.at(200)
    run.give(Resume(Reply()))
    run.start(resumes=True)
    assert run.machine.deadline() == 204.0


def test_a_body_that_raises_while_another_task_of_it_waits_is_retried() -> None:
    run = executing("retry")
    run.give(Suspend("time", None, None, Reply()))
    run.changed()
    run.raises()
    log, event = run.changed()
    assert log.text == "attempt 1 failed and will be retried in 5 s: ValueError: no"
    assert (event.type, event.interactive) == ("run_changed", False)
    assert run.machine.deadline() == 5.0


def test_a_body_that_ends_while_it_is_queued_leaves_the_queue() -> None:
    run = executing()
    run.give(Suspend("time", None, None, Reply()))
    run.give(Resume(Reply()))
    run.supervisor()
    run.returns()
    assert run.supervisor() == [Leave(run.id), Ended(run.id, False)]


def test_a_slot_for_a_body_that_has_ended_meanwhile_is_released_until_the_retry() -> None:
    run = executing("retry", run_timeout=3.0)
    run.give(Suspend("time", None, None, Reply()))
    run.give(Resume(Reply()))
    started = run.decide_start(resumes=True)
    run.raises()  # the run had not received its start
    run.changed()
    run.supervisor()
    run.give(started)
    assert len(run.bodies) == 1
    assert (run.status, run.record.waiting_for, run.record.reason) == (Status.SUSPENDED, "retry", "retry")
    assert not run.record.interactive
    assert run.supervisor() == [Left(run.id, 0)]
    assert run.machine.deadline() == 5.0
    run.at(5)
    assert run.supervisor() == [Enter(run.id, 2, False, True)]


# Waits without a body.


def test_a_run_can_wait_without_a_body_and_its_next_body_is_the_same_attempt() -> None:
    run = executing("swim", run_timeout=10.0)
    run.at(2)
    run.pauses(Pause("time", WALL + 62, within=60))
    assert (run.status, run.record.waiting_for, run.record.reason) == (Status.SUSPENDED, "time", "time")
    assert not run.record.interactive
    assert run.changed()[-1].by == "body"
    assert run.remembered() == [WakesAt(run.id, WALL + 62, run.submission.terms)]
    assert run.submission.terms.waits == 60
    assert run.supervisor() == [Left(run.id, 0)]
    assert run.machine.deadline() == 62.0
    run.at(62)
    assert run.supervisor() == [Enter(run.id, 1, False, False)]
    run.start()
    assert (run.body.attempt, run.host.woken_at) == (1, WALL + 62)
    assert run.machine.deadline() == 70.0
    assert run.machine.state.woken_at is None
    run.pauses(Pause("message"))
    run.give(Inject(run.id, "hello", "ann", Reply()))
    assert run.machine.state.waits_for is None or run.status is Status.SUSPENDED


def test_a_wait_without_a_body_is_not_longer_than_requested() -> None:
    run = executing("swim")
    run.pauses(Pause("time", WALL + 9999, within=60))
    assert run.machine.deadline() == 60.0


def test_the_memos_of_a_pause_are_committed_with_it() -> None:
    run = executing("swim")
    memo = Checkpoint("alice", "swim", run.id, 1)
    run.pauses(Pause("time", WALL + 1, memos=(memo,)))
    assert run.remembered() == [WakesAt(run.id, WALL + 1, run.submission.terms), memo]


def test_an_interrupt_can_be_open_while_there_is_no_body() -> None:
    run = executing("swim")
    run.pauses(Pause("answer", interrupt=AwaitedInterrupt("key", {"ok": "?"})))
    (opened, _) = run.changed()
    assert isinstance(opened, InterruptOpened)
    assert (opened.key, opened.data, opened.deadline) == ("key", {"ok": "?"}, None)
    assert run.machine.state.waits_for is not None
    assert run.supervisor() == [Left(run.id, 0)]


def test_a_run_without_a_body_accepts_messages_only_if_it_waits_for_one() -> None:
    run = executing("swim")
    run.pauses(Pause("time", WALL + 60))
    assert isinstance(run.give(Inject(run.id, "hello", "ann", Reply())), Exception)


# Time.


def test_a_deadline_is_counted_from_the_submission() -> None:
    run = Driver(submission(place=1, deadline=9.0, queue_timeout=20.0, created_at=100.0))
    assert run.machine.deadline() == 109.0


def test_a_suspend_of_the_computer_advances_waits_for_wall_time() -> None:
    run = executing("swim", deadline=100.0, run_timeout=50.0)
    run.give(Suspended(30.0))
    assert run.machine.deadline() == 50.0  # executing time is not lost
    run.give(Suspended(30.0))
    assert run.machine.deadline() == 40.0
    waiting = executing("retry")
    waiting.raises()
    waiting.give(Suspended(2.0))
    assert waiting.machine.deadline() == 3.0
    paused = executing("swim")
    paused.pauses(Pause("time", WALL + 60))
    paused.give(Suspended(2.0))
    assert paused.machine.deadline() == 58.0
    assert queued_after_suspend(2.0) == 1.0


def queued_after_suspend(seconds: float) -> float:
    run = queued(queue_timeout=3.0)
    run.give(Suspended(seconds))
    return run.machine.deadline()


def test_a_suspend_of_the_computer_advances_the_sleep_of_a_body(monkeypatch) -> None:
    run = executing()
    heard: list[float] = []
    monkeypatch.setattr(type(run.body), "advance", lambda self, seconds: heard.append(seconds))
    run.give(Suspended(2.0))
    assert heard == [2.0]


# Whether its actor is needed.


def test_a_queued_run_needs_its_actor_only_for_its_time_and_its_messages() -> None:
    run = queued()
    run.give(KeepTime())
    assert not run.machine.has_work()
    assert queued(deadline=3.0).machine.has_work()
    waiting = after_restart(record_of(Status.QUEUED), messages=[(3, "hello")])
    assert waiting.machine.has_work()


def test_a_run_that_waits_needs_its_actor_until_the_engine_stops() -> None:
    run = executing("swim")
    run.pauses(Pause("time", WALL + 60))
    assert run.machine.has_work()
    run.stop(now=False)
    assert run.machine.has_work()
    run.stop(now=True)
    assert not run.machine.has_work()


def test_a_run_needs_its_actor_while_a_change_of_it_is_committed() -> None:
    run = executing(run_timeout=10.0)
    run.hold(BodyEnded(Returned(None)))
    assert run.machine.has_work()
    assert run.machine.deadline() == math.inf
    run.settle()
    assert not run.machine.has_work()


def test_a_run_needs_its_actor_while_its_files_are_deleted_even_if_the_engine_ends() -> None:
    run = executing("retry")
    run.host.files = ("one",)
    run.raises()
    run.hold(Cancel(run.id, "ann", "user", "delete", Reply()))
    run.commit()
    run.hold(Stop(True))
    assert run.machine.has_work()


def test_a_run_with_an_abandoned_body_needs_its_actor_until_the_engine_ends() -> None:
    run = executing()
    run.cancel()
    run.at(10)
    assert run.status is Status.CANCELLED
    assert run.machine.has_work()
    run.stop(now=False)
    assert not run.machine.has_work()
    run.stopped()
    assert run.supervisor()[-1] == BodyGone(run.id, "alice")
    assert not run.machine.has_work()


# Shutdown.


def test_a_body_that_executes_has_some_time_to_finish() -> None:
    run = executing("swim")
    run.stop(now=False)
    assert not run.body.cancel_requested
    assert run.status is Status.RUNNING
    run.stop(now=True)
    assert run.body.cancel_requested
    assert run.body.resumes_later
    assert run.scope_is_cancelled()
    run.stopped()
    record = run.record
    assert (record.status, record.reason, record.waiting_for) == (Status.SUSPENDED, "shutdown", "slot")
    assert not record.interactive
    (event,) = run.changed()
    assert (event.by, event.holds_handle) == ("engine", False)
    assert not run.machine.has_work()


@pytest.mark.parametrize("name", ["swim", "calm"])
def test_a_body_that_has_ended_when_it_was_stopped_is_not_waited_for(name) -> None:
    run = executing(name)
    run.stop(now=True)
    run.stopped()
    assert run.machine.deadline() == math.inf


def test_a_resumable_body_that_waits_is_stopped_immediately() -> None:
    run = executing("swim")
    run.give(Suspend("time", WALL + 60, 60.0, Reply()))
    run.stop(now=False)
    assert run.body.cancel_requested
    run.changed()
    run.stopped()
    assert (run.status, run.record.waiting_for) == (Status.SUSPENDED, "time")
    (event,) = run.changed()
    assert (event.type, event.interactive, event.by) == ("run_changed", False, "body")


def test_a_run_that_is_not_resumable_is_cancelled_at_shutdown() -> None:
    run = executing()
    run.stop(now=False)
    assert run.status is Status.RUNNING
    run.stop(now=True)
    assert run.status is Status.CANCELLING
    assert not run.body.resumes_later
    run.stopped()
    assert (run.status, run.record.reason) == (Status.CANCELLED, "shutdown")


def test_a_stopped_body_that_returns_has_succeeded() -> None:
    run = executing("swim")
    run.stop(now=True)
    run.returns(1)
    assert run.status is Status.SUCCEEDED


def test_a_body_that_pauses_although_it_was_stopped_is_paused() -> None:
    run = executing("swim")
    run.stop(now=True)
    run.pauses(Pause("time", WALL + 60))
    assert (run.status, run.record.waiting_for) == (Status.SUSPENDED, "time")


def test_a_stopped_body_that_raises_is_not_retried() -> None:
    run = executing("retry")
    run.stop(now=True)
    run.raises()
    assert run.status is Status.FAILED


def test_a_shutdown_ignores_bodies_that_are_ending_and_runs_without_one() -> None:
    run = executing("swim")
    run.cancel()
    run.changed()
    run.stop(now=True)
    assert not run.body.resumes_later
    assert run.changed() == []
    waiting = queued()
    waiting.stop(now=True)
    assert waiting.status is Status.QUEUED


def test_a_slot_that_arrives_after_the_body_was_stopped_is_released() -> None:
    run = executing("swim", run_timeout=3.0)
    run.give(Suspend("time", WALL + 60, 60.0, Reply()))
    resumed: Reply[None] = Reply()
    run.give(Resume(resumed))
    started = run.decide_start(resumes=True)
    run.stop(now=False)
    assert resumed.done
    run.supervisor()
    run.give(started)
    assert len(run.bodies) == 1
    assert run.machine.deadline() == 10.0  # only its grace counts
    run.stopped()
    assert (run.status, run.record.reason, run.record.waiting_for) == (Status.SUSPENDED, "shutdown", "slot")
    assert run.supervisor() == [Left(run.id, 0)]


def test_a_slot_that_arrives_after_the_stopped_body_has_ended_is_released_until_the_next_start() -> None:
    run = executing("swim")
    run.give(Suspend("time", WALL + 60, 60.0, Reply()))
    run.give(Resume(Reply()))
    started = run.decide_start(resumes=True)
    run.stop(now=False)
    run.stopped()
    run.supervisor()
    run.give(started)
    assert len(run.bodies) == 1
    assert (run.status, run.record.reason, run.record.waiting_for) == (Status.SUSPENDED, "shutdown", "slot")
    assert run.supervisor() == [Left(run.id, 0)]


def test_a_stop_takes_effect_even_between_two_commits() -> None:
    run = executing("swim")
    run.hold(Suspend("time", None, None, Reply()))
    run.hold(Stop(False))
    assert not run.body.cancel_requested
    run.settle()
    assert run.body.cancel_requested


def test_failures_of_probes_are_no_errors(caplog) -> None:
    caplog.set_level(logging.DEBUG)
    run = executing(handle="auth-probe:x")
    run.raises()
    assert [record.levelno for record in caplog.records if "failed in attempt" in record.message] == [10]
