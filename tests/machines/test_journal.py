"""The journal's machine: batches, when changes become visible, and outages of the store."""

from __future__ import annotations

import math
from typing import Any

import pytest

from greenroom.actors.channel import Reply
from greenroom.actors.journal.change import Change, Committed, ProgressReport
from greenroom.actors.journal.committer import (
    AwaitStore,
    Check,
    CommitFailed,
    NotWritten,
    StoreIsBack,
    StoreIsGivenUp,
    WentDown,
    Write,
    Written,
)
from greenroom.actors.journal.machine import JournalMachine
from greenroom.actors.journal.messages import (
    Answer,
    AnswerMany,
    Look,
    Mention,
    ReadFailed,
    StoreIsDamaged,
    WatchEnd,
)
from greenroom.actors.messages import Accepted, Ended, Forget, NotStored, RunsEnded, StoreIsDown, Submission
from greenroom.persistence.failures import StoreBroken, StoreDown
from greenroom.protocol.errors import Conflict
from greenroom.protocol.events import Event
from greenroom.protocol.fold import Projection
from greenroom.protocol.states import Status

from .driving import answer
from .making import submission
from .test_batch import creation, end, note, start

DOWN = StoreDown("the disk is full", outcome_known=True)
SUPERVISOR_HEARS_OF_OUTAGE = ("supervisor", "", StoreIsDown(True))
SUPERVISOR_HEARS_OF_END = ("supervisor", "", StoreIsDown(False))


class Desk:
    """The machine, the messages and events that it has sent, and a committer that the test controls."""

    def __init__(self, *committed: Change) -> None:
        self.commits = 0
        self.shown: list[list[Event]] = []
        self.machine = JournalMachine(lambda: 5.0, self._publish, lambda: self.commits, check_every=60.0)
        self.machine.begin(Projection("e", max_concurrent=3, seq=10))
        for change in committed:
            self.commit(change)
        self.shown.clear()

    def _publish(self, events: Any) -> None:
        self.shown.append(list(events))

    def turn(self, *messages: Any, now: float = 0.0) -> list[tuple[str, str, Any]]:
        """A turn with these messages; returns the messages to others."""
        for message in messages:
            self.machine.receive(message)
        self.machine.end_turn(now)
        return list(self.machine.effects.take())

    def job(self) -> Any:
        """Take the job for the committer."""
        job, self.machine.job = self.machine.job, None
        return job

    def written(self) -> list[str]:
        """The texts of the batch to write."""
        job = self.job()
        assert isinstance(job, Write), job
        return [f"{event.run} {event.to}" for event in job.batch.events]

    def commit(self, *changes: Change) -> list[tuple[str, str, Any]]:
        self.turn(*changes)
        assert isinstance(self.job(), Write)
        self.commits += 1
        return self.turn(Written())

    def goes_down(self) -> list[tuple[str, str, Any]]:
        return self.turn(WentDown())

    def ask(self, change: Change) -> Reply[Any]:
        change.reply = Reply()
        return change.reply


def made(run: str = "a", **fields: Any) -> Submission:
    return submission("alice", run, **fields)


def new(run: str = "a", **fields: Any) -> Change:
    """A change that creates a run for a caller outside the engine."""
    return creation(run, creates=True, submission=made(run, **fields), reply=Reply())


def refused(reply: Reply[Any] | None) -> bool:
    assert reply is not None
    return reply.done and getattr(answer(reply), "code", None) == "unavailable"


# Batches.


def test_at_first_there_is_nothing_to_do() -> None:
    desk = Desk()
    assert (desk.machine.deadline, desk.machine.writing) == (math.inf, [])
    assert (desk.job(), desk.turn(), desk.job()) == (None, [], None)


def test_nothing_is_visible_before_it_is_written() -> None:
    desk = Desk()
    notify = (("run", "a", "hello"),)
    change = creation(notify=notify, notify_run=True, reply=Reply())
    assert desk.turn(change) == []
    assert (desk.shown, change.reply.done, desk.machine.projection.seq) == ([], False, 10)
    assert desk.machine.writing == [change]
    assert desk.written() == ["a queued"]
    hello, committed = desk.turn(Written())
    assert hello == notify[0]
    assert committed[:2] == ("run", "a")
    assert isinstance(committed[2], Committed)
    assert committed[2].outcome.held
    [[event]] = desk.shown
    assert (event.seq, event.at, desk.machine.projection.seq) == (11, 5.0, 11)
    assert answer(change.reply) == committed[2].outcome
    assert desk.machine.writing == []


