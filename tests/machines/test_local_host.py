"""The engine's side of a body: which messages its reports and requests become, and what it keeps of them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from greenroom.actors.channel import Reply
from greenroom.actors.journal.change import REPORTING, Change, Outcome, ProgressReport
from greenroom.actors.run import body_messages as to_run
from greenroom.actors.run.local_host import LocalHost, check_held
from greenroom.persistence.flows import FlowState
from greenroom.persistence.store import FileFinished, FileGivenUp
from greenroom.protocol import executors as wire
from greenroom.protocol.errors import RunAbandoned

from .driving import UNANSWERED, WALL, Driver, answer, executing
from .making import submission


def told(run: Driver, kind: str) -> Any:
    """The only message to actors of this kind since the last call."""
    (message,) = run.taken(kind)
    return message


def hosted(**fields: Any) -> tuple[Driver, LocalHost]:
    run = executing(**fields)
    return run, run.host


def test_the_host_of_a_new_body_has_nothing() -> None:
    _, host = hosted()
    assert (host.attempt, dict(host.children), host.files, host.folder) == (1, {}, (), "")
    assert not host.end_is_written
    assert host.woken_at is None
    assert dict(host.answers) == {}


def test_only_the_latest_progress_waits_for_the_journal() -> None:
    run, host = hosted()
    host.tell(wire.Progress(1, 9, {"a": 1}))
    host.tell(wire.Progress(2, 9, {"a": 2}))
    report = told(run, "journal")
    assert isinstance(report, ProgressReport)
    assert (report.run, report.handle, report.lane, report.attempt) == (run.id, "alice", "main", 1)
    assert report.latest == (2, 9, {"a": 2})
    report.latest = None  # the journal takes it
    host.tell(wire.Progress(3, None))
    assert told(run, "journal") is report
    assert report.latest == (3, None, {})


def test_reports_become_messages_to_the_run() -> None:
    run, host = hosted()
    host.tell(wire.TookMessages(7))
    assert told(run, "run") == to_run.Taken(7)
    host.tell(wire.WithdrawInterrupt("key"))
    assert told(run, "run") == to_run.WithdrawInterrupt("key")
    host.ended(to_run.Stopped())
    assert told(run, "run") == to_run.BodyEnded(to_run.Stopped())


def test_a_blocked_loop_is_a_warning_of_the_engine_in_the_log_of_the_run() -> None:
    run, host = hosted()
    host.tell(wire.BlockedLoop(1.26, "app.py:7 in work"))
    change = told(run, "journal")
    (event,) = change.events
    assert (change.run, change.expect, change.attempt) == (run.id, REPORTING, 1)
    assert (event.by, event.level, event.attempt, event.run) == ("engine", "warning", 1, run.id)
    assert event.text == "blocked the event loop for 1.3 s, at app.py:7 in work"


def test_only_an_own_child_is_dropped_and_only_once(monkeypatch) -> None:
    run, host = hosted()
    cancels: list[Any] = []
    entry = run.machine.state.services.entry
    monkeypatch.setattr(entry, "tell", cancels.append, raising=False)
    host.children["own"] = None
    host.tell(wire.DropChild("joined"))
    host.tell(wire.DropChild("own"))
    host.tell(wire.DropChild("own"))
    assert [(each.run, each.by, each.reason, each.files) for each in cancels] == [
        ("own", "engine", "parent_cancelled", "keep")
    ]
    assert dict(host.children) == {}


def test_requests_become_messages_to_the_run_with_the_reply() -> None:
    run, host = hosted()
    run.now = 5.0
    reply = host.ask(wire.SaveCheckpoint({"page": 3}, 2, 1))
    assert told(run, "run") == to_run.Save({"page": 3}, 2, 1, 1, reply)
    reply = host.ask(wire.ReleaseSlot("time", 60.0))
    assert told(run, "run") == to_run.Suspend("time", WALL + 65, 60.0, reply)
    reply = host.ask(wire.ReleaseSlot("message"))
    assert told(run, "run") == to_run.Suspend("message", None, None, reply)
    reply = host.ask(wire.TakeSlot())
    assert told(run, "run") == to_run.Resume(reply)
    reply = host.ask(wire.SetPhase("streaming", True))
    assert told(run, "run") == to_run.Flag("streaming", True, reply)


@pytest.mark.parametrize(("timeout", "seconds"), [(None, math.inf), (3.0, 3.0)])
def test_an_interrupt_has_a_reply_for_its_opening_and_one_for_its_answer(timeout, seconds) -> None:
    run, host = hosted()
    opened, answered = host.open_interrupt(wire.OpenInterrupt({"question": 1}, timeout, "key", True))
    assert told(run, "run") == to_run.OpenInterrupt({"question": 1}, seconds, "key", True, opened, answered)
    assert opened is not answered


def test_a_line_of_the_log_is_committed_only_for_the_current_body() -> None:
    run, host = hosted()
    reply = host.ask(wire.WriteLog("hello", "error"))
    change = told(run, "journal")
    (event,) = change.events
    assert (event.by, event.text, event.level, event.attempt) == ("body", "hello", "error", 1)
    assert (change.run, change.expect, change.attempt) == (run.id, REPORTING, 1)
    assert change.reply is reply


def test_a_finished_file_is_listed_once_and_until_it_is_given_up() -> None:
    run, host = hosted()
    for path in ("one", "two", "one"):
        host.ask(wire.FinishFile(path))
    assert host.files == ("one", "two")
    changes = run.taken("journal")
    assert [change.memos for change in changes] == [
        (FileFinished(run.id, path),) for path in ("one", "two", "one")
    ]
    assert all((change.expect, change.attempt) == (REPORTING, 1) for change in changes)
    reply = host.ask(wire.GiveUpFiles(("one", "three")))
    change = told(run, "journal")
    assert host.files == ("two",)
    assert change.memos == (FileGivenUp(run.id, "one"), FileGivenUp(run.id, "three"))
    assert (change.run, change.expect) == (run.id, Change(()).expect)  # also for an abandoned body
    assert change.reply is reply


def test_files_are_stored_with_the_folder_that_contains_them() -> None:
    run, host = hosted()
    host.folder = "f1"
    host.ask(wire.FinishFile("one"))
    assert told(run, "journal").memos == (FileFinished(run.id, "one", "f1"),)
    host.ask(wire.GiveUpFiles(("one",)))
    assert told(run, "journal").memos == (FileGivenUp(run.id, "one", "f1"),)


def test_the_first_state_of_a_walk_is_taken_once() -> None:
    state = FlowState("r", 1, "{}", 0)
    made = submission(place=1)
    made.memos = (state,)
    host = LocalHost(made, 1, executing().machine.state.services, dict)
    assert host.take_first_state() is state
    assert host.take_first_state() is None
    assert made.memos == ()


def test_a_commit_that_was_refused_means_that_the_body_is_abandoned() -> None:
    check_held(None, "r", 2)
    check_held(Outcome(True, None, 1), "r", 2)
    with pytest.raises(RunAbandoned, match="run r, attempt 2: the run continues without this body"):
        check_held(Outcome(False, None, 1), "r", 2)


# After the body was abandoned, its calls fail; what it reported before can still arrive.


def abandoned(**options: Any) -> tuple[Driver, LocalHost]:
    run, host = hosted(**options)
    asked = to_run.OpenInterrupt({}, math.inf, "key", False, Reply(), Reply())
    run.give(asked)
    run.cancel()
    run.at(10)
    assert isinstance(answer(asked.reply), bool)
    run.changed()
    run.remembered()
    run.told.clear()
    return run, host


def test_a_checkpoint_of_an_abandoned_body_is_not_saved() -> None:
    run, host = abandoned()
    host.ask(wire.SaveCheckpoint("too late", 0, 0))
    assert run.give(told(run, "run")) == UNANSWERED
    assert (run.changed(), run.remembered()) == ([], [])


def test_an_abandoned_body_withdraws_no_interrupt() -> None:
    run, host = abandoned()
    host.tell(wire.WithdrawInterrupt("key"))
    run.give(told(run, "run"))
    assert (run.changed(), run.remembered()) == ([], [])


def test_an_interrupt_stays_open_although_a_body_that_ignores_the_shutdown_withdraws_it() -> None:
    run, host = hosted(job_name="swim")
    run.give(to_run.OpenInterrupt({}, math.inf, "key", False, Reply(), Reply()))
    run.stop(now=True)
    run.at(10)
    run.changed()
    run.told.clear()
    host.tell(wire.WithdrawInterrupt("key"))
    run.give(told(run, "run"))
    assert run.changed() == []


def test_the_requests_of_an_abandoned_body_are_refused_by_the_journal() -> None:
    run, host = abandoned()
    for request in (wire.WriteLog("too late", "info"), wire.FinishFile("one")):
        host.ask(request)
        assert not run._decide(told(run, "journal")).held
    assert (run.changed(), run.remembered()) == ([], [])
