"""Communication between a body and its run: interrupts and answers, messages, signals, checkpoints."""

from __future__ import annotations

import math
from typing import Any

import pytest

from greenroom.actors.channel import Reply
from greenroom.actors.engine.suspends import Suspended
from greenroom.actors.messages import AnswerInterrupt, Cancel, Enter, Inject, Left, SendSignal
from greenroom.actors.run.body_messages import (
    Flag,
    OpenInterrupt,
    Resume,
    Save,
    Suspend,
    Taken,
    WithdrawInterrupt,
)
from greenroom.actors.run.message_gate import MAX_MESSAGES, MessageGate
from greenroom.actors.run.pause import AwaitedInterrupt, Message, Pause, Signal
from greenroom.persistence.store import AnswersSpent, Checkpoint, MessagesTaken
from greenroom.protocol.errors import (
    Compacting,
    Conflict,
    Invalid,
    NoActiveRun,
    NotInteractive,
    NotStreaming,
    QueueFull,
    Unavailable,
)
from greenroom.protocol.events import InterruptClosed, InterruptOpened
from greenroom.protocol.states import Status

from .driving import UNANSWERED, WALL, Driver, answer, executing, queued, record_of, recovered

DENIED = {"approved": False, "reason": "cancelled"}
SHUT_DOWN = {"approved": False, "reason": "shutdown"}


def asks(
    run: Driver, key: str = "key", data: Any = "?", timeout: float = 300, *, release: bool = False
) -> OpenInterrupt:
    """The body opens an interrupt; the result is in the message's `reply` and `answer`."""
    message = OpenInterrupt(data, timeout, key, release, Reply(), Reply())
    run.give(message)
    return message


def answers(run: Driver, number: int = 1, data: Any = "!") -> Any:
    return run.give(AnswerInterrupt(run.id, f"{run.id}.{number}", data, "ann", Reply()))


def inject(run: Driver, message: Any = "hello") -> Any:
    return run.give(Inject(run.id, message, "ann", Reply()))


def signal(run: Driver, key: str = "a", value: Any = 1) -> Any:
    return run.give(SendSignal(run.id, key, value, "ann", Reply()))


def save(run: Driver, value: Any = 1, attempt: int = 1) -> Any:
    return run.give(Save(value, 2, 3, attempt, Reply()))


def closed(run: Driver) -> list[tuple[str, str, Any, str]]:
    """The interrupts that were closed since the last call: id, outcome, answer, and who closed it."""
    return [
        (event.interrupt.rpartition(".")[2], event.outcome, event.answer, event.by)
        for event in run.changed()
        if isinstance(event, InterruptClosed)
    ]


def tried_again(run: Driver) -> None:
    """The body fails, and the next attempt begins."""
    run.raises()
    run.at(run.machine.deadline())
    run.start()


# Interrupts.


def test_an_interrupt_is_open_until_it_is_answered() -> None:
    run = executing()
    asked = asks(run, data={"really": "?"})
    (opened,) = run.changed()
    assert isinstance(opened, InterruptOpened)
    assert (opened.interrupt, opened.key, opened.data) == (f"{run.id}.1", "key", {"really": "?"})
    assert (opened.deadline, opened.by) == (WALL + 300, "body")
    assert answer(asked.reply) is False
    assert not asked.answer.done
    assert answers(run, data="yes") == "resolved"
    assert answer(asked.answer) == "yes"
    assert closed(run) == [("1", "answered", "yes", "ann")]
    assert run.machine.deadline() == math.inf


def test_an_interrupt_can_be_open_without_a_timeout() -> None:
    run = executing()
    asks(run, timeout=math.inf)
    (opened,) = run.changed()
    assert opened.deadline is None
    assert run.machine.deadline() == math.inf


def test_an_interrupt_is_answered_once_and_an_unknown_one_is_not_found() -> None:
    run = executing()
    asks(run, "one")
    asks(run, "two")
    assert answers(run, 2) == "resolved"
    assert answers(run, 2) == "already_resolved"
    assert answers(run, 3) == "not_found"
    assert answers(run, 0) == "not_found"
    assert run.give(AnswerInterrupt(run.id, f"{run.id}.x", 1, "ann", Reply())) == "not_found"
    assert answers(run, 1) == "resolved"
    assert answers(run, 1) == "already_resolved"


