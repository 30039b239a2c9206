"""Batches: the supervisor's machine decides them as if their runs were submitted one by one, in one turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenroom.actors.channel import Reply
from greenroom.actors.journal.change import Change
from greenroom.actors.journal.messages import Answer, AnswerMany, Look
from greenroom.actors.messages import (
    Accepted,
    Cancelling,
    NotStored,
    OnConflict,
    SetDraining,
    SetParams,
    StoreIsDown,
    Submission,
    SubmitMany,
)
from greenroom.persistence.store import Requested
from greenroom.protocol.errors import Conflict, GreenroomError, QueueFull, Unavailable
from greenroom.protocol.fold import Projection

from .driving import answer
from .making import job, submission
from .supervising import Desk, describe

POLICIES: tuple[OnConflict, ...] = ("reject", "queue", "replace", "join")
COMMITTED = Projection("e", max_concurrent=9)


@attrs.frozen
class Entry:
    """A submission. Its fingerprint depends on its parameters, as in the engine."""

    handle: str
    on_conflict: OnConflict
    request_id: str | None
    params: int | None

    def made(self, id: str) -> Submission:
        params = None if self.params is None else {"n": self.params}
        fields = {"request_id": self.request_id, "fingerprint": f"{self.handle} {self.params}"}
        return submission(self.handle, id, params=params, **fields)


entries = st.builds(
    Entry,
    handle=st.sampled_from("abc"),
    on_conflict=st.sampled_from(POLICIES),
    request_id=st.sampled_from([None, None, "one", "two"]),
    params=st.sampled_from([None, 1, 1, 2]),
)
histories = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), entries),
        st.tuples(st.just("end"), st.integers(0, 9)),
        st.tuples(st.just("cancelling"), st.integers(0, 9)),
    ),
    max_size=8,
)


class Case(Desk):
    """A desk with a history, and the outcomes of submissions in it."""

    def __init__(self, history: Sequence[Any], **options: Any) -> None:
        super().__init__(limit=2, **options)
        for number, (what, which) in enumerate(history):
            self._act(f"old {number}", what, which)

    def _act(self, id: str, what: str, which: Any) -> None:
        pending = list(self.machine.pending)
        if what == "submit":
            self.one_by_one([which], id)
        elif pending and what == "end":
            run = pending[which % len(pending)]
            self.ends(run, generation=self.machine.order.executing.get(run))
        elif pending:
            run = pending[which % len(pending)]
            if self.machine.handles.admitted(self.pending(run).handle) is self.pending(run):
                self.turn(Cancelling(run))

    def one_by_one(self, given: Sequence[Entry], prefix: str = "new") -> list[Any]:
        """Submit runs in one turn, each on its own; returns their outcomes."""
        messages = []
        for number, entry in enumerate(given):
            message = self.submit(f"{prefix} {number}")
            message.submission, message.on_conflict = entry.made(f"{prefix} {number}"), entry.on_conflict
            messages.append(message)
        self.turn(*messages)
        return [self._outcome(message.reply) for message in messages]

    def together(self, given: Sequence[Entry], *, all_or_nothing: bool) -> Any:
        """Submit runs as a batch; returns their outcomes, or the error that refuses all."""
        made = [entry.made(f"new {number}") for number, entry in enumerate(given)]
        message = SubmitMany(made, [entry.on_conflict for entry in given], all_or_nothing, Reply())
        self.turn(message)
        for told in self.told("journal"):
            if isinstance(told, AnswerMany):
                made_by = [one(COMMITTED) if callable(one) else one for one in told.outcomes]
                return [brief(outcome) for outcome in made_by]
        return self._outcome(message.reply)

    def _outcome(self, reply: Reply[Any]) -> Any:
        for _, _, what in self.decided:
            if getattr(what, "reply", None) is not reply:
                continue
            if isinstance(what, Look):
                try:
                    what.read(COMMITTED)
                except GreenroomError as error:
                    return brief(error)
            elif isinstance(what, Change):
                return brief(what.answer)
            elif isinstance(what, Answer):
                return brief(what.value if what.error is None else what.error)
        return brief(answer(reply))

    def state(self) -> dict[str, Any]:
        """Everything that decides about later submissions."""
        machine = self.machine
        handles, admission, order = machine.handles, machine._admission, machine.order
        return {
            "pending": [(id, made.place, made.params, made.phase) for id, made in machine.pending.items()],
            "admitted": {name: made.id for name, made in handles._admitted.items()},
            "cancelling": set(handles._cancelling),
            "waiting": {name: list(waiting) for name, waiting in handles._waiting.items()},
            "replacing": dict(handles._replacing),
            "requests": {id: request.run for id, request in admission._requests._requests.items()},
            "requests of runs": {run: list(ids) for run, ids in admission._requests._of_run.items()},
            "last place": admission._last_place,
            "executing": dict(order.executing),
            "order": list(order.reports()),
            "to send": list(admission._placed),
        }

    def sent(self) -> list[str]:
        """What the last turn has sent to the journal and to runs, except answers."""
        return [
            describe(what) if isinstance(what, Change) else f"{type(what).__name__} to {kind} {name}"
            for kind, name, what in self.decided
            if not isinstance(what, Answer | AnswerMany | Look)
        ]


def brief(outcome: Any) -> Any:
    if isinstance(outcome, Accepted):
        return outcome.run, outcome.joined
    assert isinstance(outcome, GreenroomError), outcome
    # Only the refusal of a run on its own offers "coalesce", which a batch does not have.
    return type(outcome).__name__, outcome.message.replace(', "join" or "coalesce"', ' or "join"')


def refuses(outcome: Any) -> bool:
    return isinstance(outcome[1], str)


@settings(max_examples=400, deadline=None)
@given(
    history=histories, given_=st.lists(entries, max_size=6), draining=st.booleans(), most=st.integers(2, 9)
)
def test_each_run_of_a_batch_has_the_outcome_that_it_has_on_its_own(
    history: list[Any], given_: list[Entry], draining: bool, most: int
) -> None:
    batch, single = Case(history, max_pending=most), Case(history, max_pending=most)
    for case in (batch, single):
        case.turn(SetDraining(draining, "ann", Reply()))
    assert batch.together(given_, all_or_nothing=False) == single.one_by_one(given_)
    assert sorted(batch.sent()) == sorted(single.sent())
    assert [describe(change) for change in batch.changes()] == [describe(one) for one in single.changes()]
    assert batch.state() == single.state()


@settings(max_examples=400, deadline=None)
@given(history=histories, given_=st.lists(entries, max_size=6), most=st.integers(2, 9))
def test_all_runs_of_a_batch_are_accepted_as_on_their_own_or_nothing_changes(
    history: list[Any], given_: list[Entry], most: int
) -> None:
    batch, single = Case(history, max_pending=most), Case(history, max_pending=most)
    before = batch.state()
    outcomes = single.one_by_one(given_)
    refused = [index for index, outcome in enumerate(outcomes) if refuses(outcome)]
    together = batch.together(given_, all_or_nothing=True)
    if not refused:
        assert together == outcomes
        assert batch.changes() or not single.changes()
        assert batch.state() == single.state()
        return
    index = refused[0]
    kind, message = outcomes[index]
    for earlier in range(index):  # which has no run if the batch is refused
        message = message.replace(f"run new {earlier}:", f"runs[{earlier}]:")
    assert together == (kind, f"runs[{index}]: {message}")
    assert batch.sent() == []
    assert batch.state() == before


def test_the_runs_of_a_batch_are_created_in_order_with_one_answer_after_them() -> None:
    desk = Case([])
    entry = Entry("a", "queue", None, 1)
    outcomes = desk.together([entry, entry, Entry("b", "reject", None, 1)], all_or_nothing=True)
    assert outcomes == [("new 0", False), ("new 1", False), ("new 2", False)]
    sent = [what for kind, _, what in desk.decided if kind == "journal"]
    assert [describe(one) for one in sent[:-1]] == [
        "create new 0, start new 0",
        "create new 1 waiting",
        "create new 2, start new 2",
    ]
    assert isinstance(sent[-1], AnswerMany)
    assert [about.id for about in sent[-1].about if about is not None] == ["new 0", "new 1", "new 2"]
    assert all(change.reply is None for change in desk.changes())


def test_a_batch_counts_its_own_runs_against_max_pending() -> None:
    desk = Case([], max_pending=2)
    runs = [Entry(name, "reject", None, 1) for name in "abc"]
    assert desk.together(runs, all_or_nothing=True) == (
        QueueFull.__name__,
        "runs[2]: 2 runs are pending, which is the limit (max_pending): retry later",
    )
    assert [refuses(one) for one in desk.together(runs, all_or_nothing=False)] == [False, False, True]


def test_a_refusal_about_an_uncommitted_run_waits_for_its_commit() -> None:
    desk = Case([("submit", Entry("a", "reject", None, 1))])
    desk.together([Entry("a", "reject", None, 1)], all_or_nothing=True)
    [refusal] = desk.answers()
    assert isinstance(refusal.error, Conflict)
    assert refusal.error.details == {"active_run": "old 0 0", "index": 0}
    assert refusal.about is desk.pending("old 0 0")


def test_a_conflict_within_a_refused_batch_names_the_other_entry_instead_of_a_run() -> None:
    desk = Case([])
    runs = [Entry(name, "reject", None, 1) for name in "abcb"]
    kind, message = desk.together(runs, all_or_nothing=True)
    assert message.startswith('runs[3]: handle "b" is taken by runs[1]: wait for it')
    [refusal] = desk.answers()
    assert refusal.error is not None
    assert (kind, refusal.error.details) == (Conflict.__name__, {"other_index": 1, "index": 3})


def test_a_join_of_a_batch_remembers_its_request_id_with_the_run() -> None:
    desk = Case([])
    desk.together([Entry("a", "reject", None, 1), Entry("a", "join", "one", 1)], all_or_nothing=True)
    assert [memo for change in desk.changes() for memo in change.memos] == [Requested("one", "new 0", "a 1")]


def test_while_the_store_is_down_a_batch_is_refused_and_changes_nothing() -> None:
    desk = Case([("submit", Entry("a", "reject", "one", 1))])
    desk.turn(StoreIsDown(True))
    before = desk.state()
    kind, message = desk.together([Entry("a", "reject", "one", 1)], all_or_nothing=False)
    assert (kind, message) == (
        Unavailable.__name__,
        "the store is unavailable and nothing was changed: retry later",
    )
    assert desk.state() == before


def test_a_batch_that_could_not_be_stored_leaves_nothing_behind() -> None:
    desk = Case([])
    desk.commits = False
    before = desk.state()
    runs = [Entry("a", "queue", "one", 1), Entry("a", "queue", None, 2), Entry("b", "reject", None, 1)]
    desk.together(runs, all_or_nothing=True)
    for id in list(desk.machine.pending):
        desk.pending(id).over = True
    desk.turn(*[NotStored(f"new {number}") for number in range(3)])
    assert desk.state() | {"last place": 0} == before | {"order": desk.state()["order"]}


def test_a_draft_is_the_same_for_all_runs_of_a_batch() -> None:
    desk = Case([])
    desk.turn(SetParams("a", {"n": 7}, "ann", Reply()))
    desk.together([Entry("a", "queue", None, None)] * 2, all_or_nothing=True)
    assert [made.params for made in desk.machine.pending.values()] == [{"n": 7}] * 2


@pytest.mark.parametrize("all_or_nothing", [True, False])
def test_an_empty_batch_is_answered(all_or_nothing: bool) -> None:
    assert Case([]).together([], all_or_nothing=all_or_nothing) == []


def test_the_job_of_these_tests_takes_a_draft() -> None:
    assert job().params_type is not None