def test_changes_that_arrive_while_a_batch_is_written_form_the_next_one() -> None:
    desk = Desk()
    desk.turn(creation("a"))
    assert desk.written() == ["a queued"]
    desk.turn(creation("b"))
    desk.turn(creation("c"))
    assert desk.job() is None
    desk.turn(Written())
    assert desk.written() == ["b queued", "c queued"]
    desk.turn(Written())
    assert desk.job() is None


def test_a_refused_change_sends_its_messages_for_that_case() -> None:
    desk = Desk(creation())
    watch: Reply[Any] = Reply()
    lost = start(
        "gone",
        notify=(("run", "a", "held"),),
        notify_on_refusal=(("run", "a", "lost"),),
        watch=watch,
        reply=Reply(),
    )
    assert desk.turn(lost) == [("run", "a", "lost")]
    assert desk.job() is None
    assert not answer(lost.reply).held  # type: ignore[arg-type]
    assert (desk.shown, desk.machine.watchers) == ([], 0)


def test_the_reply_of_a_refused_change_with_an_answer_is_left_to_the_receiver_of_its_message() -> None:
    desk = Desk(creation())
    replies: list[Reply[Any]] = [Reply(), Reply(), Reply()]
    lost = [
        start("gone", reply=replies[0], answer="done"),
        start("gone", reply=replies[1], answer="done", notify_on_refusal=(("run", "a", "lost"),)),
        start(reply=replies[2], answer="done", notify_on_refusal=(("run", "a", "lost"),)),
    ]
    desk.commit(*lost)
    assert not answer(replies[0]).held
    assert not replies[1].done
    assert answer(replies[2]) == "done"


def test_a_run_receives_the_outcome_of_a_refused_change_too() -> None:
    desk = Desk()
    [(kind, name, message)] = desk.turn(start("a", notify_run=True))
    assert (kind, name, message.outcome.held) == ("run", "a", False)


def test_a_change_without_a_run_notifies_none() -> None:
    desk = Desk()
    assert desk.turn(Change((), notify_run=True, watch=Reply())) == []
    assert desk.machine.watchers == 0


@pytest.mark.parametrize("held", [True, False])
def test_the_answer_of_a_change_is_used_if_it_is_accepted(held: bool) -> None:
    desk = Desk(creation())
    change = start("a" if held else "gone", answer="started", reply=Reply())
    if held:
        desk.commit(change)
        assert answer(change.reply) == "started"  # type: ignore[arg-type]
    else:
        desk.turn(change)
        assert not answer(change.reply).held  # type: ignore[arg-type]


def test_a_submission_is_marked_when_the_creation_and_the_end_of_its_run_are_committed() -> None:
    desk = Desk(creation(), start())
    over = made()
    ending = end()
    ending.submission = over
    desk.turn(ending)
    assert not over.over
    desk.turn(Written())
    assert over.over
    assert not over.committed
    created = new("b")
    desk.turn(created)
    assert created.submission is not None
    assert not created.submission.committed
    desk.turn(Written())
    assert (created.submission.committed, created.submission.over) == (True, False)


def test_how_many_changes_are_gathered_counts_while_a_batch_can_begin() -> None:
    desk = Desk()
    assert desk.machine.gathered == 0
    desk.machine.receive(creation("a"))
    desk.machine.receive(creation("b"))
    assert desk.machine.gathered == 2
    desk.turn()
    desk.turn(creation("c"))
    assert desk.machine.gathered == 0  # it follows the batch in flight
    desk.machine.receive(Written())
    assert desk.machine.gathered == 1


def ending(run: str, *, notify: tuple[Any, ...] = ()) -> Change:
    change = end(run)
    change.ended, change.notify, change.notify_run = Ended(run, False), notify, True
    return change


def test_the_supervisor_receives_all_ends_of_a_commit_in_one_message_before_anyone_else() -> None:
    desk = Desk(creation("a"), creation("b"), start("a"), start("b"))
    started = start("c", notify=(("run", "c", "started"),))
    desk.turn(ending("a"), creation("c"), started, ending("b"))
    told = desk.turn(Written())
    assert told[:2] == [
        ("run", "c", "started"),
        ("supervisor", "", RunsEnded([Ended("a", False), Ended("b", False)])),
    ]
    assert [(kind, name, type(message)) for kind, name, message in told[2:]] == [
        ("run", "a", Committed),
        ("run", "b", Committed),
    ]


