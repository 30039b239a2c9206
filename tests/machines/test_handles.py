"""Which run a handle admits, and the result of each `on_conflict`, without a scheduler."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from greenroom.actors.messages import OnConflict, Submission
from greenroom.actors.scheduling.handles import ADMIT, Coalesce, Handles, Join, Refuse, Wait

from .making import Special, job, submission


def test_a_free_handle_admits_a_run_whatever_its_on_conflict() -> None:
    for on_conflict in ("reject", "queue", "replace", "join", "coalesce"):
        handles, run = Handles(), submission()
        assert handles.decide(run, on_conflict) is ADMIT
        assert handles.admitted("alice") is run
        assert handles.taken_by("alice") == run.id


def test_a_second_run_is_refused_with_the_active_one() -> None:
    handles, first = Handles(), submission()
    handles.decide(first, "reject")
    refused = handles.decide(submission(), "reject")
    assert isinstance(refused, Refuse)
    assert refused.about is first
    assert refused.error.details == {"active_run": first.id}
    assert handles.admitted("alice") is first


def test_a_refusal_offers_coalesce_only_where_it_is_accepted() -> None:
    handles = Handles()
    handles.decide(submission(), "reject")
    child = submission(parent="r1", ancestors=("alice",))
    flow = submission(job=attrs.evolve(job(), special=Special()))
    for refused, offers in (
        (handles.decide(submission(), "reject"), '"replace", "join" or "coalesce"'),
        (handles.decide(submission(), "reject", in_batch=True), '"replace" or "join"'),
        (handles.decide(child, "reject"), '"replace" or "join"'),
        (handles.decide(flow, "reject"), '"replace" or "join"'),
    ):
        assert isinstance(refused, Refuse)
        assert refused.error.message.endswith(f'on_conflict "queue", {offers}')


def test_other_handles_are_not_affected() -> None:
    handles = Handles()
    handles.decide(submission("alice"), "reject")
    assert handles.decide(submission("bob"), "reject") is ADMIT


def test_runs_that_queue_are_admitted_in_their_order() -> None:
    handles = Handles()
    runs = [submission() for _ in range(3)]
    assert [handles.decide(run, "queue") for run in runs] == [ADMIT, Wait(None), Wait(None)]
    assert handles.admit_next("alice") is None
    for ended, following in zip(runs, [*runs[1:], None], strict=True):
        handles.ended(ended, body_remains=False)
        assert handles.admit_next("alice") is following


def test_a_replacement_waits_in_front_and_replaces_the_admitted_run() -> None:
    handles, first, queued, newer = Handles(), submission(), submission(), submission()
    handles.decide(first, "reject")
    handles.decide(queued, "queue")
    assert handles.decide(newer, "replace") == Wait((first.id,))
    assert list(handles.waiting("alice")) == [newer.id, queued.id]


def test_a_newer_replacement_supersedes_one_that_has_not_started() -> None:
    handles, first, older, newer = Handles(), submission(), submission(), submission()
    handles.decide(first, "reject")
    handles.decide(older, "replace")
    assert handles.decide(newer, "replace") == Wait((older.id, first.id))


def test_a_run_that_is_being_cancelled_is_not_cancelled_again_by_a_replacement() -> None:
    handles, first = Handles(), submission()
    handles.decide(first, "reject")
    handles.being_cancelled(first)
    assert handles.decide(submission(), "replace") == Wait(())


def test_an_admitted_replacement_no_longer_supersedes_others() -> None:
    handles, first, second, third = Handles(), submission(), submission(), submission()
    handles.decide(first, "reject")
    handles.decide(second, "replace")
    handles.ended(first, body_remains=False)
    assert handles.admit_next("alice") is second
    assert handles.decide(third, "replace") == Wait((second.id,))


def test_a_replacement_that_ended_while_it_waited_is_not_cancelled_by_the_next() -> None:
    handles, first, second, third = Handles(), submission(), submission(), submission()
    handles.decide(first, "reject")
    handles.decide(second, "replace")
    handles.ended(second, body_remains=False)
    assert handles.decide(third, "replace") == Wait((first.id,))
    assert list(handles.waiting("alice")) == [third.id]


def test_an_equal_submission_joins() -> None:
    handles, first = Handles(), submission(params={"a": 1})
    handles.decide(first, "reject")
    assert handles.decide(submission(params={"a": 1}), "join") == Join(first)
    assert list(handles.waiting("alice")) == []


@pytest.mark.parametrize("other", [{"params": {"a": 2}}, {"job": job("swim")}])
def test_another_submission_does_not_join(other) -> None:
    handles, first = Handles(), submission(params={"a": 1})
    handles.decide(first, "reject")
    refused = handles.decide(submission(**({"params": {"a": 1}} | other)), "join")
    assert isinstance(refused, Refuse)
    assert refused.about is first


def test_a_run_that_is_being_cancelled_can_not_be_joined_and_the_next_one_can() -> None:
    handles, first, second = Handles(), submission(), submission()
    handles.decide(first, "reject")
    handles.being_cancelled(second)  # not the admitted run
    assert handles.decide(submission(), "join") == Join(first)
    handles.being_cancelled(first)
    assert isinstance(handles.decide(submission(), "join"), Refuse)
    handles.ended(first, body_remains=False)
    assert handles.decide(second, "reject") is ADMIT
    assert handles.decide(submission(), "join") == Join(second)


def test_an_abandoned_body_keeps_its_handle_until_it_is_freed() -> None:
    handles, first, second = Handles(), submission(), submission()
    handles.decide(first, "reject")
    handles.decide(second, "queue")
    handles.ended(first, body_remains=True)
    assert handles.admit_next("alice") is None
    assert handles.taken_by("alice") == first.id
    assert handles.admitted("alice") is None
    assert handles.free("alice") == first.id
    assert handles.admit_next("alice") is second


def test_a_run_that_finds_only_an_abandoned_body_is_refused_without_an_active_submission() -> None:
    handles, first = Handles(), submission()
    handles.decide(first, "reject")
    handles.ended(first, body_remains=True)
    for on_conflict in ("reject", "join"):
        refused = handles.decide(submission(), on_conflict)
        assert isinstance(refused, Refuse)
        assert refused.about is None
        assert refused.error.details == {"active_run": first.id}


def test_the_end_of_another_runs_body_frees_nothing() -> None:
    handles, first, second = Handles(), submission(), submission()
    handles.decide(first, "reject")
    handles.ended(first, body_remains=True)
    handles.free("alice")
    handles.decide(second, "reject")
    handles.ended(second, body_remains=True)
    assert handles.free("alice", first.id) is None
    assert handles.taken_by("alice") == second.id
    assert handles.free("alice", second.id) == second.id
    assert handles.free("alice", second.id) is None


def test_a_draft_is_locked_while_its_handle_is_taken() -> None:
    handles, first = Handles(), submission()
    assert handles.locked("alice") is None
    handles.decide(first, "reject")
    locked = handles.locked("alice")
    assert locked is not None
    assert locked.details == {"active_run": first.id}
    handles.ended(first, body_remains=True)
    assert handles.locked("alice") is not None
    handles.free("alice")
    assert handles.locked("alice") is None


def test_a_free_handle_with_waiting_runs_refuses_with_the_first_of_them() -> None:
    handles, first, second = Handles(), submission(), submission()
    handles.decide(first, "reject")
    handles.decide(second, "queue")
    handles.ended(first, body_remains=False)  # and the next one has not been admitted yet
    refused = handles.decide(submission(), "reject")
    assert isinstance(refused, Refuse)
    assert refused.about is second


def test_a_free_handle_leaves_nothing_behind() -> None:
    handles = Handles()
    first, second, third = submission(), submission(), submission()
    handles.decide(first, "reject")
    handles.decide(second, "queue")
    handles.decide(third, "replace")
    assert [report["taken_by"] for report in handles.reports()] == [first.id]
    handles.being_cancelled(first)
    for run in (first, third, second):
        handles.ended(run, body_remains=False)
        handles.admit_next("alice")
    assert list(handles.reports()) == []
    assert not any(vars(handles).values())


def test_each_handle_that_is_taken_or_has_waiting_runs_is_reported() -> None:
    handles, first, second = Handles(), submission("alice"), submission("alice")
    handles.decide(first, "reject")
    handles.decide(second, "queue")
    remains = submission("bob")
    handles.decide(remains, "reject")
    handles.ended(remains, body_remains=True)
    assert list(handles.reports()) == [
        {"kind": "handle", "name": "alice", "taken_by": first.id, "waiting": 1},
        {"kind": "handle", "name": "bob", "taken_by": remains.id, "waiting": 0},
    ]


# After a restart.


def test_a_restart_restores_the_admitted_run_and_the_waiting_runs() -> None:
    handles, admitted = Handles(), submission(place=1)
    waiting = [submission(), submission()]
    assert handles.restore("alice", admitted, waiting, None) == []
    assert handles.taken_by("alice") == admitted.id
    handles.ended(admitted, body_remains=False)
    assert handles.admit_next("alice") is waiting[0]


def test_after_a_restart_the_remaining_cancels_of_a_replacement_are_made() -> None:
    handles, admitted = Handles(), submission(place=1)
    older, newest = submission(front=True), submission(front=True)
    queued = submission()
    replaced = handles.restore("alice", admitted, [newest, older, queued], newest)
    assert sorted(replaced) == sorted([older.id, admitted.id])
    assert isinstance(handles.decide(submission(), "join"), Refuse)


def test_after_a_restart_a_replacement_that_was_admitted_cancels_only_those_before_it() -> None:
    handles, newest, older = Handles(), submission(place=1, front=True), submission(front=True)
    assert handles.restore("alice", newest, [older], newest) == [older.id]
    assert handles.decide(submission(params={}), "join") == Join(newest)


# Coalescing.


def waiting(*runs: Submission, on_conflict: OnConflict = "queue") -> Handles:
    """A handle whose first run executes, and the others wait."""
    handles = Handles()
    for run in runs:
        handles.decide(run, on_conflict)
    runs[0].begun = True
    return handles


def test_a_submission_coalesces_with_the_last_equal_run_that_waits() -> None:
    first, second, third, swims = submission(), submission(), submission(), submission(job=job("swim"))
    handles = waiting(first, second, third, swims)
    assert handles.decide(submission(params={"a": 1}), "coalesce") == Coalesce(third)
    assert list(handles.waiting("alice")) == [second.id, third.id, swims.id]


def test_a_submission_coalesces_with_the_admitted_run_until_that_begins() -> None:
    handles, first, second = Handles(), submission(), submission()
    handles.decide(first, "reject")
    assert handles.decide(submission(), "coalesce") == Coalesce(first)
    first.begun = True
    assert handles.decide(second, "coalesce") == Wait(None)
    assert handles.decide(submission(), "coalesce") == Coalesce(second)


@pytest.mark.parametrize(
    "other",
    [
        {"job": job("swim")},
        {"kind": "continue"},
        {"lane": "side"},
        {"needs": ("gpu",)},
        {"parent": "p", "ancestors": ("h",)},
        {"cleared": True},
        {"over": True},
    ],
    ids=lambda other: next(iter(other)),
)
def test_a_submission_waits_if_no_equal_run_waits_that_it_could_change(other: dict[str, Any]) -> None:
    handles = waiting(submission(), submission(**other))
    assert handles.decide(submission(), "coalesce") == Wait(None)


def test_a_submission_looks_only_at_equal_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    walks, equal = submission(), submission()
    swims = [submission(job=job("swim")) for _ in range(1000)]
    handles = waiting(walks, equal, *swims)
    handles.ended(swims.pop(), body_remains=False)
    compared: list[Submission] = []

    def takes(run: Submission, other: Submission) -> bool:
        compared.append(run)
        return Handles.takes(handles, run, other)

    monkeypatch.setattr(handles, "takes", takes)
    assert handles.decide(submission(), "coalesce") == Coalesce(equal)
    assert handles.decide(submission(job=job("swim")), "coalesce") == Coalesce(swims[-1])
    assert compared == [equal, swims[-1]]


def test_a_submission_does_not_coalesce_with_a_run_that_is_replaced() -> None:
    first, older, newer = submission(), submission(), submission()
    handles = Handles()
    handles.decide(first, "reject")
    handles.decide(older, "replace")
    assert handles.decide(submission(), "coalesce") == Coalesce(older)
    handles.decide(newer, "replace")
    assert handles.decide(submission(), "coalesce") == Coalesce(newer)
    handles.ended(first, body_remains=False)
    assert handles.admit_next("alice") is newer
    assert handles.decide(submission(), "coalesce") == Coalesce(newer)
    newer.begun = True
    assert handles.decide(submission(), "coalesce") == Wait(None)


def test_a_replacement_that_could_not_be_stored_replaces_nothing() -> None:
    first, newer = submission(), submission(job=job("swim"))
    handles = Handles()
    handles.decide(first, "reject")
    handles.decide(newer, "replace")
    assert handles.decide(submission(kind="continue"), "coalesce") == Wait(None)
    handles.ended(newer, body_remains=False)
    assert handles.decide(submission(), "coalesce") == Coalesce(first)


def test_a_submission_does_not_coalesce_with_a_run_that_is_being_cancelled() -> None:
    handles, first = Handles(), submission()
    handles.decide(first, "reject")
    handles.being_cancelled(first)
    assert handles.decide(submission(), "coalesce") == Wait(None)