def test_an_interrupt_without_an_answer_times_out() -> None:
    run = executing()
    late, early = asks(run, "late", timeout=9), asks(run, "early", timeout=3)
    run.changed()
    run.at(2.9)
    assert closed(run) == []
    run.at(3)
    assert closed(run) == [("2", "timed_out", None, "engine")]
    assert answer(early.answer) is None
    assert not late.answer.done
    assert answers(run, 2) == "already_resolved"
    run.at(9)
    assert answer(late.answer) is None


def test_two_open_interrupts_with_the_same_key_are_a_conflict() -> None:
    run = executing()
    asks(run)
    refused = answer(asks(run).reply)
    assert isinstance(refused, Conflict)
    assert 'already has an open interrupt with key "key"' in str(refused)


def test_an_interrupt_with_a_longer_timeout_than_the_run_is_refused() -> None:
    run = executing(run_timeout=10.0)
    run.at(4)
    refused = answer(asks(run, timeout=6).reply)
    assert isinstance(refused, Invalid)
    assert "timeout must be less than the 6 s that remain of run_timeout (got 6)" in str(refused)
    assert refused.details["value"] == 6
    assert answer(asks(run, timeout=5.9).reply) is False
    assert answer(asks(executing(), timeout=math.inf).reply) is False
    assert answer(asks(run, "released", timeout=60, release=True).reply) is True


def test_an_interrupt_can_be_waited_for_without_the_slot() -> None:
    run = executing()
    asked = asks(run, release=True)
    assert answer(asked.reply) is True
    assert (run.status, run.record.waiting_for, run.record.reason) == (Status.SUSPENDED, "answer", "answer")
    assert [event.type for event in run.changed()] == ["interrupt_opened", "run_state_changed"]
    assert run.supervisor() == [Left(run.id, 0, body_waits=True)]
    answers(run)
    assert answer(asked.answer) == "!"
    run.give(Resume(Reply()))
    assert run.supervisor() == [Enter(run.id, 1, True, False)]


def test_a_body_that_waits_without_its_slot_can_only_open_interrupts_that_need_none() -> None:
    run = executing()
    run.give(Suspend("time", None, None, Reply()))
    assert isinstance(answer(asks(run, release=True).reply), Conflict)
    assert answer(asks(run).reply) is False


def test_a_body_that_no_longer_waits_withdraws_its_interrupt() -> None:
    run = executing()
    asks(run)
    run.changed()
    run.give(WithdrawInterrupt("key"))
    assert closed(run) == [("1", "withdrawn", None, "body")]
    assert answers(run) == "already_resolved"
    run.give(WithdrawInterrupt("key"))
    assert closed(run) == []


def test_an_interrupt_is_withdrawn_when_its_body_is_cancelled_and_not_at_shutdown() -> None:
    run = executing("swim")
    asks(run, release=True)
    run.changed()
    run.stop(now=False)
    run.give(WithdrawInterrupt("key"))
    assert closed(run) == []
    timed_out = executing(run_timeout=400.0)
    asks(timed_out)
    timed_out.at(300 - 1)
    timed_out.changed()
    timed_out.machine.state.timers.set("run_timeout", 299.5)
    timed_out.at(299.5)
    timed_out.give(WithdrawInterrupt("key"))
    assert closed(timed_out) == [("1", "withdrawn", None, "body")]


def test_what_is_withdrawn_after_the_end_is_no_event() -> None:
    run = executing()
    asks(run)
    run.returns()
    run.changed()
    run.give(WithdrawInterrupt("key"))
    assert run.changed() == []


def test_a_cancel_answers_open_interrupts() -> None:
    run = executing()
    asked = asks(run)
    run.changed()
    run.cancel(by="bob")
    assert answer(asked.answer) == DENIED
    assert closed(run) == [("1", "cancelled", DENIED, "bob")]
    later = asks(run, "later")
    assert (answer(later.reply), answer(later.answer)) == (False, DENIED)
    run.stopped()
    assert closed(run) == []