def test_a_refused_end_is_not_sent_to_the_supervisor() -> None:
    desk = Desk(creation("a"))
    [(kind, name, _)] = desk.turn(ending("a"))
    assert (kind, name) == ("run", "a")


# Watchers of the end of a run.


def test_a_watcher_of_a_run_gets_its_record_when_it_has_ended() -> None:
    desk = Desk()
    watch: Reply[Any] = Reply()
    desk.commit(creation(watch=watch))
    later = WatchEnd("a", Reply())
    desk.turn(later)
    desk.commit(start())
    assert (desk.machine.watchers, watch.done, later.reply.done) == (2, False, False)
    desk.commit(end())
    assert answer(watch).status is answer(later.reply).status is Status.SUCCEEDED
    assert desk.machine.watchers == 0
    again, unknown = WatchEnd("a", Reply()), WatchEnd("gone", Reply())
    desk.turn(again, unknown)
    assert answer(again.reply).status is Status.SUCCEEDED
    assert answer(unknown.reply) is None
    assert desk.machine.watchers == 0


def test_watchers_that_no_longer_wait_are_removed_when_others_are_added() -> None:
    desk = Desk()
    desk.commit(creation())
    most = 0
    for _ in range(100):
        gone = WatchEnd("a", Reply())
        desk.turn(gone)
        most = max(most, desk.machine.watchers)
        gone.reply.set(None)  # its wait has timed out
    assert most == 1
    watching = [WatchEnd("a", Reply()) for _ in range(9)]
    desk.turn(*watching)
    assert desk.machine.watchers == 9
    desk.commit(start())
    desk.commit(end())
    assert all(message.reply.done for message in watching)


def test_watchers_get_an_error_when_the_engine_stops() -> None:
    desk = Desk()
    watch: Reply[Any] = Reply()
    desk.commit(creation(watch=watch))
    desk.machine.close()
    assert refused(watch)
    assert desk.machine.watchers == 0


# Answers and looks.


def test_an_answer_waits_for_earlier_changes() -> None:
    desk = Desk()
    value, error = Answer(Reply(), "yes"), Answer(Reply(), error=Conflict("no"))
    desk.turn(creation(), value, error)
    assert not value.reply.done
    desk.turn(Written())
    assert answer(value.reply) == "yes"
    assert isinstance(answer(error.reply), Conflict)
    at_once = Answer(Reply(), about=made())
    desk.turn(at_once)
    assert answer(at_once.reply) is None


def test_a_look_sees_the_state_after_earlier_changes() -> None:
    desk = Desk()
    looks = [Look(lambda seen: seen.seq, Reply()) for _ in range(3)]
    desk.turn(looks[0])
    assert answer(looks[0].reply) == 10
    desk.turn(creation(), looks[1])
    desk.turn(looks[2])
    assert not looks[1].reply.done
    desk.turn(Written())
    assert [answer(look.reply) for look in looks[1:]] == [11, 11]


def test_a_look_can_fail() -> None:
    def refuse(seen: Projection) -> None:
        raise Conflict("no")

    look = Look(refuse, Reply())
    Desk().turn(look)
    assert isinstance(answer(look.reply), Conflict)


# Times.


def test_a_mention_is_committed_with_the_next_change_or_after_a_short_delay() -> None:
    desk = Desk(creation(), start())
    desk.turn(Mention(note()), now=1.0)
    assert (desk.job(), desk.machine.deadline) == (None, 1.05)
    desk.turn(Mention(note()), now=1.02)
    assert desk.machine.deadline == 1.05
    desk.turn(creation("b"), now=1.03)
    job = desk.job()
    assert [event.type for event in job.batch.events] == ["run_changed", "run_changed", "run_state_changed"]
    assert desk.machine.deadline == math.inf
    desk.turn(Written(), now=1.04)
    assert desk.machine.deadline == 61.04
    desk.turn(Mention(note()), now=2.0)
    desk.machine.on_deadline(2.05)
    assert len(desk.job().batch.events) == 1
    assert desk.machine.deadline == math.inf
    desk.turn(Written(), now=3.0)
    assert (desk.job(), desk.machine.deadline) == (None, 63.0)


