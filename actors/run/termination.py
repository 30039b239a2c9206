"""How a run ends: by a cancel, a deadline, the engine's shutdown, or because it cannot be started.

If there is a body, it is requested to end, and a *verdict* records how the run continues afterwards
(`outcomes.py`). A body that does not end within its grace is abandoned, and the run ends without it. Every
end is committed by `end`. Files are deleted before that, by a background task (`background.py`); until then
the run is `ending` and needs no slot.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from functools import partial
from typing import Any, NoReturn

from ...persistence.store import Deaths, DeletionOwed, FilesDoomed, Memo
from ...protocol.errors import Conflict, NotInteractive, RunAbandoned
from ...protocol.events import Event
from ...protocol.fold import Projection
from ...protocol.records import RunRecord
from ...protocol.states import Status
from ..channel import Reply
from ..journal.change import Change, Outcome
from ..journal.messages import Look
from ..messages import Cancel, Evict, Forget, Reject, Stop
from . import background
from .body_messages import cancel_child
from .execution import Execution
from .state import End, RunState, Steps, Verdict
from .transitions import lose_body, move, note

logger = logging.getLogger("greenroom")


def cancel(run: RunState, message: Cancel) -> Steps:
    """Cancel the run: for a caller, a clear, a replacing run, or the parent."""
    status = run.status
    only_queued = message.reason in ("lane_cleared", "handle_cleared")
    if run.ended or status is Status.CANCELLING or (only_queued and status is not Status.QUEUED):
        _refuse_cancel(run, message)
    elif run.ending:
        run.late_cancels = (*run.late_cancels, message)
    elif run.execution is None:
        if message.files == "delete" and run.has_files:
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
            run.handle_again(message)
    elif not run.gate.interactive:
        run.no_retry = run.no_retry or message.reason in ("replaced", "parent_cancelled")
        message.reply.fail(
            NotInteractive(f"run {run.id} is in post-processing and cannot be cancelled: wait for its end")
        )
    else:
        yield from _cancel_body(run, message)


def _refuse_cancel(run: RunState, message: Cancel) -> None:
    id, status = run.id, run.status

    def refuse(committed: Projection) -> NoReturn:
        record = committed.runs.get(id)
        raise Conflict(f"run {id} is {status} and cannot be cancelled", run=record)

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
    if run.has_interrupts:
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
    """The engine shuts down: first the body has time to finish, then its execution is ended."""
    run.stopping = message
    resumable = run.submission.job.resumable
    if run.execution is None or run.verdict is not None or run.execution.continues:
        return
    waits = run.status is Status.SUSPENDED
    if not message.now and not resumable:
        yield from _refuse_interrupts(run)
    elif not message.now and not waits:
        return  # it executes and has time to finish
    elif resumable:
        _stop_body(run, Verdict(Status.SUSPENDED, "shutdown", "engine"))
    else:
        yield from _cancel_body(run, Cancel(run.id, "engine", "shutdown", "keep", Reply()))


def evict(run: RunState, message: Evict) -> Steps:
    """The run's executor exits: end the body. The run continues elsewhere, if its job is resumable, when the
    body has ended or the executor is lost."""
    if run.execution is None or run.verdict is not None:
        return
    if run.submission.job.resumable:
        _stop_body(run, Verdict(Status.SUSPENDED, "executor_drained", "engine"))
        run.timers.drop("abandon")
    else:
        yield from _cancel_body(run, Cancel(run.id, "engine", "shutdown", "keep", Reply()))


def _refuse_interrupts(run: RunState) -> Steps:
    refusal = {"approved": False, "reason": "shutdown"}
    events = run.closing("shutdown", refusal, "engine")
    if events:
        yield from note(run, *events)
        run.interrupts.refuse(refusal)


def suspend_for_shutdown(run: RunState, reason: str = "shutdown", *, enters_again: bool = False) -> Steps:
    """Commit that the run, whose body was stopped, continues at the engine's next start, or elsewhere
    (`enters_again`)."""
    yield from move(
        run,
        Status.SUSPENDED,
        live_body=False,
        reason=reason,
        waiting_for="slot",
        interactive=False,
        enters_again=enters_again,
    )


def reject(run: RunState, message: Reject) -> Steps:
    """Reject a queued run that can no longer be started."""
    yield from end(run, Status.REJECTED, reason="rejected", error=message.why)


def forget(run: RunState, message: Forget) -> None:
    """Forget a run that could not be stored."""
    run.status = Status.REJECTED
    run.timers.clear()


# Stopping a body.


def _stop_body(run: RunState, verdict: Verdict) -> None:
    """Request the body to end, and set the timers that enforce it."""
    execution = run.execution
    assert execution is not None, "only a live body can be stopped"
    run.verdict = verdict
    run.timers.clear()
    execution.request_cancel(resumes_later=verdict.to is Status.SUSPENDED)
    if verdict.to is not Status.SUSPENDED and run.host is not None:
        for child in run.host.children:
            run.effects.tell("supervisor", "", cancel_child(child))
    if run.resuming is not None:
        run.leave_lane()
        run.resume_body()
    enforce(run, execution)


def enforce(run: RunState, execution: Execution) -> None:
    """A body was requested to end: cancel its scope, and abandon it if it does not end, each at its time."""
    job, now = run.submission.job, run.now
    if job.cancel == "cooperative":
        run.timers.set("cancel_scope", now + job.grace)
        run.timers.set("abandon", now + 2 * job.grace)
    else:
        execution.stop()
        run.timers.set("abandon", now + job.grace)


def cancel_scope(run: RunState) -> None:
    """The grace of a cooperative body has expired: cancel its scope."""
    if run.execution is not None:
        run.execution.stop()


def abandon(run: RunState) -> None:
    """Abandon a body that has not ended within its grace: the run ends without it."""
    execution, verdict, submission = run.execution, run.verdict, run.submission
    assert execution is not None, "the timer is set for a body"
    assert verdict is not None, "the timer is set with a verdict"
    run.abandoned = True
    logger.error(
        "run %s of job %r on handle %r is abandoned: its body was requested to end (%s), did not end within "
        "its grace of %g s, and still executes",
        run.id,
        submission.job.name,
        submission.handle,
        verdict.reason,
        submission.job.grace,
    )
    why = "the body did not end within its grace and was abandoned"
    execution.close(why)
    run.live_bodies.abandoned(execution)
    if run.has_interrupts:
        run.interrupts.fail(RunAbandoned(f"run {run.id}: {why}"))
    run.ending = End(verdict.to, "abandoned", "engine", body_remains=True)
    discards = partial(_discard_parts, run, execution)
    background.add(run, discards, partial(_end_without_body, run, verdict))


async def _discard_parts(run: RunState, execution: Execution) -> None:
    try:
        await execution.discard_parts()
    except OSError:
        logger.exception("unfinished files of run %s could not be deleted", run.id)


def _end_without_body(run: RunState, verdict: Verdict, _: None) -> Steps:
    if run.host is not None and run.host.files:
        run.keep_files(run.host)
    if verdict.to is not Status.SUSPENDED:
        yield from end(run, verdict.to, reason="abandoned", body_remains=True)
        return
    if run.status is Status.RUNNING:
        yield from suspend_for_shutdown(run)
    else:
        yield from lose_body(run)
    yield from _no_longer_ending(run)


# The end.


_Unrecorded = tuple[tuple[Event, ...], tuple[Memo, ...]]


def end(
    run: RunState,
    to: Status,
    *,
    reason: str | None,
    by: str = "engine",
    result: Any = None,
    error: str | None = None,
    body_remains: bool = False,
    unrecorded: bool = False,
    reply: Reply[RunRecord | None] | None = None,
    gives_way: bool = False,
) -> Generator[Change, Outcome, bool]:
    """Commit the end of the run and answer all who wait for it; files are deleted first, if they must be.

    `unrecorded`: the body has not recorded the node that the end interrupted, so the end must. Returns false
    if the end `gives_way` to a start that was committed first; the caller must handle that start now.
    """
    ending = End(to, reason, by, result, error, body_remains, reply)
    deletes = run.files_doomed and to is not Status.SUCCEEDED and run.has_files
    special, unrecorded = run.submission.job.special, unrecorded or run.status is Status.SUSPENDED
    must_record = special is not None and run.execution is None and unrecorded
    if not (run.background or deletes or must_record):
        return _commit_end(run, ending, ((), ()), gives_way=gives_way)

    async def prepare() -> _Unrecorded:
        if deletes:
            await _delete_files(run)
        if special is None or not must_record:
            return (), ()
        return await special.ends_waiting(run.submission, to)

    run.ending = ending
    run.waits_for = None
    run.timers.clear()
    run.leave_lane()
    background.add(run, prepare, partial(_end_prepared, run, ending))
    return _end_later()


def _end_later() -> Generator[Change, Outcome, bool]:
    """The result of `end` if the end is committed later."""
    yield from ()
    return True


def _end_prepared(run: RunState, ending: End, unrecorded: _Unrecorded) -> Steps:
    yield from _commit_end(run, ending, unrecorded)


def _commit_end(
    run: RunState, ending: End, unrecorded: _Unrecorded, *, gives_way: bool = False
) -> Generator[Change, Outcome, bool]:
    events, memos = unrecorded
    if run.deaths:
        memos = (*memos, Deaths(run.id, 0))
    owed: tuple[DeletionOwed, ...] = ()
    if run.files_doomed and ending.to is not Status.SUCCEEDED and run.foreign_files:
        owed = _owed(run, run.foreign_files)
        memos = (*memos, *owed)
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
    stored = outcome.held or not run.submission.refused  # else the run does not exist
    assert outcome.held or not stored, f"run {run.id} could not become {ending.to} from {run.status}"
    if stored:
        for deletion in owed:
            run.services.executors.owe(deletion)
        run.forget_interrupts()
        run.timers.clear()
        for child in run.orphans:
            run.effects.tell("supervisor", "", cancel_child(child))
    if ending.reply is not None:
        ending.reply.set(outcome.run if stored else None)
    yield from _no_longer_ending(run)
    return True


def _owed(run: RunState, files: Mapping[str, tuple[str, ...]]) -> tuple[DeletionOwed, ...]:
    """The deletions that executors owe, for the files that they have."""
    handle = run.submission.handle
    return tuple(DeletionOwed(at, handle, run.id, paths) for at, paths in files.items())


def _no_longer_ending(run: RunState) -> Steps:
    run.ending = None
    if run.recovering:
        run.report_recovered()
    cancels, run.late_cancels = run.late_cancels, ()
    for message in cancels:
        yield from cancel(run, message)


async def _delete_files(run: RunState) -> None:
    try:
        await run.services.files.delete(run.submission.handle, run.files)
    except OSError:
        logger.exception("files of run %s could not all be deleted: %s", run.id, run.files)