@pytest.mark.parametrize("now", [False, True])
def test_a_shutdown_answers_interrupts_of_runs_that_are_not_resumable(now) -> None:
    run = executing()
    asked = asks(run)
    run.changed()
    run.stop(now=now)
    assert answer(asked.answer) == SHUT_DOWN
    assert closed(run) == [("1", "shutdown", SHUT_DOWN, "engine")]
    later = asks(run, "later")
    assert (answer(later.reply), answer(later.answer)) == (False, SHUT_DOWN)


def test_a_shutdown_commits_nothing_for_a_body_without_interrupts() -> None:
    run = executing()
    run.stop(now=False)
    assert run.changed() == []
    asks_before = executing()
    asks(asks_before)
    answers(asks_before)
    asks_before.changed()
    asks_before.stop(now=False)
    assert asks_before.changed() == []


def test_a_resumable_body_can_open_an_interrupt_during_shutdown() -> None:
    run = executing("swim")
    run.stop(now=False)
    assert answer(asks(run).reply) is False
    assert run.changed()[0].type == "interrupt_opened"


def test_open_interrupts_are_closed_with_the_end_of_the_run() -> None:
    run = executing()
    asks(run)
    run.changed()
    run.returns()
    assert closed(run) == [("1", "ended", None, "body")]
    assert run.machine.state.interrupts.any_open() is False


def test_open_interrupts_are_closed_with_a_failed_attempt() -> None:
    run = executing("retry")
    asks(run)
    run.changed()
    run.raises()
    assert closed(run) == [("1", "ended", None, "body")]
    assert run.machine.state.interrupts.any_open() is False
    assert run.machine.deadline() == 5.0


# Answers are kept for the next body.


def test_an_answer_is_kept_for_a_body_that_opens_the_same_interrupt_again() -> None:
    run = executing("retry")
    asks(run, data={"a": 1})
    answers(run, data="yes")
    tried_again(run)
    run.changed()
    assert run.host.answers == {"key": "yes"}
    again = asks(run, data={"a": 1})
    assert (answer(again.reply), answer(again.answer)) == (False, "yes")
    assert run.changed() == []


def test_other_data_under_the_same_key_is_another_interrupt(caplog) -> None:
    run = executing("retry")
    asks(run, data={"a": 1})
    answers(run)
    tried_again(run)
    run.changed()
    again = asks(run, data={"a": 2})
    assert not again.answer.done
    (opened,) = run.changed()
    assert opened.interrupt == f"{run.id}.2"
    assert "opened an interrupt under key 'key' with other data" in caplog.text
    assert "key" not in run.host.answers


def test_a_fresh_interrupt_warns_of_nothing(caplog) -> None:
    asks(executing())
    assert caplog.text == ""


def test_a_checkpoint_spends_the_answers_given_before_it() -> None:
    run = executing("retry")
    asks(run, "one")
    asks(run, "two")
    answers(run, 1)
    run.remembered()
    assert save(run, {"page": 1}).held
    assert run.remembered() == [
        Checkpoint("alice", "retry", run.id, {"page": 1}, 2, 3),
        AnswersSpent(run.id, (f"{run.id}.1",)),
    ]
    assert run.host.answers == {}
    run.changed()
    save(run)
    assert run.remembered() == [Checkpoint("alice", "retry", run.id, 1, 2, 3)]
    assert closed(run) == []  # the body still waits for the other one
    answers(run, 2)
    save(run)
    assert run.remembered()[1:] == [AnswersSpent(run.id, (f"{run.id}.2",))]


def test_a_timed_out_interrupt_is_spent_with_the_next_checkpoint_too() -> None:
    run = executing()
    asks(run, timeout=3)
    run.at(3)
    save(run)
    assert AnswersSpent(run.id, (f"{run.id}.1",)) in run.remembered()


def test_a_body_without_interrupts_saves_only_its_checkpoint() -> None:
    run = executing()
    save(run)
    assert run.remembered() == [Checkpoint("alice", "walk", run.id, 1, 2, 3)]


def test_a_checkpoint_of_an_older_attempt_is_refused() -> None:
    run = executing("retry")
    tried_again(run)
    run.remembered()
    assert not save(run, attempt=1).held
    assert run.remembered() == []


