"""Deciding a batch of changes: each compare-and-set, the numbering, and the writes."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.actors.journal.batch import DecidedBatch
from greenroom.actors.journal.change import REPORTING, Change, Outcome, ProgressReport
from greenroom.persistence.store import FilesDoomed, Terms
from greenroom.protocol.events import (
    EngineChanged,
    Event,
    HandleChanged,
    LaneChanged,
    RunChanged,
    RunStateChanged,
)
from greenroom.protocol.fold import Projection
from greenroom.protocol.states import Status, allowed_from

ABOUT: dict[str, Any] = {"seq": 0, "at": 0, "by": "app", "handle": "alice", "lane": "x"}


def transition(from_: Status | None, to: Status, run: str = "a", **fields: Any) -> RunStateChanged:
    attempt = 0 if to is Status.QUEUED else 1
    named = ABOUT | {"attempt": attempt, "reason": None, "place": 1} | fields
    return RunStateChanged(run=run, from_=from_, to=to, **named)


def creation(run: str = "a", **fields: Any) -> Change:
    event = transition(None, Status.QUEUED, run, job="walk", kind="start")
    return Change((event,), run=run, **fields)


def start(run: str = "a", **fields: Any) -> Change:
    event = transition(Status.QUEUED, Status.RUNNING, run)
    return Change((event,), run=run, **({"expect": allowed_from(Status.RUNNING)} | fields))


def end(run: str = "a", from_: Status = Status.RUNNING, **fields: Any) -> Change:
    event = transition(from_, Status.SUCCEEDED, run, **fields)
    return Change((event,), run=run, expect=allowed_from(Status.SUCCEEDED))


def note(run: str = "a", **fields: Any) -> Change:
    event = RunChanged(**(ABOUT | {"run": run, "streaming": True}))
    return Change((event,), run=run, **({"expect": REPORTING} | fields))


def decide(projection: Projection, *changes: Change | ProgressReport, now: float = 5.0) -> DecidedBatch:
    return DecidedBatch(projection, now, changes)


def after(*changes: Change) -> Projection:
    """The projection after the commit of these changes."""
    projection = Projection("e", max_concurrent=3, seq=10)
    batch = decide(projection, *changes)
    assert all(outcome.held for _, outcome in batch.decided)
    for event, record in zip(batch.events, batch.records, strict=True):
        projection.apply(event, record)
    return projection


def held(batch: DecidedBatch) -> list[bool]:
    return [outcome.held for _, outcome in batch.decided]


# Numbers.


def test_accepted_events_get_the_next_numbers_and_the_time() -> None:
    batch = decide(after(creation()), start(), note(), now=7.0)
    assert [(event.seq, event.at) for event in batch.events] == [(12, 7.0), (13, 7.0)]
    assert batch.seq == 13
    assert [outcome.seq for _, outcome in batch.decided] == [12, 13]


def test_a_refused_change_gets_no_number() -> None:
    batch = decide(after(creation()), end(), start())
    assert held(batch) == [False, True]
    assert [event.seq for event in batch.events] == [12]
    assert [outcome.seq for _, outcome in batch.decided] == [11, 12]


def test_a_batch_begins_where_the_projection_is() -> None:
    projection = after(creation())
    batch = decide(projection, start()).to_commit()
    assert (batch.before, batch.after) == (11, 12)
    assert list(batch.runs) == ["a"]
    assert projection.seq == 11
    assert projection.runs["a"].status is Status.QUEUED


# Compares.


def test_a_transition_is_accepted_only_from_the_status_that_it_names() -> None:
    assert held(decide(after(creation()), start())) == [True]
    from_suspended = Change((transition(Status.SUSPENDED, Status.RUNNING),), run="a")
    assert held(decide(after(creation()), from_suspended)) == [False]
    assert held(decide(after(creation()), creation())) == [False]
    assert held(decide(after(), start(expect=None))) == [False]


def test_a_transition_is_found_behind_other_events() -> None:
    event = RunChanged(**(ABOUT | {"run": "a", "streaming": True}))
    change = Change((event, transition(Status.SUSPENDED, Status.RUNNING)), run="a")
    assert held(decide(after(creation()), change)) == [False]


def test_a_change_is_accepted_only_in_the_statuses_that_it_expects() -> None:
    assert held(decide(after(creation()), note())) == [False]
    assert held(decide(after(creation(), start()), note())) == [True]
    assert held(decide(after(), note())) == [False]
    assert held(decide(after(creation()), note(expect=None))) == [True]


@pytest.mark.parametrize(("attempt", "holds"), [(0, False), (1, True), (2, False), (None, True)])
def test_a_report_of_another_attempt_is_refused(attempt, holds) -> None:
    assert held(decide(after(creation(), start()), note(attempt=attempt))) == [holds]


def test_an_attempt_of_no_run_is_refused() -> None:
    change = Change((), run="nobody", attempt=1, memos=(FilesDoomed("nobody"),))
    batch = decide(after(), change)
    assert held(batch) == [False]
    assert batch.memos == []


def lane_changed(generation: int, lane: str = "x") -> Change:
    event = LaneChanged(seq=0, at=0, by="app", lane=lane, limit=1, generation=generation)
    return Change((event,))


@pytest.mark.parametrize(("generation", "holds"), [(0, False), (1, True), (2, False), (None, True)])
def test_a_slot_of_another_generation_starts_nothing(generation, holds) -> None:
    projection = after(creation(), lane_changed(1))
    assert held(decide(projection, start(generation=generation))) == [holds]


def test_a_reset_in_the_same_batch_counts() -> None:
    changes = (creation(), lane_changed(1), start(generation=0), start(generation=1))
    assert held(decide(after(), *changes)) == [True, True, False, True]
    assert held(decide(after(creation()), lane_changed(1, "y"), start(generation=0))) == [True, True]


def test_a_generation_is_not_compared_before_the_run_is_there() -> None:
    projection = after(lane_changed(1))
    both = creation(generation=0)
    assert held(decide(projection, both)) == [True]


def test_a_change_sees_the_changes_before_it_in_the_batch() -> None:
    batch = decide(after(), creation(), start(), start(), end())
    assert held(batch) == [True, True, False, True]
    statuses = [outcome.run.status for _, outcome in batch.decided if outcome.run is not None]
    assert statuses == [Status.QUEUED, Status.RUNNING, Status.RUNNING, Status.SUCCEEDED]


def test_a_change_that_is_refused_is_answered_with_the_run_as_it_is() -> None:
    projection = after(creation())
    ((_, outcome),) = decide(projection, end()).decided
    assert outcome == Outcome(False, projection.runs["a"], 11)
    ((_, nobody),) = decide(after(), end()).decided
    assert nobody == Outcome(False, None, 10)


def test_a_change_without_a_run_is_always_accepted() -> None:
    event = EngineChanged(seq=0, at=0, by="app", max_concurrent=1, draining=False)
    batch = decide(after(), Change((event,)))
    assert held(batch) == [True]
    assert batch.records == [None]
    assert batch.decided[0][1].run is None
    assert batch.to_commit().runs == {}


def test_a_change_of_several_events_is_all_or_nothing() -> None:
    events: tuple[Event, ...] = (
        transition(None, Status.QUEUED, job="walk", kind="start"),
        transition(Status.QUEUED, Status.RUNNING),
    )
    batch = decide(after(), Change(events, run="a", generation=0))
    assert held(batch) == [True]
    assert [event.seq for event in batch.events] == [11, 12]
    assert [record.status for record in batch.records if record] == [Status.QUEUED, Status.RUNNING]
    refused = decide(after(creation()), Change(events, run="a"))
    assert (held(refused), refused.events) == ([False], [])


# What is written.


def test_a_new_run_is_written_once_as_it_is_after_the_batch() -> None:
    terms = Terms(request_id="r")
    events = (
        transition(None, Status.QUEUED, job="walk", kind="start"),
        transition(Status.QUEUED, Status.RUNNING),
    )
    batch = decide(after(), Change(events, run="a", terms=terms))
    write = batch.to_commit().runs["a"]
    assert write.record is batch.records[1]
    assert (write.record.status, write.record.attempt) == (Status.RUNNING, 1)
    assert (write.expected, write.terms, write.created, write.ended) == (None, terms, 11, None)
    assert not write.holds_handle


def test_a_run_that_is_there_is_written_under_the_statuses_that_it_may_have() -> None:
    batch = decide(after(creation()), start())
    write = batch.to_commit().runs["a"]
    assert (write.expected, write.created, write.terms) == (allowed_from(Status.RUNNING), None, None)
    unexpected = decide(after(creation()), note(expect=None)).to_commit().runs["a"]
    assert unexpected.expected == frozenset({Status.QUEUED})


def test_the_first_change_of_a_run_in_the_batch_defines_the_expected_row() -> None:
    write = decide(after(creation()), start(), note()).to_commit().runs["a"]
    assert write.expected == allowed_from(Status.RUNNING)
    assert write.record.streaming


def test_an_end_is_written_with_its_number() -> None:
    batch = decide(after(creation()), start(), end(), note(expect=None))
    write = batch.to_commit().runs["a"]
    assert (write.ended, write.holds_handle) == (13, False)
    assert [record.status for record in batch.ended] == [Status.SUCCEEDED]
    kept = decide(after(creation(), start()), end(holds_handle=True))
    assert kept.to_commit().runs["a"].holds_handle
    assert kept.ended == [kept.records[0]]


def test_what_has_ended_before_does_not_end_again() -> None:
    projection = after(creation(), start(), end())
    batch = decide(projection, note(expect=None))
    assert batch.ended == []
    assert batch.to_commit().runs["a"].ended is None


def test_memos_of_accepted_changes_are_written() -> None:
    doomed = FilesDoomed("a")
    projection = after(creation())
    batch = decide(projection, note(expect=None, memos=(doomed,)), end())
    assert batch.memos == [doomed]
    only = decide(projection, Change((), run="a", memos=(doomed,)))
    assert (only.writes, only.events, only.to_commit().memos) == (True, [], [doomed])


def test_a_memo_about_no_run_is_written() -> None:
    batch = decide(after(), Change((), memos=(FilesDoomed("a"),)))
    assert held(batch) == [True]
    assert batch.writes


def test_a_batch_of_refused_changes_writes_nothing() -> None:
    assert not decide(after(), end()).writes
    event = HandleChanged(seq=0, at=0, by="app", handle="h", params=1)
    assert decide(after(), Change((event,))).writes


# Progress.


def report(attempt: int = 1, latest: Any = (1, 2, {"x": 3})) -> ProgressReport:
    return ProgressReport("a", "alice", "x", attempt, latest)


def test_the_latest_progress_is_an_event_like_any_other() -> None:
    batch = decide(after(creation(), start()), report())
    (event,) = batch.events
    assert (event.seq, event.at, event.by, event.run, event.handle, event.lane) == (
        13,
        5.0,
        "body",
        "a",
        "alice",
        "x",
    )
    assert (event.attempt, event.done, event.total, event.stats) == (1, 1, 2, {"x": 3})
    write = batch.to_commit().runs["a"]
    assert write.expected == REPORTING
    assert write.terms is None
    assert write.record.progress == {"done": 1, "total": 2, "x": 3}


def test_progress_is_taken_once_except_to_decide_the_batch_again() -> None:
    projection = after(creation(), start())
    said = report()
    decide(projection, said)
    assert said.latest is None
    assert said.taken == (1, 2, {"x": 3})
    (again,) = decide(projection, said).events
    assert again.done == 1
    said.latest = (2, 2, {})
    (newer,) = decide(projection, said).events
    assert newer.done == 2


def test_progress_of_another_attempt_or_of_a_run_that_does_not_execute_is_dropped() -> None:
    assert decide(after(creation(), start()), report(attempt=2)).events == []
    assert decide(after(creation()), report(attempt=0)).events == []
    assert decide(after(), report()).events == []
    assert decide(after(creation(), start(), end()), report()).events == []
    assert decide(after(creation(), start()), report(latest=None)).events == []


def test_progress_sees_the_changes_before_it_in_the_batch() -> None:
    assert len(decide(after(creation()), start(), report()).events) == 2
    assert len(decide(after(creation(), start()), end(), report()).events) == 1
