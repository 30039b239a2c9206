"""How a run is ended: by a user, by a deadline, by the engine's own end, or because it can't be started.

Where there is a body, it is told to end, and a *verdict* says how the run goes on when it has
(`outcomes.py`). A body that doesn't end in its grace is abandoned, and the run ends without it. Every way to
the end comes through `end`. Files are deleted before the end is committed, by an errand (`errands.py`); until
then the run is `ending`, and has no use for a slot.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from functools import partial
from typing import Any, NoReturn

from ...persistence.store import Deaths, FilesDoomed, Memo
from ...protocol.errors import Conflict, NotInteractive, RunAbandoned
from ...protocol.events import Event
from ...protocol.fold import Projection
from ...protocol.records import RunRecord
from ...protocol.states import Status
from ..channel import Reply
from ..journal.change import Change, Outcome
from ..journal.messages import Look
from ..messages import Cancel, Forget, Reject, Stop
from . import errands
from .body_messages import cancel_child
from .context import Body
from .state import End, RunState, Steps, Verdict
from .transitions import lose_body, move, note

logger = logging.getLogger("greenroom")


def cancel(run: RunState, message: Cancel) -> Steps:
    """A user, a clear, a replacing run or a parent cancels the run."""
    status = run.status
    only_queued = message.reason in ("lane_cleared", "handle_cleared")
    if run.ended or status is Status.CANCELLING or (only_queued and status is not Status.QUEUED):
        _refuse_cancel(run, message)
    elif run.ending:
        run.late_cancels = (*run.late_cancels, message)
    elif run.execution is None:
        if message.files == "delete" and run.files:
            run.files_doomed = True
            yield from note(run, memos=(FilesDoomed(run.id),))
        ended = yield from end(
            run,
            Status.CANCELLED,
            reason=message.reason,
            by=message.by,
            reply=message.reply,
            gives_way=True,
        )
        if not ended:
            run.again(message)
    elif not run.gate.interactive:
        run.unwanted = run.unwanted or message.reason in ("replaced", "parent_cancelled")
        message.reply.fail(NotInteractive(f"run {run.id} is in post-processing: it ends by itself"))
    else:
        yield from _cancel_body(run, message)


def _refuse_cancel(run: RunState, message: Cancel) -> None:
    id, status = run.id, run.status

    def refuse(committed: Projection) -> NoReturn:
        record = committed.runs.get(id)
        raise Conflict(f"run {id} is {status} and can't be cancelled", run=record)

    run.effects.tell("journal", "", Look(refuse, message.reply))


def _cancel_body(run: RunState, message: Cancel) -> Steps:
    why = "shutdown" if message.reason == "shutdown" else "cancelled"
    refusal = {"approved": False, "reason": why}
    memos: tuple[Memo, ...] = ()
    if message.files == "delete":
        memos = (FilesDoomed(run.id),)
        run.files_doomed = True
    outcome = yield from move(
        run,
        Status.CANCELLING,
        *run.closing(why, refusal, message.by),
        live_body=True,
        reason=message.reason,
        by=message.by,
        memos=memos,
    )
    if run.asks:
        run.interrupts.refuse(refusal)
    if run.verdict is None or run.verdict.to is Status.SUSPENDED:
        _stop_body(run, Verdict(Status.CANCELLED, message.reason, message.by))
    message.reply.set(outcome.run)


def expire(run: RunState, reason: str) -> Steps:
    """A deadline has passed."""
    if run.execution is None:
        ended = yield from end(run, Status.TIMED_OUT, reason=reason, gives_way=True)
        if not ended and reason == "deadline":
            run.timers.set("deadline", run.now)
    elif run.verdict is None:
        _stop_body(run, Verdict(Status.TIMED_OUT, reason, "engine"))


def stop(run: RunState, message: Stop) -> Steps:
    """The engine is being left: first a word to finish, then the end of this execution."""
    run.stopping = message
    resumable = run.submission.job.resumable
    if run.execution is None or run.verdict is not None:
        return
    waits = run.status is Status.SUSPENDED
    if not message.now and not resumable:
        yield from _refuse_interrupts(run)
    elif not message.now and not waits:
        return  # it executes, and has some time to finish
    elif resumable:
        _stop_body(run, Verdict(Status.SUSPENDED, "shutdown", "engine"))
    else:
        yield from _cancel_body(run, Cancel(run.id, "engine", "shutdown", "keep", Reply()))


def _refuse_interrupts(run: RunState) -> Steps:
    refusal = {"approved": False, "reason": "shutdown"}
    events = run.closing("shutdown", refusal, "engine")
    if events:
        yield from note(run, *events)
        run.interrupts.refuse(refusal)


def suspend_for_shutdown(run: RunState) -> Steps:
    """Commit that the run, whose body was stopped, goes on at the engine's next start."""
    yield from move(
        run, Status.SUSPENDED, live_body=False, reason="shutdown", waiting_for="slot", interactive=False
    )


def reject(run: RunState, message: Reject) -> Steps:
    """The run is queued, and can't be started any more."""
    yield from end(run, Status.REJECTED, reason="rejected", error=message.why)


def forget(run: RunState, message: Forget) -> None:
    """The run could not be stored: there is nothing to end."""
    run.status = Status.REJECTED
    run.timers.clear()


# A body that is told to end.