def test_a_checkpoint_of_a_run_without_a_body_is_not_taken() -> None:
    run = executing("retry")
    run.raises()
    run.remembered()
    assert save(run) == UNANSWERED
    abandoned = executing()
    abandoned.cancel()
    abandoned.at(10)
    abandoned.remembered()
    assert save(abandoned) == UNANSWERED
    assert run.remembered() == abandoned.remembered() == []


def test_an_interrupt_without_a_body_is_answered_for_the_next_one() -> None:
    run = executing("swim")
    run.pauses(Pause("answer", interrupt=AwaitedInterrupt("key", "?")))
    run.supervisor()
    assert answers(run, data="yes") == "resolved"
    assert run.supervisor() == [Enter(run.id, 1, False, False)]
    run.start()
    assert run.host.answers == {"key": "yes"}
    run.changed()
    run.pauses(
        Pause("answer", interrupt=AwaitedInterrupt("key", "?"))
    )  # it is answered, so there is nothing to wait for
    assert [event.type for event in run.changed()] == ["run_state_changed"]
    assert run.supervisor() == [Left(run.id, 0), Enter(run.id, 1, False, False)]


def test_an_interrupt_that_is_open_without_a_body_is_opened_once() -> None:
    run = executing("swim")
    run.pauses(Pause("answer", WALL + 5, interrupt=AwaitedInterrupt("key", "?"), within=5))
    run.at(5)
    run.start()
    run.changed()
    run.pauses(Pause("answer", interrupt=AwaitedInterrupt("key", "?")))
    assert [event.type for event in run.changed()] == ["run_state_changed"]


def test_an_interrupt_that_is_open_without_a_body_does_not_timeout_by_itself() -> None:
    run = executing("swim")
    run.pauses(Pause("answer", interrupt=AwaitedInterrupt("key", "?")))
    assert run.machine.deadline() == math.inf


def test_a_body_takes_over_an_interrupt_that_is_open_without_one() -> None:
    run = executing("swim")
    run.pauses(Pause("answer", WALL + 5, interrupt=AwaitedInterrupt("key", "?"), within=5))
    run.at(5)
    run.start()
    run.changed()
    asked = asks(run, data="?")
    assert run.changed() == []
    assert answer(asked.reply) is False
    answers(run)
    assert answer(asked.answer) == "!"


def test_a_body_can_take_over_such_an_interrupt_without_its_slot() -> None:
    run = executing("swim")
    run.pauses(Pause("answer", WALL + 5, interrupt=AwaitedInterrupt("key", "?"), within=5))
    run.at(5)
    run.start()
    assert answer(asks(run, data="?", release=True).reply) is True
    assert run.status is Status.SUSPENDED


def test_an_interrupt_with_other_data_withdraws_the_open_one_with_its_key(caplog) -> None:
    run = executing("swim")
    run.pauses(Pause("answer", WALL + 5, interrupt=AwaitedInterrupt("key", "?"), within=5))
    run.at(5)
    run.start()
    run.changed()
    asks(run, data="another?")
    withdrawn, opened = run.changed()
    assert (withdrawn.outcome, withdrawn.interrupt, withdrawn.by) == ("withdrawn", f"{run.id}.1", "body")
    assert opened.interrupt == f"{run.id}.2"
    assert "with other data" in caplog.text


def test_a_checkpoint_withdraws_what_no_body_waits_for() -> None:
    run = executing("swim")
    run.pauses(Pause("answer", WALL + 5, interrupt=AwaitedInterrupt("key", "?"), within=5))
    run.at(5)
    run.start()
    asks(run, "other")
    run.changed()
    save(run)
    assert closed(run) == [("1", "withdrawn", None, "body")]
    assert run.machine.state.interrupts.any_open()
    assert answers(run, 1) == "already_resolved"


def test_an_interrupt_that_times_out_without_a_body_is_answered_with_none() -> None:
    run = executing("swim")
    asks(run, timeout=9, release=True)
    run.execution.lapse("the lease is lost")
    run.stopped()
    run.supervisor()
    run.at(9)
    assert closed(run)[-1] == ("1", "timed_out", None, "engine")
    assert run.supervisor() == [Enter(run.id, 1, False, False)]
    run.start()
    assert run.host.answers == {"key": None}
    asked = asks(run)
    assert answer(asked.answer) is None