def test_a_mention_that_arrives_while_a_batch_is_written_waits_for_its_delay() -> None:
    desk = Desk(creation(), start())
    desk.turn(creation("b"))
    desk.job()
    desk.turn(Mention(note()), now=1.0)
    desk.machine.on_deadline(1.05)
    assert (desk.job(), desk.machine.deadline) == (None, math.inf)
    desk.turn(Written(), now=1.1)
    assert (desk.job(), desk.machine.deadline) == (None, 1.05)


def test_a_store_that_is_not_written_is_checked() -> None:
    desk = Desk(creation())
    desk.turn(now=0.0)
    assert desk.machine.deadline == 60.0
    desk.machine.on_deadline(60.0)
    job = desk.job()
    assert isinstance(job, Check)
    assert (job.nothing.before, job.nothing.events, job.nothing.memos) == (11, [], [])
    assert desk.machine.deadline == math.inf
    change = creation("b")
    desk.turn(change, now=60.5)
    assert desk.job() is None
    assert desk.turn(StoreIsBack(), now=61.0) == []  # it had not been down
    assert desk.written() == ["b queued"]


# Outages.


def test_an_outage_refuses_new_runs_and_keeps_the_rest() -> None:
    desk = Desk(creation())
    wanted, child = new("b"), new("c", parent="a", ancestors=("a",))
    going_on = start()
    desk.turn(creation("x"))
    desk.job()
    waiting = Answer(Reply(), "yes", about=wanted.submission)
    look = Look(lambda seen: seen.seq, Reply())
    desk.turn(wanted, child, going_on, waiting, look, ProgressReport("a", "alice", "x", 1))
    assert desk.goes_down() == [
        SUPERVISOR_HEARS_OF_OUTAGE,
        ("supervisor", "", NotStored("b")),
        ("run", "b", Forget()),
    ]
    assert refused(wanted.reply)
    assert refused(waiting.reply)
    assert wanted.submission is not None
    assert (wanted.submission.over, wanted.submission.refused) == (True, True)
    assert answer(look.reply) == 11
    assert child.reply is not None
    assert not child.reply.done
    desk.turn(Written())
    assert desk.written() == ["c queued", "a running"]


def test_while_the_store_is_down_new_runs_are_refused_and_looks_answered_immediately() -> None:
    desk = Desk(creation())
    desk.turn(creation("x"))
    desk.job()
    desk.goes_down()
    wanted, look = new("b"), Look(lambda seen: seen.seq, Reply())
    assert desk.turn(wanted, look) == [("supervisor", "", NotStored("b")), ("run", "b", Forget())]
    assert refused(wanted.reply)
    assert answer(look.reply) == 11
    late = Answer(Reply(), "yes", about=wanted.submission)
    desk.turn(late)
    assert refused(late.reply)
    without_reply = new("c")
    without_reply.reply = None
    assert len(desk.turn(without_reply)) == 2


def test_a_batch_that_was_not_written_is_decided_again_without_its_new_runs() -> None:
    desk = Desk(creation())
    wanted, going_on = new("b"), start(reply=Reply())
    about, other = Answer(Reply(), "yes", about=wanted.submission), Answer(Reply(), "other")
    desk.turn(wanted, going_on, about, other)
    assert desk.written() == ["b queued", "a running"]
    desk.goes_down()
    next_one, next_answer = new("n"), Answer(Reply(), "next")
    desk.turn(next_one, next_answer)
    told = desk.turn(NotWritten())
    assert told == [("supervisor", "", NotStored("b")), ("run", "b", Forget())]
    assert refused(wanted.reply)
    assert refused(about.reply)
    assert not other.reply.done
    assert desk.written() == ["a running"]
    assert desk.turn(StoreIsBack()) == [SUPERVISOR_HEARS_OF_END]
    assert not other.reply.done  # the batch is still being written
    desk.turn(Written())
    assert (answer(other.reply), answer(next_answer.reply)) == ("other", "next")
    assert [event.run for event in desk.shown[0]] == ["a"]


def test_an_end_and_the_start_behind_it_stay_together_if_a_batch_was_not_written() -> None:
    desk = Desk(creation("a"), creation("b"), start("a"))
    wanted = new("c")
    lost = ("supervisor", "", "the slot of b is free")
    desk.turn(ending("a"), wanted, start("b", notify_on_refusal=(lost,)))
    assert desk.written() == ["a succeeded", "c queued", "b running"]
    desk.goes_down()
    told = desk.turn(NotWritten())
    assert told == [("supervisor", "", NotStored("c")), ("run", "c", Forget())]
    assert desk.written() == ["a succeeded", "b running"]
    desk.turn(StoreIsBack())
    told = desk.turn(Written())
    assert told[0] == ("supervisor", "", RunsEnded([Ended("a", False)]))
    assert lost not in told


