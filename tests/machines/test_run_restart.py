"""Recovery of a run after a restart of the engine, and after its body was lost with the lease."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace

from greenroom.actors.channel import Reply
from greenroom.actors.journal.messages import WatchEnd
from greenroom.actors.messages import (
    AnswerInterrupt,
    Cancel,
    Ended,
    Enter,
    Inject,
    Leave,
    Left,
    Recover,
    Recovered,
    SendSignal,
)
from greenroom.actors.run.body_messages import OpenInterrupt, Resume, Save, Suspend
from greenroom.actors.run.machine import DeadlineReached
from greenroom.actors.run.pause import Pause, Signal
from greenroom.actors.run.restore import ChildrenEnded
from greenroom.persistence.store import Checkpoint, Deaths, FileGivenUp, StoredInterrupt, Terms, WakesAt
from greenroom.protocol.errors import NotInteractive
from greenroom.protocol.events import InterruptClosed
from greenroom.protocol.states import Status

from .driving import WALL, Driver, after_restart, answer, executing, record_of, recovered, stored
from .making import Written


def interrupt(number: int, **fields: Any) -> StoredInterrupt:
    """An interrupt that is stored."""
    named = {"key": f"key{number}", "data": "?", "opened_at": WALL, "deadline": WALL + 300} | fields
    return StoredInterrupt(f"r.{number}", "r", **named)


def suspended(waiting_for: str, job: str = "swim", **fields: Any) -> Driver:
    """A run that waited for something when the engine ended, after its recovery."""
    return recovered(record_of(Status.SUSPENDED, job, waiting_for=waiting_for), job, **fields)


# Runs that executed.


def test_a_resumable_run_that_executed_continues_with_the_same_attempt() -> None:
    run = recovered(record_of(Status.RUNNING, "swim", interactive=True), "swim", new_deaths=1)
    record = run.record
    assert (record.status, record.reason, record.waiting_for) == (Status.SUSPENDED, "recovered", "slot")
    assert not record.interactive
    assert run.remembered() == [Deaths("r", 1)]
    assert run.supervisor() == [Left("r", None), Enter("r", 1, False, False), Recovered()]
    run.start()
    assert (run.body.attempt, run.record.attempt) == (1, 1)


def test_a_resumable_run_resumes_with_the_same_attempt_whatever_its_number() -> None:
    run = recovered(record_of(Status.RUNNING, "swim", attempt=2), "swim")
    assert run.supervisor()[1] == Enter("r", 2, False, False)


def test_a_retry_without_a_delay_gets_a_new_place_immediately() -> None:
    record = record_of(Status.SUSPENDED, "swim", waiting_for="retry", reason="retry")
    assert recovered(record, "swim").supervisor() == [Enter("r", 2, False, True), Recovered()]


def test_a_run_that_executed_and_has_attempts_left_is_retried() -> None:
    run = recovered(record_of(Status.RUNNING, "retry"), "retry")
    assert run.supervisor() == [Left("r", None), Enter("r", 2, False, False), Recovered()]


def test_a_body_with_side_effects_is_never_repeated() -> None:
    run = recovered(record_of(Status.RUNNING))
    record = run.record
    assert (record.status, record.reason) == (Status.FAILED, "crashed")
    assert record.error == "the process ended while the run executed"
    assert run.supervisor() == [Leave("r"), Ended("r", False), Recovered()]


def test_a_body_that_waited_is_not_repeated_either_and_the_error_says_that_it_waited() -> None:
    record = recovered(record_of(Status.SUSPENDED, waiting_for="time")).record
    assert (record.status, record.reason) == (Status.FAILED, "crashed")
    assert record.error == "the process ended while the run waited in its body"


def test_a_run_whose_last_attempt_executed_has_failed() -> None:
    assert recovered(record_of(Status.RUNNING, "retry", attempt=2), "retry").status is Status.FAILED


def test_a_run_that_was_being_cancelled_is_cancelled() -> None:
    run = recovered(record_of(Status.CANCELLING, "swim", reason="user"), "swim", children=["child"])
    assert (run.status, run.record.reason) == (Status.CANCELLED, "user")
    (child,) = [message.run for message in run.supervisor() if hasattr(message, "files")]
    assert child == "child"


@pytest.mark.parametrize("status", [Status.RUNNING, Status.SUSPENDED, Status.CANCELLING])
def test_a_run_whose_files_were_to_be_deleted_is_cancelled_when_they_are(status) -> None:
    run = recovered(record_of(status, "swim"), "swim", files=["one"], files_doomed=True)
    assert run.files.calls == [("delete", ["one"])]
    assert run.status is Status.CANCELLED


def test_a_run_whose_job_is_not_registered_has_failed_if_it_executed_and_is_rejected_if_it_waited() -> None:
    executed = recovered(record_of(Status.RUNNING, "gone"), "gone")
    assert (executed.status, executed.record.reason) == (Status.FAILED, "crashed")
    assert executed.record.error == 'job "gone" is no longer registered'
    waited = suspended("time", "gone")
    assert (waited.status, waited.record.reason) == (Status.REJECTED, "unknown_job")
    assert waited.record.error == 'job "gone" is no longer registered'


@pytest.mark.parametrize(("deaths", "status"), [(2, Status.SUSPENDED), (3, Status.FAILED)])
def test_a_run_that_executed_when_three_processes_died_has_failed(deaths, status) -> None:
    run = recovered(record_of(Status.RUNNING, "swim"), "swim", deaths=deaths - 1, new_deaths=deaths)
    assert run.status is status
    if status is Status.FAILED:
        assert run.record.reason == "killed"
        assert run.record.error == "the process died 3 times while the run executed"
        assert run.remembered() == [Deaths("r", 0)]


@pytest.mark.parametrize(("deaths", "status"), [(2, Status.SUSPENDED), (3, Status.FAILED)])
def test_a_run_that_waited_in_its_body_when_three_processes_died_has_failed(deaths, status) -> None:
    run = suspended("answer", deaths=deaths - 1, new_deaths=deaths, interrupts=[interrupt(1)])
    assert run.status is status
    if status is Status.FAILED:
        assert run.record.reason == "killed"
    else:
        assert run.remembered()[-1] == Deaths("r", deaths)
        run.give(Cancel("r", "ann", "user", "keep", Reply()))
    assert run.remembered() == [Deaths("r", 0)]


def test_deaths_of_a_run_that_waited_without_a_body_stay_as_they_are() -> None:
    run = suspended("time", wakes_at=WALL + 60, deaths=2)
    assert not [memo for memo in run.remembered() if isinstance(memo, Deaths)]
    run.cancel()
    assert run.remembered() == [Deaths("r", 0)]


def test_a_run_that_ends_is_no_longer_a_suspect() -> None:
    run = recovered(record_of(Status.RUNNING, "swim"), "swim", new_deaths=1)
    run.remembered()
    run.start()
    run.returns()
    assert run.remembered() == [Deaths("r", 0)]


def test_the_children_of_a_run_that_executed_are_cancelled_if_its_next_body_does_not_call_them() -> None:
    run = recovered(record_of(Status.RUNNING, "swim"), "swim", children=["child"])
    run.start()
    run.supervisor()
    run.returns()
    assert run.supervisor()[-1].run == "child"


def test_open_interrupts_of_a_body_that_executed_are_closed() -> None:
    run = recovered(record_of(Status.RUNNING, "swim"), "swim", interrupts=[interrupt(1)])
    (closed, _) = run.changed()
    assert isinstance(closed, InterruptClosed)
    assert (closed.outcome, closed.by) == ("ended", "engine")
    assert run.machine.state.interrupts.any_open() is False


# Unfinished files, which are deleted first.


def test_unfinished_files_of_the_last_body_are_deleted_before_the_next_one_begins() -> None:
    run = after_restart(record_of(Status.RUNNING, "swim"), "swim", files=["one", "two"])
    run.files.parts = ["two"]
    run.hold(Recover([]))
    run.commit()
    run.hold(run.decide_start())
    assert run.bodies == []
    run.settle()
    assert run.files.calls == [("remove_parts", "alice")]
    assert run.remembered() == [Deaths("r", 0), FileGivenUp("r", "two")]
    assert len(run.bodies) == 1
    assert run.machine.state.files == ["one"]


def test_a_body_begins_when_the_parts_are_deleted_whatever_arrived_before() -> None:
    run = after_restart(record_of(Status.RUNNING, "flow"), "flow", files=["two"])
    run.files.parts = ["two"]
    run.hold(Recover([]))
    run.commit()
    run.hold(SendSignal("r", "a", 7, "ann", Reply()))
    run.hold(run.decide_start())
    run.help()  # it is deleted while the signal is being committed
    run.hold(SendSignal("r", "b", 8, "ann", Reply()))
    run.commit()
    assert run.bodies == []
    run.settle()
    assert [(came.key, came.value) for came in run.body.inbox] == [("a", 7), ("b", 8)]


def test_a_cancel_and_a_message_wait_while_the_checkpoint_of_a_resumed_run_is_read() -> None:
    run = recovered(record_of(Status.RUNNING, "swim"), "swim")
    run.saved = Checkpoint("alice", "swim", "r", {"page": 3})
    run.hold(run.decide_start())
    said: Reply[str] = Reply()
    cancelled: Reply[Any] = Reply()
    run.hold(Inject("r", "hello", "ann", said))
    run.hold(Cancel("r", "ann", "user", "keep", cancelled))
    assert (said.done, cancelled.done, run.bodies, run.changes) == (False, False, [], [])
    run.settle()
    assert run.body.checkpoint == {"page": 3}
    assert (answer(said), answer(cancelled).status) == ("accepted", Status.CANCELLING)
    assert run.status is Status.CANCELLING


def test_a_part_that_was_never_recorded_is_only_deleted() -> None:
    run = after_restart(record_of(Status.RUNNING, "swim"), "swim")
    run.files.parts = ["two"]
    run.give(Recover([]))
    assert run.files.calls == [("remove_parts", "alice")]
    assert run.remembered() == [Deaths("r", 0)]


def test_without_unfinished_files_nothing_is_deleted() -> None:
    run = recovered(record_of(Status.RUNNING, "swim"), "swim", files=["one"])
    assert run.files.calls == []
    assert run.machine.state.files == ["one"]


def test_files_that_can_not_be_inspected_are_kept(caplog) -> None:
    run = after_restart(record_of(Status.RUNNING, "swim"), "swim", files=["one"])
    run.files.error = OSError("disk")
    run.give(Recover([]))
    assert run.machine.state.files == []
    assert "could not be found or deleted" in caplog.text
    assert run.status is Status.SUSPENDED


def test_starts_wait_only_briefly_for_a_run_that_is_ending() -> None:
    run = after_restart(record_of(Status.RUNNING), files=["one"])
    run.hold(Recover([]))
    assert run.supervisor() == [Leave("r")]
    assert run.machine.deadline() == 0.5
    run.now = 0.5
    run.hold(DeadlineReached())
    run.commit()
    assert run.record.detached
    assert run.changed()[-1].by == "engine"
    assert run.supervisor() == [Recovered()]
    run.settle()
    assert run.status is Status.FAILED
    assert run.supervisor() == [Ended("r", False)]


def test_a_run_that_has_ended_in_that_time_reports_its_recovery_once() -> None:
    run = after_restart(record_of(Status.RUNNING), files=["one"])
    run.hold(Recover([]))
    run.settle()
    assert run.supervisor() == [Leave("r"), Ended("r", False), Recovered()]
    assert run.machine.deadline() == math.inf


def test_starts_do_not_wait_for_a_run_without_a_slot_that_is_ending() -> None:
    run = after_restart(record_of(Status.SUSPENDED, waiting_for="time"), files=["one"])
    run.hold(Recover([]))
    assert run.supervisor() == [Leave("r"), Recovered()]
    assert run.machine.deadline() == math.inf


# Runs that waited.


def test_a_run_that_waited_for_a_time_continues_to_wait() -> None:
    run = suspended("time", wakes_at=WALL + 60)
    assert run.machine.deadline() == 60.0
    assert run.supervisor() == [Recovered()]
    (event,) = run.changed()
    assert (event.type, event.interactive, event.streaming, event.compacting) == (
        "run_changed",
        False,
        False,
        False,
    )
    run.at(60)
    assert run.supervisor() == [Enter("r", 1, False, False)]
    run.start()
    assert (run.body.attempt, run.host.woken_at) == (1, WALL + 60)


def test_a_run_whose_wait_has_ended_meanwhile_continues_immediately() -> None:
    run = suspended("time", wakes_at=WALL - 5)
    assert run.supervisor() == [Enter("r", 1, False, False), Recovered()]


def test_a_restart_does_not_make_a_wait_longer() -> None:
    record = record_of(Status.SUSPENDED, "swim", waiting_for="time")
    run = after_restart(record, "swim", wakes_at=WALL + 9999)
    run.submission.terms = replace(run.submission.terms, waits=60.0)
    run.give(Recover([]))
    assert run.machine.deadline() == 60.0


def test_a_run_that_waited_for_its_retry_continues_to_wait_and_then_gets_a_new_place() -> None:
    record = record_of(Status.SUSPENDED, "retry", waiting_for="retry", reason="retry")
    run = recovered(record, "retry", wakes_at=WALL + 4)
    assert run.machine.deadline() == 4.0
    run.at(4)
    assert run.supervisor() == [Recovered(), Enter("r", 2, False, True)]


def test_a_run_whose_retry_is_due_gets_a_new_place_immediately() -> None:
    record = record_of(Status.SUSPENDED, "swim", waiting_for="retry", reason="retry")
    run = recovered(record, "swim", wakes_at=WALL)
    assert run.supervisor() == [Enter("r", 2, False, True), Recovered()]
    assert run.machine.deadline() == math.inf


def test_a_run_that_was_queued_in_its_lane_is_queued_there_again() -> None:
    assert suspended("slot").supervisor() == [Enter("r", 1, False, False), Recovered()]


def test_a_run_that_waited_for_an_answer_continues_to_wait_for_it() -> None:
    run = suspended("answer", interrupts=[interrupt(1)], wakes_at=WALL + 5)
    assert run.supervisor() == [Recovered()]
    assert run.machine.deadline() == 300.0  # the deadline of the interrupt, not of the wait
    assert run.give(AnswerInterrupt("r", "r.1", "yes", "ann", Reply())) == "resolved"
    assert run.supervisor() == [Enter("r", 1, False, False)]
    run.start()
    assert run.host.answers == {"key1": "yes"}


def test_a_flow_that_waited_for_an_answer_waits_no_longer_than_requested() -> None:
    run = suspended("answer", "flow", interrupts=[interrupt(1, deadline=None)], wakes_at=WALL + 5)
    assert run.machine.deadline() == 5.0


def test_a_run_whose_answer_was_already_received_continues() -> None:
    run = suspended("answer", interrupts=[interrupt(1, outcome="answered", answer="yes")])
    assert run.supervisor() == [Enter("r", 1, False, False), Recovered()]
    run.start()
    assert run.host.answers == {"key1": "yes"}


def test_answers_that_are_spent_or_denied_are_not_used_again() -> None:
    run = suspended(
        "slot",
        interrupts=[
            interrupt(1, outcome="answered", answer=1, spent=True),
            interrupt(2, outcome="cancelled", answer=2),
            interrupt(3, outcome="timed_out"),
            interrupt(4, outcome="answered", answer=4),
        ],
    )
    run.start()
    assert run.host.answers == {"key3": None, "key4": 4}
    run.remembered()
    run.give(Save(1, 0, 0, 1, Reply()))
    assert run.remembered()[1].interrupts == ("r.3", "r.4")
    run.give(OpenInterrupt("?", 60, "new", False, Reply(), Reply()))
    assert run.changed()[-1].interrupt == "r.5"


def test_the_last_interrupt_with_a_key_counts() -> None:
    run = suspended(
        "answer",
        interrupts=[
            interrupt(10, key="key", outcome="answered", answer=10),
            interrupt(9, key="key", data="older?"),
        ],
    )
    assert run.machine.state.answers()["key"].answer == 10
    assert not run.machine.state.interrupts.any_open()
    other = suspended(
        "answer",
        interrupts=[interrupt(9, key="key", outcome="answered", answer=9), interrupt(10, key="key")],
    )
    assert dict(other.machine.state.answers()) == {}
    assert other.machine.state.interrupts.any_open()


def test_a_restart_does_not_extend_the_timeout_of_an_interrupt() -> None:
    run = suspended("answer", interrupts=[interrupt(1, opened_at=WALL + 100, deadline=WALL + 130)])
    assert run.machine.deadline() == 30.0
    later = suspended("answer", interrupts=[interrupt(1, opened_at=WALL - 100, deadline=WALL + 130)])
    assert later.machine.deadline() == 130.0
    endless = suspended("answer", interrupts=[interrupt(1, deadline=None)])
    assert endless.machine.deadline() == math.inf


def test_the_remaining_time_of_an_interrupt_is_counted_from_the_restart() -> None:
    run = recovered(
        record_of(Status.SUSPENDED, "swim", waiting_for="answer"), "swim", interrupts=[interrupt(1)], now=50.0
    )
    assert run.machine.deadline() == 300.0


def test_a_body_takes_over_an_interrupt_that_was_open_before_the_restart() -> None:
    run = suspended("time", wakes_at=WALL + 5, interrupts=[interrupt(1)])
    run.at(5)
    run.start()
    run.changed()
    asked = OpenInterrupt("?", 60, "key1", False, Reply(), Reply())
    run.give(asked)
    assert run.changed() == []
    assert answer(asked.reply) is False


def test_a_run_that_waited_for_a_message_accepts_messages() -> None:
    run = suspended("message")
    assert run.record.interactive
    assert run.supervisor() == [Recovered()]
    assert run.give(Inject("r", "hello", "ann", Reply())) == "accepted"
    assert run.supervisor() == [Enter("r", 1, False, False)]
    run.start()
    assert [message.value for message in run.body.inbox] == ["hello"]


def test_a_streaming_job_that_waited_for_a_message_accepts_messages() -> None:
    run = suspended("message", "stream")
    assert run.status is Status.FAILED  # it must not be repeated
    stream = suspended("message")
    stream.machine.state.gate.accepts = "streaming"
    assert stream.give(Inject("r", "hello", "ann", Reply())) == "accepted"


def test_a_new_body_ends_the_wait_for_a_message() -> None:
    run = suspended("message")
    run.give(Inject("r", "hello", "ann", Reply()))
    run.start()
    assert not run.machine.state.gate.awaited
    run.cancel()
    assert isinstance(run.give(Inject("r", "hello", "ann", Reply())), NotInteractive)


def test_a_run_that_waited_for_a_message_continues_when_it_arrives() -> None:
    run = suspended("message", messages=[(3, "hello")])
    assert run.supervisor() == [Enter("r", 1, False, False), Recovered()]
    run.start()
    assert [(message.seq, message.value) for message in run.body.inbox] == [(3, "hello")]
    assert run.machine.state.gate.waiting == (3,)


def test_a_message_does_not_wake_a_run_that_waits_for_something_else() -> None:
    run = suspended("time", wakes_at=WALL + 60, messages=[(3, "hello")])
    assert run.supervisor() == [Recovered()]


def test_a_flow_that_waited_for_a_signal_continues_with_any_signal() -> None:
    run = suspended("signal", "flow", wakes_at=WALL + 60)
    assert run.supervisor() == [Recovered()]
    assert run.machine.deadline() == 60.0
    run.give(SendSignal("r", "a", 1, "ann", Reply()))
    assert run.supervisor() == [Enter("r", 1, False, False)]
    assert run.machine.deadline() == math.inf
    run.start()
    (came,) = run.body.inbox
    assert isinstance(came, Signal)
    assert (came.key, came.value) == ("a", 1)


def test_signals_received_before_the_restart_are_restored() -> None:
    run = suspended("signal", "flow", messages=[(3, {"key": "a", "value": 7})])
    assert run.supervisor() == [Enter("r", 1, False, False), Recovered()]
    run.start()
    assert run.body.inbox == (Signal(3, "a", 7),)


def test_a_run_that_waited_for_its_children_continues_when_they_have_ended() -> None:
    run = suspended("child", children=["one", "two"])
    assert run.supervisor() == [Recovered()]
    watches = run.taken("journal")
    assert [(type(watch), watch.run) for watch in watches] == [(WatchEnd, "one"), (WatchEnd, "two")]
    watches[0].reply.set(None)
    assert run.taken("run") == []
    watches[1].reply.set(None)
    (ended,) = run.taken("run")
    assert isinstance(ended, ChildrenEnded)
    run.give(ended)
    assert run.supervisor() == [Enter("r", 1, False, False)]
    run.start()
    run.returns()
    assert [message.run for message in run.supervisor()[-2:]] == ["one", "two"]


def test_a_run_whose_children_have_ended_continues_immediately() -> None:
    assert suspended("child").supervisor() == [Enter("r", 1, False, False), Recovered()]


def test_the_end_of_children_does_not_affect_a_run_that_has_a_body_or_has_ended() -> None:
    run = suspended("child", children=["one"])
    run.start()
    run.supervisor()
    run.give(ChildrenEnded())
    run.give(Suspend("time", None, None, Reply()))
    run.supervisor()
    run.give(ChildrenEnded())
    assert run.supervisor() == []
    ended = suspended("child", children=["one"])
    ended.cancel()
    ended.supervisor()
    ended.give(ChildrenEnded())
    assert ended.supervisor() == []
    ending = suspended("child", children=["one"], files=["a"])
    ending.hold(Cancel("r", "ann", "user", "delete", Reply()))
    ending.commit()
    ending.supervisor()
    ending.hold(ChildrenEnded())
    assert ending.supervisor() == []


def test_a_flow_that_waited_records_its_end_when_its_deadline_passes() -> None:
    record = record_of(Status.SUSPENDED, "flow", waiting_for="time")
    run = recovered(record, "flow", wakes_at=WALL + 60)
    run.remembered()
    run.cancel()
    assert run.remembered() == [Written("r", Status.CANCELLED)]


def test_a_run_that_is_queued_has_its_queue_timeout_and_one_that_had_begun_has_not() -> None:
    queued = after_restart(record_of(Status.QUEUED))
    queued.submission.terms = Terms(queue_timeout=3.0)
    assert Driver(queued.submission, stored=stored_of(queued)).machine.deadline() == 3.0
    begun = after_restart(record_of(Status.SUSPENDED, waiting_for="time"))
    begun.submission.terms = Terms(queue_timeout=3.0)
    assert Driver(begun.submission, stored=stored_of(begun)).machine.deadline() == math.inf


def stored_of(run: Driver) -> Any:
    assert run.submission.stored is not None
    return stored(run.submission.stored)


def test_a_run_without_a_body_does_not_start_from_nothing_after_a_restart() -> None:
    """It loads a checkpoint, even if its first attempt never began."""
    run = after_restart(record_of(Status.QUEUED))
    run.hold(run.decide_start())
    assert run.bodies == []
    run.settle()
    assert run.body.attempt == 1


# A body that was ended because the engine lost its lease.


def lapse(run: Driver) -> None:
    run.execution.lapse("the lease is lost")
    run.stopped()


def test_a_resumable_run_that_lost_its_body_is_queued_again_immediately() -> None:
    run = executing("swim", run_timeout=10.0)
    run.at(4)
    lapse(run)
    record = run.record
    assert (record.status, record.reason, record.waiting_for) == (Status.SUSPENDED, "lease_lost", "slot")
    assert not record.interactive
    assert run.supervisor() == [Left(run.id, 0), Enter(run.id, 1)]
    assert run.machine.deadline() == math.inf
    run.hold(run.decide_start())
    assert run.bodies[1:] == []  # it loads a checkpoint
    run.settle()
    assert run.body.attempt == 1
    assert run.machine.deadline() == 14.0


def test_the_next_body_repeats_the_executing_time_and_calls_of_a_lost_body() -> None:
    run = executing("swim", run_timeout=10.0)
    run.at(4)
    run.give(Suspend("time", None, None, Reply()))
    run.give(Resume(Reply()))
    run.start(resumes=True)
    run.host.children["child"] = None
    lapse(run)
    run.start()
    assert run.machine.deadline() == 14.0
    run.returns()
    assert run.supervisor()[-1].run == "child"


def test_a_run_that_lost_its_body_and_has_attempts_left_is_retried() -> None:
    run = executing("retry")
    lapse(run)
    assert run.supervisor() == [Left(run.id, 0), Enter(run.id, 2)]


def test_a_run_that_lost_its_body_and_may_not_be_repeated_has_failed() -> None:
    run = executing()
    lapse(run)
    assert (run.status, run.record.reason) == (Status.FAILED, "lease_lost")
    assert run.record.error == "the engine lost its lease on the store while the run executed"


def test_a_body_that_was_stopped_before_the_lease_was_lost_ends_as_requested() -> None:
    run = executing("swim")
    run.cancel()
    lapse(run)
    assert (run.status, run.record.reason) == (Status.CANCELLED, "user")


def test_interrupts_of_a_body_that_was_lost_are_closed_if_it_executed() -> None:
    run = executing("swim")
    run.give(OpenInterrupt("?", 60, "key", False, Reply(), Reply()))
    run.changed()
    lapse(run)
    (closed, _) = run.changed()
    assert (closed.outcome, closed.by) == ("ended", "engine")
    assert not run.machine.state.interrupts.any_open()


def test_a_run_whose_body_was_lost_while_it_waited_continues_to_wait_without_it() -> None:
    run = executing("swim")
    run.give(Suspend("time", WALL + 60, 60.0, Reply()))
    run.supervisor()
    run.changed()
    lapse(run)
    (event,) = run.changed()
    assert (event.type, event.interactive) == ("run_changed", False)
    assert run.supervisor() == [Leave(run.id)]
    assert run.machine.deadline() == 60.0
    run.at(60)
    assert run.supervisor() == [Enter(run.id, 1, False, False)]


def test_a_run_whose_body_was_lost_while_it_was_queued_is_queued_again() -> None:
    run = executing("swim")
    run.give(Suspend("message", None, None, Reply()))
    run.give(Resume(Reply()))
    run.supervisor()
    lapse(run)
    assert run.supervisor() == [Leave(run.id), Enter(run.id, 1, False, False)]
    assert not run.record.interactive


def test_a_run_whose_body_was_lost_while_it_waited_for_a_message_accepts_messages() -> None:
    run = executing("swim")
    run.give(Suspend("message", None, None, Reply()))
    lapse(run)
    assert run.record.interactive
    assert run.give(Inject(run.id, "hello", "ann", Reply())) == "accepted"


def test_a_run_whose_body_was_lost_while_it_waited_for_its_children_waits_for_them() -> None:
    run = executing("swim")
    run.host.children["child"] = None
    run.give(Suspend("child", None, None, Reply()))
    run.supervisor()
    lapse(run)
    (watch,) = run.taken("journal")
    assert watch.run == "child"
    assert run.supervisor() == [Leave(run.id)]
    run.give(ChildrenEnded())
    run.start()
    run.returns()
    assert run.supervisor()[-1].run == "child"


def test_an_interrupt_of_a_body_that_was_lost_while_it_waited_is_taken_over_by_the_next_one() -> None:
    run = executing("swim")
    run.give(OpenInterrupt("?", 60, "key", True, Reply(), Reply()))
    lapse(run)
    assert run.machine.state.waits_for is not None
    assert not run.machine.state.interrupts.awaited_by_body("key")
    assert run.machine.deadline() == 60.0


def test_a_slot_that_crosses_the_loss_of_the_body_is_released_for_a_new_one() -> None:
    run = executing("swim")
    run.give(Suspend("time", WALL + 60, 60.0, Reply()))
    run.give(Resume(Reply()))
    started = run.decide_start(resumes=True)
    lapse(run)
    run.supervisor()
    run.changed()
    run.give(started)
    assert len(run.bodies) == 1
    assert (run.status, run.record.reason, run.record.waiting_for) == (Status.SUSPENDED, "lease_lost", "slot")
    assert run.supervisor() == [Left(run.id, 0), Enter(run.id, 1, False, False)]


def test_a_slot_for_a_lost_body_whose_run_is_retried_is_released_until_the_retry() -> None:
    run = executing("broken")
    lapse(run)
    run.start()
    run.give(Suspend("time", WALL + 60, 60.0, Reply()))
    run.give(Resume(Reply()))
    started = run.decide_start(resumes=True)
    run.raises()
    run.give(started)
    assert (run.status, run.record.reason, run.record.waiting_for) == (Status.SUSPENDED, "retry", "retry")


def bodiless(run: Driver) -> list[tuple[float | None, bool]]:
    """The stored end of the run's wait, and whether it waits without a body, since the last call."""
    memos = [memo for memo in run.remembered() if isinstance(memo, WakesAt)]
    return [(memo.at, memo.terms.bodiless) for memo in memos if memo.terms is not None]