def test_a_suspend_of_the_computer_advances_the_deadlines_of_interrupts() -> None:
    run = executing()
    asks(run, timeout=9)
    run.give(Suspended(5.0))
    assert run.machine.deadline() == 4.0


def test_an_answer_leaves_a_run_that_waits_for_something_else_where_it_is() -> None:
    run = executing("swim")
    asks(run, "one")
    asks(run, "two", release=True)
    run.execution.lapse("the lease is lost")
    run.stopped()
    run.supervisor()
    answers(run, 1)
    assert run.supervisor() == []
    answers(run, 2)
    assert run.supervisor() == [Enter(run.id, 1, False, False)]


# Messages.


def test_a_message_reaches_the_body_when_it_is_committed() -> None:
    run = executing()
    run.hold(Inject(run.id, {"say": 1}, "ann", Reply()))
    assert run.body.inbox == ()
    run.settle()
    (event,) = run.changed()
    assert (event.type, event.message, event.by) == ("run_message", {"say": 1}, "ann")
    assert run.body.inbox == (Message(event.seq, {"say": 1}),)
    assert run.record.id == run.id


def test_the_body_has_a_copy_of_the_message() -> None:
    run = executing()
    message = {"say": 1}
    assert inject(run, message) == "accepted"
    assert run.body.inbox[0].value is not message


def test_messages_that_were_taken_are_no_longer_stored() -> None:
    run = executing()
    for _ in range(3):
        inject(run)
    seqs = [event.seq for event in run.changed()]
    run.give(Taken(seqs[1]))
    assert run.remembered() == [MessagesTaken(run.id, tuple(seqs[:2]))]
    run.give(Taken(seqs[2]))
    assert run.remembered() == [MessagesTaken(run.id, tuple(seqs[2:]))]


def test_that_a_message_was_taken_is_stored_once() -> None:
    run = executing()
    inject(run)
    (event,) = run.changed()
    run.give(Taken(event.seq))
    run.remembered()
    run.give(Taken(event.seq))
    assert run.remembered() == []
    assert run.changes == []


def test_at_most_1000_messages_wait_for_a_body() -> None:
    run = executing()
    run.machine.state.gate.waiting = tuple(range(MAX_MESSAGES - 1))
    assert inject(run) == "accepted"
    assert isinstance(inject(run), QueueFull)
    run.give(Taken(0))
    assert inject(run) == "accepted"


@pytest.mark.parametrize("name", ["retry", "walk"])
def test_a_run_without_a_body_takes_no_messages(name) -> None:
    run = executing(name)
    run.raises()
    refused = inject(run)
    assert isinstance(refused, NotInteractive if name == "retry" else NoActiveRun)


def test_a_body_that_must_end_accepts_no_messages() -> None:
    run = executing()
    run.cancel()
    assert isinstance(inject(run), NotInteractive)


def test_a_run_that_is_about_to_end_takes_no_messages() -> None:
    run = recovered(record_of(Status.SUSPENDED, "swim", waiting_for="message"), "swim", files=["one"])
    run.hold(Cancel(run.id, "ann", "user", "delete", Reply()))
    run.commit()
    assert run.helpers  # the file is being deleted
    reply: Reply[str] = Reply()
    run.hold(Inject(run.id, "hello", "ann", reply))
    assert isinstance(answer(reply), NotInteractive)


def test_phases_decide_which_messages_are_taken() -> None:
    run = executing()
    assert run.give(Flag("compacting", True, Reply())) is None
    assert run.record.compacting
    assert isinstance(inject(run), Compacting)
    run.give(Flag("compacting", False, Reply()))
    assert inject(run) == "accepted"
    run.give(Flag("interactive", False, Reply()))
    assert isinstance(inject(run), NotInteractive)


def test_a_streaming_job_takes_messages_only_while_it_streams() -> None:
    run = executing("stream")
    assert isinstance(inject(run), NotStreaming)
    run.give(Flag("streaming", True, Reply()))
    assert run.record.streaming
    assert inject(run) == "accepted"