def test_an_answer_that_waits_behind_a_batch_that_was_not_written_is_refused_with_its_run() -> None:
    desk = Desk(creation())
    wanted = new("b")
    desk.turn(wanted)
    desk.job()
    behind = Answer(Reply(), "yes", about=wanted.submission)
    desk.turn(behind, start())
    desk.turn(NotWritten())
    assert refused(behind.reply)


@pytest.mark.parametrize("back", [StoreIsBack(), StoreIsGivenUp()])
def test_answers_without_a_batch_wait_until_the_store_is_back(back: Any) -> None:
    desk = Desk(creation())
    wanted, other = new("b"), Answer(Reply(), "other")
    desk.turn(wanted, other)
    desk.job()
    desk.goes_down()
    desk.turn(NotWritten())
    job = desk.job()
    assert isinstance(job, AwaitStore)
    assert (job.error, job.nothing.before) == (None, 11)
    desk.turn(start())
    assert desk.job() is None
    told = desk.turn(back)
    assert told == ([SUPERVISOR_HEARS_OF_END] if isinstance(back, StoreIsBack) else [])
    assert answer(other.reply) == "other"
    assert desk.written() == ["a running"]


# Batches of submissions.


def many(*outcomes: Any, about: Any = ()) -> AnswerMany:
    return AnswerMany(Reply(), outcomes, about)


def test_a_batch_of_submissions_is_answered_when_all_its_runs_are_committed() -> None:
    desk = Desk()
    batch = many(Accepted("b", False), Conflict("no"), lambda seen: Conflict(f"at {seen.seq}"))
    desk.turn(new("b"), new("c"), batch)
    assert desk.written() == ["b queued", "c queued"]
    assert not batch.reply.done
    desk.turn(Written())
    accepted, refusal, made = answer(batch.reply)
    assert (accepted.run, str(refusal), str(made)) == ("b", "no", "at 12")


@pytest.mark.parametrize("when", ["before", "while it gathers", "while it is written"])
def test_a_batch_of_submissions_that_was_not_stored_is_refused_immediately_as_a_whole(when: str) -> None:
    desk = Desk(creation())
    first, second = new("b"), new("c")
    batch = many(
        Accepted("b", False), Accepted("c", False), about=[first.submission, None, second.submission]
    )
    if when == "while it is written":
        desk.turn(first, second, batch)
        assert desk.written() == ["b queued", "c queued"]
        desk.goes_down()
        desk.turn(NotWritten())
    else:
        desk.turn(creation("x"))
        desk.job()
        if when == "before":
            desk.goes_down()
            desk.turn(first, second, batch)
        else:
            desk.turn(first, second, batch)
            desk.goes_down()
    assert refused(batch.reply)


# Reads of the store.


def test_a_reader_waits_until_the_store_is_back() -> None:
    desk = Desk(creation())
    first, second = ReadFailed(DOWN, desk.commits, Reply()), ReadFailed(DOWN, desk.commits, Reply())
    desk.turn(first)
    job = desk.job()
    assert isinstance(job, AwaitStore)
    assert job.error is DOWN
    desk.turn(second)
    assert desk.job() is None
    desk.turn(WentDown())
    assert (first.reply.done, second.reply.done) == (False, False)
    desk.commits += 1  # an empty one has shown that it is back
    desk.turn(StoreIsBack())
    assert (first.reply.done, second.reply.done) == (True, True)
    desk.turn(Answer(Reply()))
    assert desk.job() is None


def test_a_reader_continues_immediately_if_the_store_was_written_since() -> None:
    desk = Desk(creation())
    message = ReadFailed(DOWN, desk.commits - 1, Reply())
    desk.turn(message)
    assert message.reply.done
    assert desk.job() is None


@pytest.mark.parametrize("message", [StoreIsDamaged(StoreBroken("damaged")), CommitFailed(OSError("no"))])
def test_an_error_of_the_committer_stops_the_journal(message: Any) -> None:
    with pytest.raises(type(message.error)):
        Desk().turn(message)
