"""Batches: submissions of one call, which are decided in one turn and created by one commit.

Each submission is decided as if the ones before it were already accepted, and nothing is carried out before
all of them are decided. So a batch of which all or none must be accepted is refused by taking its decisions
back, the last one first: no place was drawn, no lane was entered, and nothing was sent.

All changes of a turn reach the journal together, and it commits what it has received together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

from ...protocol.batches import named
from ...protocol.errors import Conflict, GreenroomError
from ...protocol.fold import Projection
from ..effects import Effects
from ..journal.messages import AnswerMany, Look, Outcome, unavailable
from ..messages import Accepted, Submission, SubmitMany
from .admission import Admission, Delay, Repeat
from .handles import Admit, Coalesce, Decision, Join, Refuse, Wait


def submit_many(admission: Admission, effects: Effects, message: SubmitMany, now: float) -> None:
    """Handle a batch of submissions."""
    if admission.store_is_down:
        message.reply.fail(unavailable())  # not by way of the journal, which waits for the store
        return
    decisions: list[Decision | Delay | Repeat] = []
    for submission, on_conflict in zip(message.submissions, message.on_conflicts, strict=True):
        decision = admission.repeat(submission, now) or admission.decide(
            submission, on_conflict, in_batch=True
        )
        decisions.append(decision)
        if message.all_or_nothing and _is_refusal(decision):
            _undo(admission, message, decisions)
            _refuse(effects, message, decision, len(decisions) - 1)
            return
    admission.answer(_carry_out(admission, message, decisions))


def _is_refusal(decision: Decision | Delay | Repeat) -> bool:
    return isinstance(decision, Refuse) or (isinstance(decision, Repeat) and decision.refuse is not None)


def _undo(admission: Admission, message: SubmitMany, decisions: Sequence[Decision | Delay | Repeat]) -> None:
    for index in reversed(range(len(decisions))):
        decision = decisions[index]
        if not isinstance(decision, Repeat):
            admission.undo(message.submissions[index], decision)


def _refuse(effects: Effects, message: SubmitMany, decision: Decision | Delay | Repeat, index: int) -> None:
    """Refuse a batch as a whole because of the entry at this index."""
    if isinstance(decision, Repeat) and decision.refuse is not None:
        effects.tell("journal", "", Look(partial(_raise, decision.refuse, index), message.reply))
    elif isinstance(decision, Refuse):
        earlier = [submission.id for submission in message.submissions[:index]]
        if decision.about is not None and decision.about.id in earlier:
            effects.answer(message.reply, error=_conflict_within(decision, earlier, index))
        else:
            effects.answer(message.reply, error=named(decision.error, index), about=decision.about)


def _conflict_within(decision: Refuse, earlier: Sequence[str], index: int) -> GreenroomError:
    """The error of an entry that conflicts with an earlier one: it names the index of that entry, because no
    run was created for it."""
    assert decision.about is not None, "the error is about a run"
    other = earlier.index(decision.about.id)
    message = decision.error.message.replace(f"run {decision.about.id}", f"runs[{other}]")
    return named(Conflict(message, other_index=other), index)


def _raise(refuse: Callable[[Projection], Conflict], index: int, committed: Projection) -> NoReturn:
    raise named(refuse(committed), index)


def _carry_out(
    admission: Admission, message: SubmitMany, decisions: Sequence[Decision | Delay | Repeat]
) -> AnswerMany:
    """Carry out the decisions in order. Returns the answer."""
    outcomes: list[Outcome] = []
    about: list[Submission | None] = []
    for submission, decision in zip(message.submissions, decisions, strict=True):
        match decision:
            case Admit() | Wait() | Delay():
                admission.create(submission, decision, None)
                outcomes.append(Accepted(submission.id, False, submission.ended))
                about.append(submission)
            case Join(admitted):
                outcomes.append(admission.join_admitted(submission, admitted))
                about.append(admitted)
            case Coalesce():
                raise AssertionError("a run of a batch does not coalesce: this was checked before")
            case Refuse(error, taken_by):
                outcomes.append(error)
                about.append(taken_by)
            case Repeat(run, refuse):
                outcomes.append(refuse or admission.join(submission, run))
                about.append(admission.pending.get(run))
    return AnswerMany(message.reply, outcomes, about)
