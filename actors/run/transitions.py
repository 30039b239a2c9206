"""The changes of one run: transitions, and events without a transition.

Only the run's machine decides how the run ends, and only the supervisor decides that it starts. So a
transition can conflict only with a start that was decided at the same time. The machine then either gives
way to the start and handles the message again, or it records the start, executes nothing, and makes the
transition from `running`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from msgspec.structs import replace

from ...persistence.store import Memo
from ...protocol.events import Event, RunChanged, RunStateChanged
from ...protocol.states import ENDED, Status, allowed_from
from ..actor import Kind
from ..journal.change import REPORTING, Change, Outcome
from ..messages import Cancelling, Ended, Enter, Left, Started
from .state import RunState, Steps

Moves = Generator[Change, Outcome, Outcome]


def move(
    run: RunState,
    to: Status,
    *before: Event,
    live_body: bool,
    reason: str | None,
    by: str = "engine",
    waiting_for: str | None = None,
    interactive: bool | None = None,
    result: Any = None,
    error: str | None = None,
    retry_after: float | None = None,
    holds_handle: bool = False,
    memos: tuple[Memo, ...] = (),
    enters_again: bool = False,
    gives_way: bool = False,
) -> Moves:
    """Commit a transition together with the events `before` it, and notify the supervisor.

    `enters_again`: the run is queued in its lane before its slot is granted to another run. `gives_way`: if
    a start was decided at the same time, the transition is not made.
    """
    submission = run.submission
    ends = to in ENDED
    while True:
        notify = _notifications(run, to, enters_again, live_body and to is Status.SUSPENDED)
        if run.generation is not None and to is not Status.CANCELLING:
            # Release the slot now: the next run can then be started by the same commit.
            run.generation = None
            for kind, name, message in notify:
                run.effects.tell(kind, name, message)
            notify = ()
        event = RunStateChanged(
            seq=0,
            at=0,
            by=by,
            run=submission.id,
            handle=submission.handle,
            lane=submission.lane,
            from_=run.status,
            to=to,
            attempt=run.attempt,
            reason=reason,
            place=submission.place,
            waiting_for=waiting_for,
            interactive=interactive,
            result=result,
            error=error,
        )
        if holds_handle:  # rare: Python builds a dict for a call with more than 15 keywords
            event = replace(event, holds_handle=True)
        if retry_after is not None:
            event = replace(event, retry_after=retry_after)
        outcome = yield Change(
            (*before, event),
            run=submission.id,
            expect=allowed_from(to, live_body=live_body),
            memos=memos,
            notify=notify,
            ended=Ended(run.id, holds_handle) if ends else None,
            submission=submission if ends else None,
            notify_run=True,
        )
        if outcome.held:
            if to is not Status.CANCELLING:
                run.waiting_for = waiting_for
            run.status = to
            return outcome
        if not _was_started(run, remove=not gives_way) or gives_way:
            return outcome
        if Status.RUNNING not in allowed_from(to, live_body=live_body):  # it started and is being cancelled
            yield from move(run, Status.CANCELLING, live_body=True, reason=reason, by=by)


def note(run: RunState, *events: Event, memos: tuple[Memo, ...] = ()) -> Moves:
    """Commit events without a transition."""
    outcome = yield Change(events, run=run.id, expect=REPORTING, memos=memos, notify_run=True)
    return outcome


def changed(run: RunState, **flags: bool) -> RunChanged:
    """The event for a change of the run's flags."""
    return RunChanged(by="body", **(run.submission.about() | flags))


def lose_body(
    run: RunState, *before: Event, awaits_message: bool = False, memos: tuple[Memo, ...] = ()
) -> Steps:
    """Commit that a waiting run no longer has a body. It accepts messages only if it waits for one."""
    event = changed(run, interactive=awaits_message, streaming=False, compacting=False)
    terms = run.submission.terms
    if not terms.bodiless:
        memos = (run.wakes_at(run.waits_until, terms.waits, bodiless=True), *memos)
    yield from note(run, *before, event, memos=memos)


def _was_started(run: RunState, *, remove: bool) -> bool:
    """Whether the run was started in the meantime: `Started` arrives before the refusal of the change."""
    for number, message in enumerate(run.deferred or ()):
        if type(message) is Started:
            assert run.deferred is not None, "the loop has found a message in it"
            if remove:
                del run.deferred[number]
                run.take_slot(message)
            return True
    return False


def _notifications(
    run: RunState, to: Status, enters_again: bool, waits: bool
) -> tuple[tuple[Kind, str, object], ...]:
    """The messages that the supervisor must receive before the change is visible to others."""
    id = run.id
    if to is Status.CANCELLING and run.status is Status.RUNNING:
        return (("supervisor", "", Cancelling(id)),)  # the body keeps its slot until it has ended
    if to in ENDED and run.generation is None:
        return ()  # the journal reports the end to the supervisor
    left: tuple[Kind, str, object] = ("supervisor", "", Left(id, run.generation, body_waits=waits))
    if to is Status.CANCELLING:
        return (left, ("supervisor", "", Cancelling(id)))
    if enters_again:
        return (left, ("supervisor", "", Enter(id, run.next_attempt)))
    return (left,)
