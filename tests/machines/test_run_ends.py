"""How a run is ended from outside: cancels, deadlines, abandoned bodies, and races with a start."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest

from greenroom.actors.channel import Reply
from greenroom.actors.messages import (
    BodyGone,
    Cancel,
    Cancelling,
    Ended,
    Forget,
    Leave,
    Left,
    Reject,
    SendSignal,
)
from greenroom.actors.run.body_messages import (
    BodyEnded,
    Flag,
    OpenInterrupt,
    Resume,
    Returned,
    Stopped,
    Suspend,
)
from greenroom.actors.run.machine import DeadlineReached
from greenroom.actors.run.pause import Pause
from greenroom.persistence.store import FilesDoomed
from greenroom.protocol.errors import Conflict, NotInteractive, RunAbandoned, RunCancelled
from greenroom.protocol.states import Status

from .driving import WALL, Driver, answer, executing, queued, record_of
from .making import Written


def cancelling(run: Driver, reason: str = "user", files: Any = "keep") -> Cancel:
    return Cancel(run.id, "ann", reason, files, Reply())


# Cancels.


def test_a_queued_run_is_cancelled_immediately() -> None:
    run = queued()
    cancelled = run.cancel()
    assert cancelled == run.record
    assert (run.status, run.record.reason) == (Status.CANCELLED, "user")
    assert [event.by for event in run.changed()] == ["ann"]
    assert run.supervisor() == [Ended(run.id, False)]
    assert run.submission.over


def test_a_run_that_executes_is_cancelling_until_its_body_has_ended() -> None:
    run = executing()
    cancelled = run.cancel()
    assert cancelled == run.record
    assert (run.status, run.record.reason) == (Status.CANCELLING, "user")
    assert run.supervisor() == [Cancelling(run.id)]
    assert run.body.cancel_requested
    assert run.scope_is_cancelled()
    run.stopped()
    assert (run.status, run.record.reason) == (Status.CANCELLED, "user")
    assert [event.by for event in run.changed()] == ["ann", "ann"]
    assert run.supervisor() == [Left(run.id, 0), Ended(run.id, False)]


def test_a_run_that_waits_with_its_body_is_cancelling_and_stays_without_a_slot() -> None:
    run = executing()
    run.give(Suspend("time", None, None, Reply()))
    run.supervisor()
    run.cancel()
    assert (run.status, run.record.waiting_for) == (Status.CANCELLING, "time")
    assert run.supervisor() == [Left(run.id, None), Cancelling(run.id)]
    run.stopped()
    assert run.supervisor() == [Ended(run.id, False)]


def test_a_run_that_waits_without_a_body_is_cancelled_immediately() -> None:
    run = executing("retry")
    run.raises()
    run.supervisor()
    run.cancel()
    assert run.status is Status.CANCELLED
    assert run.supervisor() == [Ended(run.id, False)]
    assert run.machine.deadline() == math.inf


def test_a_body_that_is_queued_for_a_slot_leaves_the_queue_when_it_is_cancelled() -> None:
    run = executing()
    run.give(Suspend("time", None, None, Reply()))
    resumed: Reply[None] = Reply()
    run.give(Resume(resumed))
    run.supervisor()
    run.cancel()
    assert resumed.done
    assert Leave(run.id, live_body=True) in run.supervisor()


def test_a_second_cancel_is_refused_with_the_run_as_it_is() -> None:
    run = executing()
    run.cancel()
    refused = run.cancel()
    assert isinstance(refused, Conflict)
    assert refused.details == {"run": run.record}
    assert "is cancelling and cannot be cancelled" in str(refused)


def test_an_ended_run_can_not_be_cancelled() -> None:
    run = executing()
    run.returns()
    refused = run.cancel()
    assert isinstance(refused, Conflict)
    assert refused.details == {"run": run.record}


@pytest.mark.parametrize("reason", ["lane_cleared", "handle_cleared"])
def test_a_clear_cancels_only_what_is_queued(reason) -> None:
    run = executing()
    assert isinstance(run.cancel(reason), Conflict)
    assert run.status is Status.RUNNING
    assert queued().cancel(reason).status is Status.CANCELLED


def test_a_body_in_post_processing_is_not_cancelled() -> None:
    run = executing()
    run.give(Flag("interactive", False, Reply()))
    assert isinstance(run.cancel(), NotInteractive)
    assert run.status is Status.RUNNING
    run.raises()
    assert run.status is Status.FAILED


@pytest.mark.parametrize(
    ("reason", "then"),
    [("user", Status.SUSPENDED), ("replaced", Status.FAILED), ("parent_cancelled", Status.FAILED)],
)
def test_a_run_that_was_to_be_replaced_in_post_processing_is_not_retried(reason, then) -> None:
    run = executing("retry")
    run.give(Flag("interactive", False, Reply()))
    run.cancel(reason)
    run.cancel()
    run.raises()
    assert run.status is then


def test_a_cooperative_body_sees_its_cancel_before_its_scope_is_cancelled() -> None:
    run = executing("polite")
    run.cancel()
    assert run.body.cancel_requested
    assert not run.scope_is_cancelled()
    run.at(3.9)
    assert not run.scope_is_cancelled()
    run.at(4)
    assert run.scope_is_cancelled()
    run.at(7.9)
    assert run.status is Status.CANCELLING
    run.at(8)
    assert (run.status, run.record.reason) == (Status.CANCELLED, "abandoned")


def test_a_cooperative_body_that_obeys_and_returns_is_cancelled() -> None:
    run = executing("polite")
    run.cancel()
    run.body.saw_cancel_request = True
    run.returns(1)
    assert (run.status, run.record.reason, run.record.result) == (Status.CANCELLED, "user", None)
    assert run.changed()[-1].by == "ann"
    assert run.machine.deadline() == math.inf


def test_a_body_that_returns_before_it_sees_its_cancel_has_succeeded() -> None:
    run = executing("polite")
    run.cancel()
    run.returns(1)
    assert (run.status, run.record.result) == (Status.SUCCEEDED, 1)


def test_a_body_that_returns_at_shutdown_has_succeeded() -> None:
    run = executing("swim")
    run.stop(now=True)
    run.body.saw_cancel_request = True
    run.returns(1)
    assert run.status is Status.SUCCEEDED


def test_a_body_that_pauses_although_it_is_cancelled_is_cancelled() -> None:
    run = executing("swim")
    run.cancel()
    run.pauses(Pause("time", WALL + 60))
    assert run.status is Status.CANCELLED


def test_a_body_that_fails_when_it_is_cancelled_has_failed() -> None:
    run = executing("retry")
    run.cancel()
    run.raises()
    assert run.status is Status.FAILED


def cancelled_child() -> RunCancelled:
    return RunCancelled(record_of(Status.CANCELLED))


def test_a_body_whose_child_was_cancelled_together_with_it_is_cancelled() -> None:
    run = executing()
    run.cancel()
    run.raises(cancelled_child())
    assert run.status is Status.CANCELLED


def test_a_body_whose_child_was_cancelled_by_somebody_else_has_failed() -> None:
    run = executing()
    run.raises(cancelled_child())
    assert run.status is Status.FAILED
    stopped = executing("swim")
    stopped.stop(now=True)
    stopped.raises(cancelled_child())
    assert stopped.status is Status.FAILED


def test_the_children_of_a_cancelled_body_are_cancelled() -> None:
    run = executing()
    run.host.children["child"] = None
    run.cancel()
    (_, cancel) = run.supervisor()
    assert (cancel.run, cancel.by, cancel.reason, cancel.files) == (
        "child",
        "engine",
        "parent_cancelled",
        "keep",
    )


def test_the_children_of_a_body_that_resumes_later_are_not_cancelled() -> None:
    run = executing("swim")
    run.host.children["child"] = None
    run.stop(now=True)
    assert run.supervisor() == []


def test_a_cancel_during_shutdown_cancels_a_stopped_run() -> None:
    run = executing("swim")
    run.stop(now=True)
    run.cancel()
    run.stopped()
    assert (run.status, run.record.reason) == (Status.CANCELLED, "user")


def test_a_cancel_after_a_timeout_does_not_change_the_timeout() -> None:
    run = executing(run_timeout=5.0)
    run.at(5)
    run.cancel()
    run.stopped()
    assert (run.status, run.record.reason) == (Status.TIMED_OUT, "run_timeout")


# Deadlines.


def test_a_queued_run_whose_deadline_passes_times_out() -> None:
    run = queued(queue_timeout=3.0)
    run.at(2.9)
    assert run.status is Status.QUEUED
    run.at(3)
    assert (run.status, run.record.reason) == (Status.TIMED_OUT, "queue_timeout")
    assert run.changed()[-1].by == "engine"
    assert run.supervisor() == [Ended(run.id, False)]


def test_a_body_whose_timeout_expires_is_ended_and_then_its_run() -> None:
    run = executing(run_timeout=5.0, deadline=9.0)
    run.at(5)
    assert run.status is Status.RUNNING
    assert run.scope_is_cancelled()
    assert run.machine.deadline() == 15.0
    run.returns(1)
    assert (run.status, run.record.reason, run.record.result) == (Status.TIMED_OUT, "run_timeout", None)


def test_a_body_that_is_being_cancelled_is_not_timed_out() -> None:
    run = executing(deadline=9.0)
    run.cancel()
    run.at(9)
    run.stopped()
    assert run.status is Status.CANCELLED


def test_a_run_that_waits_without_a_body_has_its_deadline() -> None:
    run = executing("retry", deadline=3.0)
    run.raises()
    run.at(3)
    assert (run.status, run.record.reason) == (Status.TIMED_OUT, "deadline")


def test_a_body_that_ignores_its_timeout_is_timed_out_when_it_is_abandoned() -> None:
    run = executing(deadline=5.0)
    run.at(15)
    assert (run.status, run.record.reason) == (Status.TIMED_OUT, "abandoned")


# Abandoned bodies.


def test_a_body_that_ignores_its_cancel_is_abandoned_and_keeps_its_handle(caplog) -> None:
    run = executing()
    run.cancel()
    run.supervisor()
    run.at(9.9)
    assert run.status is Status.CANCELLING
    run.at(10)
    record = run.record
    assert (record.status, record.reason) == (Status.CANCELLED, "abandoned")
    assert run.supervisor() == [Left(run.id, 0), Ended(run.id, True)]
    assert run.changed()[-1].holds_handle
    assert run.body.closed == "the body did not end within its grace and was abandoned"
    (line,) = [line for line in caplog.records if line.levelno == logging.ERROR]
    assert "was requested to end (user), did not end within its grace of 10 s" in line.message
    run.returns(1)
    assert run.supervisor() == [BodyGone(run.id, "alice")]
    assert run.record == record


def test_an_abandoned_body_is_no_longer_awaited() -> None:
    run = executing()
    waited: list[Any] = []
    run.live_bodies.abandoned = waited.append  # type: ignore[method-assign]
    run.cancel()
    run.at(10)
    assert waited == [run.execution]


def test_an_interrupt_of_an_abandoned_body_fails() -> None:
    run = executing("swim")
    asked = OpenInterrupt({}, math.inf, "key", False, Reply(), Reply())
    run.give(asked)
    run.stop(now=True)
    run.at(10)
    failed = answer(asked.answer)
    assert isinstance(failed, RunAbandoned)
    assert "was abandoned" in str(failed)


def test_the_parts_of_an_abandoned_body_are_discarded_before_its_run_ends(monkeypatch) -> None:
    run = executing()
    discarded: list[str] = []

    async def discard(self: Any) -> None:
        discarded.append(self.id)

    monkeypatch.setattr(type(run.body), "discard_parts", discard)
    run.cancel()
    run.now = 10
    run.hold(DeadlineReached())
    assert run.machine.state.ending is not None
    assert run.status is Status.CANCELLING
    run.settle()
    assert discarded == [run.id]
    assert run.status is Status.CANCELLED


def test_a_run_ends_although_its_parts_can_not_be_deleted(monkeypatch, caplog) -> None:
    run = executing()

    async def discard(self: Any) -> None:
        raise OSError("disk")

    monkeypatch.setattr(type(run.body), "discard_parts", discard)
    run.cancel()
    run.at(10)
    assert run.status is Status.CANCELLED
    assert f"unfinished files of run {run.id} could not be deleted" in caplog.text


def test_a_body_that_ends_while_it_is_being_abandoned_leaves_its_handle_free() -> None:
    run = executing()
    run.cancel()
    run.supervisor()
    run.now = 10
    run.hold(DeadlineReached())
    run.hold(BodyEnded(Stopped()))
    run.settle()
    assert run.status is Status.CANCELLED
    assert run.supervisor() == [Left(run.id, 0), Ended(run.id, False)]
    assert not run.changed()[-1].holds_handle


def test_a_body_that_ignores_the_shutdown_is_abandoned_and_its_run_resumes_later(caplog) -> None:
    run = executing("swim")
    run.stop(now=True)
    run.at(10)
    assert "requested to end (shutdown), did not end within its grace of 10 s" in caplog.text
    assert (run.status, run.record.reason, run.record.waiting_for) == (Status.SUSPENDED, "shutdown", "slot")
    assert run.machine.state.ending is None
    assert not run.machine.has_work()


def test_a_waiting_body_that_ignores_the_shutdown_is_abandoned_and_its_run_continues_to_wait() -> None:
    run = executing("swim")
    run.give(Suspend("time", WALL + 60, 60.0, Reply()))
    run.stop(now=True)
    run.at(10)
    assert (run.status, run.record.waiting_for) == (Status.SUSPENDED, "time")


def test_a_slot_that_arrives_for_an_abandoned_body_is_released() -> None:
    run = executing("swim")
    run.give(Suspend("time", WALL + 60, 60.0, Reply()))
    run.give(Resume(Reply()))
    started = run.decide_start(resumes=True)
    run.stop(now=False)
    run.at(10)
    run.supervisor()
    run.give(started)
    assert len(run.bodies) == 1
    assert (run.status, run.record.waiting_for) == (Status.SUSPENDED, "slot")
    assert run.supervisor() == [Left(run.id, 0)]


def test_finished_files_of_an_abandoned_body_are_deleted_if_the_cancel_requires_it() -> None:
    run = executing()
    run.host.files = ("one",)
    run.cancel(files="delete")
    run.at(10)
    assert run.files.calls == [("delete", ["one"])]


# Files.


def test_a_cancel_that_deletes_files_is_stored_and_the_files_are_deleted_before_the_end() -> None:
    run = executing()
    run.host.files = ("one",)
    run.cancel(files="delete")
    assert run.remembered() == [FilesDoomed(run.id)]
    run.hold(BodyEnded(Stopped()))
    assert run.status is Status.CANCELLING
    assert run.changes == []
    assert run.machine.has_work()
    run.settle()
    assert run.files.calls == [("delete", ["one"])]
    assert run.status is Status.CANCELLED


def test_a_cancel_that_keeps_deletes_nothing() -> None:
    run = executing()
    run.host.files = ("one",)
    run.cancel()
    run.stopped()
    assert run.remembered() == []
    assert run.files.calls == []


def test_a_cancel_that_deletes_needs_no_helper_where_there_are_no_files() -> None:
    run = executing()
    run.cancel(files="delete")
    run.hold(BodyEnded(Stopped()))
    assert run.helpers == []
    run.settle()
    assert run.status is Status.CANCELLED


def test_a_run_without_a_body_keeps_its_files_unless_they_are_to_be_deleted() -> None:
    run = executing("retry")
    run.host.files = ("one",)
    run.raises()
    run.remembered()
    run.cancel()
    assert run.remembered() == []
    assert run.files.calls == []


def test_an_abandoned_body_that_ends_while_its_files_are_deleted_keeps_no_handle() -> None:
    run = executing()
    run.host.files = ("one",)
    run.cancel(files="delete")
    run.now = 10
    run.hold(DeadlineReached())
    run.help()
    run.supervisor()
    run.hold(BodyEnded(Stopped()))
    run.settle()
    assert run.supervisor() == [Left(run.id, 0), Ended(run.id, False)]


def test_a_signal_does_not_wake_a_flow_whose_files_are_being_deleted() -> None:
    run = executing("flow")
    run.host.files = ("one",)
    run.pauses(Pause("signal"))
    run.hold(cancelling(run, files="delete"))
    run.commit()
    run.supervisor()
    run.hold(SendSignal(run.id, "a", 1, "ann", Reply()))
    run.commit()
    assert run.supervisor() == []


def test_a_flow_that_recorded_its_end_has_its_files_deleted_and_nothing_more_recorded() -> None:
    run = executing("flow")
    run.host.files = ("one",)
    run.cancel(files="delete")
    run.remembered()
    run.host.end_is_written = True
    run.stopped()
    assert run.files.calls == [("delete", ["one"])]
    assert run.remembered() == []


def test_a_run_that_succeeds_keeps_its_files() -> None:
    run = executing("polite")
    run.host.files = ("one",)
    run.cancel(files="delete")
    run.returns()
    assert run.status is Status.SUCCEEDED
    assert run.files.calls == []


def test_the_files_of_a_run_without_a_body_are_deleted() -> None:
    run = executing("retry")
    run.host.files = ("one",)
    run.raises()
    run.remembered()
    run.supervisor()
    message = cancelling(run, files="delete")
    run.hold(message)
    run.commit()
    assert run.remembered() == [FilesDoomed(run.id)]
    assert run.machine.deadline() == math.inf  # the retry is dropped
    assert run.supervisor() == [Leave(run.id)]
    run.settle()
    assert run.files.calls == [("delete", ["one"])]
    assert run.status is Status.CANCELLED
    assert answer(message.reply) == run.record


def test_a_cancel_of_a_run_without_files_stores_no_delete() -> None:
    run = queued()
    run.cancel(files="delete")
    assert run.remembered() == []


def test_files_that_can_not_be_deleted_do_not_prevent_the_end(caplog) -> None:
    run = executing()
    run.host.files = ("one",)
    run.files.error = OSError("disk")
    run.cancel(files="delete")
    run.stopped()
    assert run.status is Status.CANCELLED
    assert "could not all be deleted" in caplog.text


def test_a_cancel_that_arrives_while_the_run_ends_is_refused_afterwards() -> None:
    run = executing("retry")
    run.host.files = ("one",)
    run.raises()
    run.hold(cancelling(run, files="delete"))
    run.commit()
    late = [cancelling(run), cancelling(run)]
    for message in late:
        run.hold(message)
    assert not any(message.reply.done for message in late)
    run.settle()
    assert all(isinstance(answer(message.reply), Conflict) for message in late)
    assert run.machine.state.late_cancels == ()


# Races with a start: the start was decided first, and the run receives it only now.


def test_a_cancel_that_crosses_the_start_cancels_the_body() -> None:
    run = queued()
    message = cancelling(run)
    run.hold(message)
    started = run.decide_start()
    run.hold(started)
    run.settle()
    assert run.status is Status.CANCELLING
    assert len(run.bodies) == 1
    assert run.scope_is_cancelled()
    assert answer(message.reply).status is Status.CANCELLING
    run.stopped()
    assert run.status is Status.CANCELLED


def test_a_cancel_that_crosses_the_start_is_handled_after_messages_that_arrived_before_it() -> None:
    run = queued()
    run.hold(cancelling(run))
    run.hold(run.decide_start())
    run.hold(Flag("streaming", True, Reply()))
    run.settle()
    assert [event.type for event in run.changed()][1:] == ["run_changed", "run_state_changed"]


def test_a_queue_timeout_that_crosses_the_start_has_no_effect() -> None:
    run = queued(queue_timeout=3.0)
    run.now = 3
    run.hold(DeadlineReached())
    run.hold(run.decide_start())
    run.settle()
    assert run.status is Status.RUNNING
    assert len(run.bodies) == 1
    assert not run.body.cancel_requested
    assert run.machine.deadline() == math.inf


def test_a_deadline_that_crosses_the_start_ends_the_body() -> None:
    run = queued(deadline=3.0)
    run.now = 3
    run.hold(DeadlineReached())
    run.hold(run.decide_start())
    run.settle()
    assert run.status is Status.RUNNING
    run.at(3)
    assert run.body.cancel_requested
    run.stopped()
    assert (run.status, run.record.reason) == (Status.TIMED_OUT, "deadline")


def test_an_end_that_waits_for_deletes_follows_a_start_that_crosses_it() -> None:
    """The files are already deleted: the run executes nothing and is cancelled from `running`."""
    run = executing("retry")
    run.host.files = ("one",)
    run.raises()
    run.at(5)
    run.changed()
    message = cancelling(run, files="delete")
    run.hold(message)
    run.commit()
    run.help()
    started = run.decide_start()
    run.hold(started)
    run.settle()
    assert len(run.bodies) == 1
    assert [event.to for event in run.changed()] == [Status.RUNNING, Status.CANCELLING, Status.CANCELLED]
    assert answer(message.reply).status is Status.CANCELLED
    assert run.supervisor()[-1:] == [Ended(run.id, False)]


def test_a_start_that_arrives_while_files_are_deleted_for_a_cancel_executes_nothing() -> None:
    run = executing("retry")
    run.host.files = ("one",)
    run.raises()
    run.at(5)
    run.supervisor()
    run.hold(cancelling(run, files="delete"))
    run.commit()
    run.hold(run.decide_start())
    run.commit()
    assert (run.status, run.record.reason) == (Status.CANCELLING, "user")
    assert run.changed()[-1].by == "ann"
    assert len(run.bodies) == 1
    run.help()
    run.commit()
    assert run.status is Status.CANCELLED
    assert run.helpers == []  # no checkpoint is read for it
    assert run.supervisor() == [
        Leave(run.id),
        Cancelling(run.id),
        Left(run.id, 0),
        Ended(run.id, False),
    ]


def test_an_end_that_loses_against_a_start_releases_the_slot_with_the_change_that_wins() -> None:
    run = executing("retry")
    run.host.files = ("one",)
    run.raises()
    run.at(5)
    run.hold(cancelling(run, files="delete"))
    run.commit()
    run.help()
    run.supervisor()
    run.hold(run.decide_start())
    run.commit()
    assert run.supervisor() == []  # it had no slot before
    run.commit()
    assert run.status is Status.CANCELLING
    assert run.supervisor() == [Cancelling(run.id), Left(run.id, 0)]
    run.commit()
    assert run.status is Status.CANCELLED
    assert run.supervisor() == [Ended(run.id, False)]
    assert len(run.bodies) == 1


def test_an_abandoned_body_keeps_the_slot_until_the_end_of_its_run_is_committed() -> None:
    run = executing()
    run.cancel()
    run.now = 10
    run.hold(DeadlineReached())
    run.help()
    run.supervisor()
    assert len(run.changes) == 1
    run.hold(BodyEnded(Stopped()))  # deferred
    assert run.supervisor() == []
    run.settle()
    assert run.supervisor() == [Ended(run.id, True), BodyGone(run.id, run.submission.handle)]


def test_a_start_that_arrives_while_files_are_deleted_for_a_timeout_executes_nothing() -> None:
    run = executing("retry", deadline=6.0)
    run.host.files = ("one",)
    run.machine.state.files_doomed = True
    run.raises()
    run.at(5)
    run.now = 6
    run.hold(DeadlineReached())
    run.hold(run.decide_start())
    assert len(run.bodies) == 1
    run.settle()
    assert (run.status, run.record.reason) == (Status.TIMED_OUT, "deadline")


def test_a_suspended_run_whose_deadline_crosses_its_start_times_out() -> None:
    run = executing("retry", deadline=6.0)
    run.raises()
    run.at(5)
    run.now = 6
    run.hold(DeadlineReached())
    run.hold(run.decide_start())
    run.settle()
    assert len(run.bodies) == 1  # its deadline passes before the checkpoint is read
    assert (run.status, run.record.reason) == (Status.TIMED_OUT, "deadline")


# Runs that cannot be started, or could not be stored.


def test_a_queued_run_that_can_no_longer_be_started_is_rejected() -> None:
    run = queued()
    run.give(Reject('job "walk" is no longer registered'))
    record = run.record
    assert (record.status, record.reason) == (Status.REJECTED, "rejected")
    assert record.error == 'job "walk" is no longer registered'


def test_a_run_that_could_not_be_stored_is_forgotten() -> None:
    run = queued(deadline=9.0)
    run.give(Forget())
    assert run.machine.state.ended
    assert run.machine.deadline() == math.inf
    assert run.supervisor() == []


def test_a_cancel_of_a_run_that_could_not_be_stored_is_answered_with_none() -> None:
    run = queued()
    message = cancelling(run)
    run.hold(message)
    run.submission.refused = True
    run.projection.runs.clear()
    run.hold(Forget())
    run.settle()
    assert answer(message.reply) is None
    assert run.machine.state.ended


# The engine's own jobs record where a wait was interrupted.


def test_a_flow_that_waits_without_a_body_records_its_end() -> None:
    run = executing("flow")
    run.pauses(Pause("time", WALL + 60))
    run.remembered()
    run.cancel()
    assert run.remembered() == [Written(run.id, Status.CANCELLED)]
    assert run.status is Status.CANCELLED


def test_the_end_of_a_flow_is_recorded_if_its_stopped_body_has_not_recorded_it() -> None:
    run = executing("flow")
    run.cancel()
    run.stopped()
    assert run.remembered() == [Written(run.id, Status.CANCELLED)]
    timed_out = executing("flow", deadline=3.0)
    timed_out.at(3)
    timed_out.stopped()
    assert timed_out.remembered() == [Written(timed_out.id, Status.TIMED_OUT)]


@pytest.mark.parametrize("deadline", [None, 3.0])
def test_the_end_of_a_flow_is_recorded_only_once(deadline) -> None:
    run = executing("flow", deadline=deadline)
    run.cancel() if deadline is None else run.at(deadline)
    run.host.end_is_written = True
    run.stopped()
    assert run.remembered() == []
    assert run.record.ended


def test_a_flow_that_ends_by_itself_records_nothing_more() -> None:
    run = executing("flow")
    run.hold(BodyEnded(Returned(1)))
    assert run.helpers == []
    run.settle()
    assert run.remembered() == []


def test_a_flow_that_never_began_records_nothing() -> None:
    run = queued("flow")
    run.cancel()
    assert run.remembered() == []