def test_a_flow_takes_no_messages_and_a_body_no_signals() -> None:
    flow = executing("flow")
    assert isinstance(inject(flow), NotInteractive)
    assert flow.changed() == []
    refused = signal(executing())
    assert isinstance(refused, Conflict)
    assert "accepts no signals: only flows do" in str(refused)


def test_messages_are_refused_until_there_is_a_body() -> None:
    gate = MessageGate("r", "interactive")
    refused = gate.refusal(ending=False)
    assert isinstance(refused, NotInteractive)
    assert str(refused).startswith("run r accepts no messages now")
    gate.awaited = True
    assert gate.refusal(ending=False) is None
    gate.new_body()
    assert gate.refusal(ending=False) is None
    assert isinstance(gate.refusal(ending=True), NotInteractive)
    gate.set("compacting", True)
    gate.no_body()
    gate.awaited = True
    assert gate.refusal(ending=False) is None
    assert MessageGate("r", "streaming", interactive=True).streaming is False
    assert MAX_MESSAGES == 1000


# Signals.


def test_a_signal_reaches_the_body_of_a_flow_when_it_is_committed() -> None:
    run = executing("flow")
    assert signal(run, "a.b", 7) is True
    (event,) = run.changed()
    assert (event.type, event.key, event.value, event.by) == ("run_signal", "a.b", 7, "ann")
    assert run.body.inbox == (Signal(event.seq, "a.b", 7),)


def test_a_flow_that_waits_for_a_signal_continues_with_it() -> None:
    run = executing("flow")
    run.pauses(Pause("signal", key="a"))
    run.supervisor()
    signal(run, "b")
    assert run.supervisor() == []
    signal(run, "a.c", 7)
    assert run.supervisor() == [Enter(run.id, 1, False, False)]
    run.start()
    assert [came.key for came in run.body.inbox] == ["b", "a.c"]


def test_a_flow_continues_with_a_signal_that_was_received_before_it_waited() -> None:
    run = executing("flow")
    signal(run, "a", 7)
    run.supervisor()
    run.pauses(Pause("signal", key="a"))
    assert run.supervisor() == [Left(run.id, 0), Enter(run.id, 1, False, False)]


def test_a_flow_that_waits_for_a_time_is_not_woken_by_signals() -> None:
    run = executing("flow")
    run.pauses(Pause("time", WALL + 60))
    run.supervisor()
    signal(run)
    assert run.supervisor() == []


def test_a_flow_is_woken_by_many_unrelated_signals() -> None:
    run = executing("flow")
    run.pauses(Pause("signal", key="a"))
    run.supervisor()
    for _ in range(99):
        signal(run, "b")
    assert run.supervisor() == []
    signal(run, "b")
    assert run.supervisor() == [Enter(run.id, 1, False, False)]


def test_at_most_1000_signals_wait_for_a_flow() -> None:
    run = executing("flow")
    run.body.inbox = (Signal(1, "a", 1),) * (MAX_MESSAGES - 1)
    assert signal(run) is True
    refused = signal(run)
    assert isinstance(refused, QueueFull)
    run.pauses(Pause("time", WALL + 60))
    assert isinstance(signal(run), QueueFull)
    run.machine.state.inbox = ()
    assert signal(run) is True


def test_a_signal_for_an_ended_run_is_answered_with_none() -> None:
    run = executing("flow")
    run.returns()
    assert signal(run) is None
    assert run.changed()[-1].type == "run_state_changed"


def test_a_queued_flow_keeps_its_signals_for_its_body() -> None:
    run = queued("flow")
    assert signal(run, "a", 7) is True
    run.start()
    assert [came.value for came in run.body.inbox] == [7]


def test_a_signal_for_a_flow_that_could_not_be_stored_is_refused() -> None:
    run = executing("flow")
    message = SendSignal(run.id, "a", 1, "ann", Reply())
    run.hold(message)
    run.projection.runs.clear()
    run.settle()
    assert isinstance(answer(message.reply), Unavailable)
    assert run.body.inbox == ()
