"""What the supervisor tells the journal of runs that get a slot, or only lack an executor."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from msgspec.structs import replace

from ...persistence.store import BucketsFull, Memo, TokenTaken, WakesAt
from ...protocol.events import RunChanged, RunStateChanged
from ...protocol.states import Status, allowed_from
from ..actor import Kind
from ..journal.change import Change
from ..messages import Begun, NotStarted, Started, Submission
from .executor_pool import IN_PROCESS, Demand, ExecutorPool
from .order import Slot

_QUEUED = frozenset({Status.QUEUED})
_SUSPENDED = frozenset({Status.SUSPENDED})
_STARTS_FROM = allowed_from(Status.RUNNING)


def start_of(submission: Submission, slot: Slot, clock: Callable[[], float]) -> Change:
    """The change that starts a run. The journal refuses it if the run has ended in the meantime."""
    generation = slot.generation
    resumes, attempt = submission.body_waits, submission.next_attempt
    event = RunStateChanged(
        seq=0,
        at=0,
        by="engine",
        run=submission.id,
        handle=submission.handle,
        lane=submission.lane,
        from_=Status.SUSPENDED if submission.begun else Status.QUEUED,
        to=Status.RUNNING,
        attempt=attempt,
        reason=None,
        place=submission.place,
        interactive=None if resumes else True,
        executor=None if resumes else slot.executor,
    )
    submission.begun = True
    taken = slot.taken
    memos: tuple[Memo, ...] = ()
    notify: tuple[tuple[Kind, str, object], ...] = (
        ("run", submission.id, Started(attempt, generation, resumes, event)),
    )
    if taken is not None:
        memos = (TokenTaken(taken.lane, taken.key, clock() + taken.full_in),)
        if taken.full:
            memos = (*memos, BucketsFull(taken.lane, taken.full))
        notify = (*notify, ("supervisor", "", Begun(submission.id)))
    return Change(
        (event,),
        run=submission.id,
        expect=_STARTS_FROM,
        generation=generation,
        memos=memos,
        notify=notify,
        notify_on_refusal=(("supervisor", "", NotStarted(submission.id, generation)),),
    )


def blocked(submission: Submission) -> Change:
    """A run only lacks an executor. That is reported once, and remains reported until the run starts or
    waits for something else.

    For a suspended run, `waiting_for` then no longer shows whether it has a body, so this is stored, too.
    """
    memos: tuple[Memo, ...] = ()
    if submission.begun and submission.terms.bodiless == submission.body_waits:
        submission.terms = replace(submission.terms, bodiless=not submission.body_waits)
        memos = (WakesAt(submission.id, None, submission.terms),)
    event = RunChanged(by="engine", waiting_for="executor", **submission.about())
    expect = _SUSPENDED if submission.begun else _QUEUED
    return Change((event,), run=submission.id, expect=expect, memos=memos)


def demand_of(submission: Submission, pool: ExecutorPool) -> Demand:
    """What a run needs of an executor."""
    if submission.body_waits:
        return Demand(at=pool.body_of(submission.id))
    if submission.job.special is not None:
        return IN_PROCESS
    return _demand(submission.job.name, submission.needs)


@lru_cache(1000)
def _demand(job: str, needs: tuple[str, ...]) -> Demand:
    """The demand of a new body. It is cached because nearly all runs of a job have the same one."""
    return Demand(job, needs)