def _stop_body(run: RunState, verdict: Verdict) -> None:
    """Tell the body to end, for good."""
    execution, job, now = run.execution, run.submission.job, run.now
    assert execution is not None, "only a live body can be stopped"
    body = execution.body
    run.verdict = verdict
    run.timers.clear()
    body.request_cancel()
    if verdict.to is Status.SUSPENDED:
        body.go_on_later()
    else:
        for child in body.children:
            run.effects.tell("supervisor", "", cancel_child(child))
    if run.resuming is not None:
        run.leave_lane()
        run.go_on()
    if job.cancel == "cooperative":
        run.timers.set("cancel_scope", now + job.grace)
        run.timers.set("abandon", now + 2 * job.grace)
    else:
        execution.scope.cancel()
        run.timers.set("abandon", now + job.grace)


def cancel_scope(run: RunState) -> None:
    """The body has not seen in its grace that it should end."""
    if run.execution is not None:
        run.execution.scope.cancel()


def abandon(run: RunState) -> None:
    """The body has ignored its end for too long: the run ends without it."""
    execution, verdict, submission = run.execution, run.verdict, run.submission
    assert execution is not None, "the timer is set for a body"
    assert verdict is not None, "the timer is set with a verdict"
    run.abandoned = True
    logger.error(
        "run %s of job %r on handle %r ignored its end (%s) for %g s and is abandoned; "
        "its body still executes",
        run.id,
        submission.job.name,
        submission.handle,
        verdict.reason,
        submission.job.grace,
    )
    why = "it ignored its end for too long and was abandoned"
    execution.body.close(why)
    run.live_bodies.abandoned(execution)
    if run.asks:
        run.interrupts.fail(RunAbandoned(f"run {run.id}: {why}"))
    run.ending = End(verdict.to, "abandoned", "engine", body_remains=True)
    discards = partial(_discard_parts, run, execution.body)
    errands.send(run, discards, partial(_end_without_body, run, verdict))


async def _discard_parts(run: RunState, body: Body) -> None:
    try:
        await body.discard_parts()
    except OSError:
        logger.exception("run %s left unfinished files that could not be deleted", run.id)


def _end_without_body(run: RunState, verdict: Verdict, _: None) -> Steps:
    if run.execution is not None:
        run.files = (*run.files, *run.execution.body.finished_files)
    if verdict.to is not Status.SUSPENDED:
        yield from end(run, verdict.to, reason="abandoned", body_remains=True)
        return
    if run.status is Status.RUNNING:
        yield from suspend_for_shutdown(run)
    else:
        yield from lose_body(run)
    yield from _no_longer_ending(run)


# The end.


_Unsaid = tuple[tuple[Event, ...], tuple[Memo, ...]]


def end(
    run: RunState,
    to: Status,
    *,
    reason: str | None,
    by: str = "engine",
    result: Any = None,
    error: str | None = None,
    body_remains: bool = False,
    unsaid: bool = False,
    reply: Reply[RunRecord | None] | None = None,
    gives_way: bool = False,
) -> Generator[Change, Outcome, bool]:
    """Commit the end, and let everyone go who waits for it: at once, or when the files that are to be deleted
    are gone. It is `unsaid` where that reached its body, if that has not written it down. False if the end
    `gives_way` to a start, which is to be handled now."""
    ending = End(to, reason, by, result, error, body_remains, reply)
    deletes = run.files_doomed and to is not Status.SUCCEEDED and bool(run.files)
    special, unsaid = run.submission.job.special, unsaid or run.status is Status.SUSPENDED
    writes_down = special is not None and run.execution is None and unsaid
    if not (run.errands or deletes or writes_down):
        return _commit_end(run, ending, ((), ()), gives_way=gives_way)

    async def prepare() -> _Unsaid:
        if deletes:
            await _delete_files(run)
        if special is None or not writes_down:
            return (), ()
        return await special.ends_waiting(run.submission, to)

    run.ending = ending
    run.waits_for = None
    run.timers.clear()
    run.leave_lane()
    errands.send(run, prepare, partial(_end_prepared, run, ending))
    return _follows()


def _follows() -> Generator[Change, Outcome, bool]:
    """The end follows later, and nothing is committed before."""
    yield from ()
    return True


def _end_prepared(run: RunState, ending: End, unsaid: _Unsaid) -> Steps:
    yield from _commit_end(run, ending, unsaid)


def _commit_end(
    run: RunState, ending: End, unsaid: _Unsaid, *, gives_way: bool = False
) -> Generator[Change, Outcome, bool]:
    events, memos = unsaid
    if run.deaths:
        memos = (*memos, Deaths(run.id, 0))
    outcome = yield from move(
        run,
        ending.to,
        *run.closing("ended", None, ending.by),
        *events,
        live_body=run.execution is not None,
        reason=ending.reason,
        by=ending.by,
        result=ending.result,
        error=ending.error,
        holds_handle=ending.body_remains and run.execution is not None,
        memos=memos,
        gives_way=gives_way,
    )
    if gives_way and not outcome.held and not run.submission.refused:
        return False
    stored = outcome.held or not run.submission.refused  # else there is nothing to end
    assert outcome.held or not stored, f"run {run.id} could not become {ending.to} from {run.status}"
    if stored:
        run.forget_interrupts()
        run.timers.clear()
        for child in run.orphans:
            run.effects.tell("supervisor", "", cancel_child(child))
    if ending.reply is not None:
        ending.reply.set(outcome.run if stored else None)
    yield from _no_longer_ending(run)
    return True


def _no_longer_ending(run: RunState) -> Steps:
    run.ending = None
    if run.recovering:
        run.recovered()
    cancels, run.late_cancels = run.late_cancels, ()
    for message in cancels:
        yield from cancel(run, message)


async def _delete_files(run: RunState) -> None:
    try:
        await run.services.files.delete(run.submission.handle, run.files)
    except OSError:
        logger.exception("run %s could not delete all of its files %s", run.id, run.files)
