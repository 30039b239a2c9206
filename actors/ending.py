"""How a run is ended: by a user, by a deadline, by the engine's own end, or because it can't be started.

Where there is a body, it is told to end, and a *verdict* says how the run goes on when it has
(`outcomes.py`). A body that doesn't end in its grace is abandoned, and the run ends without it. Every way to
the end comes through `end`.
"""

from __future__ import annotations

import logging
from typing import Any

import trio

from ..persistence.store import FilesDoomed, Memo
from ..protocol.errors import Conflict, NotInteractive, RunAbandoned
from ..protocol.events import Event
from ..protocol.records import RunRecord
from ..protocol.states import Status
from .actor import Reply
from .bodymessages import cancel_child
from .messages import Cancel, Forget, Reject, Stop
from .runstate import RunState, Verdict

logger = logging.getLogger("greenroom")


async def cancel(run: RunState, message: Cancel) -> None:
    """A user, a clear, a replacing run or a parent cancels the run."""
    status = run.ledger.status
    only_queued = message.reason in ("lane_cleared", "handle_cleared")
    if run.ledger.ended or status is Status.CANCELLING or (only_queued and status is not Status.QUEUED):
        message.reply.fail(await _cannot_cancel(run))
    elif run.execution is None:
        if message.files == "delete" and run.files:
            run.files_doomed = True
            await run.ledger.note(memos=(FilesDoomed(run.id),))
        message.reply.set(await end(run, Status.CANCELLED, reason=message.reason, by=message.by))
    elif not run.doorstep.interactive:
        run.unwanted = run.unwanted or message.reason in ("replaced", "parent_cancelled")
        message.reply.fail(NotInteractive(f"run {run.id} is in post-processing: it ends by itself"))
    else:
        await _cancel_body(run, message)


async def _cannot_cancel(run: RunState) -> Conflict:
    id = run.id
    record = await run.journal.look(lambda committed: committed.runs.get(id))
    return Conflict(f"run {id} is {run.ledger.status} and can't be cancelled", run=record)


async def _cancel_body(run: RunState, message: Cancel) -> None:
    why = "shutdown" if message.reason == "shutdown" else "cancelled"
    refusal = {"approved": False, "reason": why}
    memos: tuple[Memo, ...] = ()
    if message.files == "delete":
        memos = (FilesDoomed(run.id),)
        run.files_doomed = True
    outcome = await run.ledger.move(
        Status.CANCELLING,
        *run.questions.closing(why, refusal, message.by),
        live_body=True,
        reason=message.reason,
        by=message.by,
        memos=memos,
    )
    run.questions.refuse(refusal)
    if run.verdict is None or run.verdict.to is Status.SUSPENDED:
        _stop_body(run, Verdict(Status.CANCELLED, message.reason, message.by))
    message.reply.set(outcome.run)


async def expire(run: RunState, reason: str) -> None:
    """A deadline has passed."""
    if run.execution is None:
        await end(run, Status.TIMED_OUT, reason=reason)
    elif run.verdict is None:
        _stop_body(run, Verdict(Status.TIMED_OUT, reason, "engine"))


async def stop(run: RunState, message: Stop) -> None:
    """The engine is being left: first a word to finish, then the end of this execution."""
    run.stopping = message
    resumable = run.submission.job.resumable
    if run.execution is None or run.verdict is not None:
        return
    waits = run.ledger.status is Status.SUSPENDED
    if not message.now and not resumable:
        await _refuse_questions(run)
    elif not message.now and not waits:
        return  # it executes, and has some time to finish
    elif resumable:
        _stop_body(run, Verdict(Status.SUSPENDED, "shutdown", "engine"))
    else:
        await _cancel_body(run, Cancel(run.id, "engine", "shutdown", "keep", Reply()))


async def _refuse_questions(run: RunState) -> None:
    refusal = {"approved": False, "reason": "shutdown"}
    events = run.questions.closing("shutdown", refusal, "engine")
    if events:
        await run.ledger.note(*events)
        run.questions.refuse(refusal)


async def suspend_for_shutdown(run: RunState) -> None:
    """Commit that the run, whose body was stopped, goes on at the engine's next start."""
    await run.ledger.move(
        Status.SUSPENDED, live_body=False, reason="shutdown", waiting_for="slot", interactive=False
    )


async def reject(run: RunState, message: Reject) -> None:
    """The run is queued, and can't be started any more."""
    await end(run, Status.REJECTED, reason="rejected", error=message.why)


async def forget(run: RunState, message: Forget) -> None:
    """The run could not be stored: there is nothing to end."""
    run.ledger.status = Status.REJECTED
    run.timers.clear()


# A body that is told to end.


def _stop_body(run: RunState, verdict: Verdict) -> None:
    """Tell the body to end, for good."""
    execution, job, now = run.execution, run.submission.job, trio.current_time()
    assert execution is not None, "only a live body can be stopped"
    body = execution.run
    run.verdict = verdict
    run.timers.clear()
    body.request_cancel()
    if verdict.to is Status.SUSPENDED:
        body.go_on_later()
    else:
        for child in body.children:
            run.delivery.tell("supervisor", "", cancel_child(child))
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


async def abandon(run: RunState) -> None:
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
    execution.run.close(why)
    run.live_bodies.abandoned(execution)
    run.questions.fail(RunAbandoned(f"run {run.id}: {why}"))
    try:
        await execution.run.discard_parts()
    except OSError:
        logger.exception("run %s left unfinished files that could not be deleted", run.id)
    run.files = (*run.files, *execution.run.finished_files)
    if verdict.to is not Status.SUSPENDED:
        await end(run, verdict.to, reason="abandoned", body_remains=True)
    elif run.ledger.status is Status.RUNNING:
        await suspend_for_shutdown(run)


# The end.


async def end(
    run: RunState,
    to: Status,
    *,
    reason: str | None,
    by: str = "engine",
    result: Any = None,
    error: str | None = None,
    body_remains: bool = False,
    unsaid: bool = False,
) -> RunRecord | None:
    """Commit the end, and let everyone go who waits for it. `None` for a run that could not be stored. It is
    `unsaid` where that reached its body, if that has not written it down."""
    if run.files_doomed and to is not Status.SUCCEEDED:
        await _delete_files(run)
    events, memos = await _left_unsaid(run, to, unsaid)
    outcome = await run.ledger.move(
        to,
        *run.questions.closing("ended", None, by),
        *events,
        live_body=run.execution is not None,
        reason=reason,
        by=by,
        result=result,
        error=error,
        holds_handle=body_remains,
        memos=memos,
    )
    if not outcome.held and run.submission.refused:
        return None  # it could not be stored: there is nothing to end
    assert outcome.held, f"run {run.id} could not become {to} from {run.ledger.status}"
    run.questions.forget()
    run.timers.clear()
    for child in run.orphans:
        run.delivery.tell("supervisor", "", cancel_child(child))
    return outcome.run


async def _left_unsaid(run: RunState, to: Status, unsaid: bool) -> tuple[tuple[Event, ...], tuple[Memo, ...]]:
    special = run.submission.job.special
    unsaid = unsaid or run.ledger.status is Status.SUSPENDED
    if special is None or run.execution is not None or not unsaid:
        return (), ()
    return await special.ends_waiting(run.submission, to)


async def _delete_files(run: RunState) -> None:
    try:
        await run.services.files.delete(run.submission.handle, run.files)
    except OSError:
        logger.exception("run %s could not delete all of its files %s", run.id, run.files)