def test_that_a_run_waits_without_a_body_is_stored_when_it_has_lost_it() -> None:
    run = executing("swim")
    run.give(Suspend("time", WALL + 60, 60.0, Reply()))
    assert bodiless(run) == [(WALL + 60, False)]
    lapse(run)
    assert bodiless(run) == [(WALL + 60, True)]


def test_that_a_run_waits_without_a_body_is_stored_once_and_until_a_body_waits_again() -> None:
    run = suspended("message", messages=[(3, "hello")])
    assert bodiless(run) == [(None, True)]
    run.start()
    run.give(Suspend("message", None, None, Reply()))
    assert bodiless(run) == [(None, False)]
    run.give(Resume(Reply()))
    run.start(resumes=True)
    run.give(Suspend("message", None, None, Reply()))
    assert bodiless(run) == []
    again = after_restart(record_of(Status.SUSPENDED, "swim", waiting_for="message"), "swim")
    again.submission.terms = Terms(bodiless=True)
    again.give(Recover([]))
    assert bodiless(again) == []


def test_that_a_run_waits_without_a_body_is_stored_when_its_body_pauses_or_raises() -> None:
    paused = executing("flow")
    paused.pauses(Pause("time", WALL + 60, within=60.0))
    assert bodiless(paused) == [(WALL + 60, True)]
    raised = executing("retry")
    raised.give(Suspend("message", None, None, Reply()))
    raised.raises()
    assert bodiless(raised)[-1] == (None, True)


@pytest.mark.parametrize("abandoned", [False, True])
def test_that_a_run_waits_without_a_body_is_stored_at_shutdown(abandoned) -> None:
    run = executing("swim")
    run.give(Suspend("time", WALL + 60, 60.0, Reply()))
    run.remembered()
    run.stop(now=True)
    if abandoned:
        run.at(run.machine.deadline())
        run.settle()
    else:
        run.stopped()
    assert bodiless(run) == [(WALL + 60, True)]


def test_memos_of_waits_name_the_terms_with_their_length() -> None:
    run = executing()
    run.give(Suspend("time", WALL + 60, 60.0, Reply()))
    (memo,) = run.remembered()
    assert isinstance(memo, WakesAt)
    assert memo.terms is not None
    assert memo.terms.waits == 60
