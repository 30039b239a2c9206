"""Restore a run after a restart: its state, whether it may continue, and what it waits for.

Its last body ended with the process, or because the engine lost its lease; both are handled the same way. If
the job may continue, the run waits for the condition that this body waited for, and then requests a slot for
a new body. Otherwise the run ends.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

import msgspec

from ...persistence.store import Deaths, FileGivenUp, Memo, StoredRun
from ...protocol.events import RunChanged
from ...protocol.states import Status
from ..actor import TellWhenSet
from ..channel import Countdown
from ..engine.recovery import holds_slot
from ..executors.remote_execution import RemoteExecution
from ..jobs import unknown_job
from ..journal.change import Change
from ..journal.messages import WatchEnd
from ..messages import ExecutorUnfit, Recover, Suspect
from ..scheduling.stored_bodies import is_child, never_began
from ..scheduling.trials import MOST_DEATHS
from . import background
from .body_messages import Lost, Unfit
from .local_host import LocalHost
from .pause import Message, Pause, Signal, matches
from .state import RunState, Steps, Verdict
from .termination import end, enforce
from .transitions import lose_body, move, note

logger = logging.getLogger("greenroom")

_DETACH_AFTER = 0.5
"""Seconds for which starts wait while a run that a restart ends deletes its files."""

_MAX_WAITING_SIGNALS = 100
"""The number of unrelated signals after which a run that waits for a signal gets a body to take them."""


class ChildrenEnded(msgspec.Struct, gc=False):
    """From the journal to a run's actor: the child runs that its last body waited for have ended."""


def restore(run: RunState, stored: StoredRun) -> None:
    """Restore the state that the run had when the engine ended, except for its body."""
    record = stored.record
    run.status, run.attempt, run.waiting_for = record.status, record.attempt, record.waiting_for
    interrupted = record.attempt and record.reason != "retry" and run.submission.job.resumable
    if interrupted or never_began(record):
        run.next_attempt = record.attempt  # this attempt does not count
    else:
        run.next_attempt = record.attempt + 1
    if stored.interrupts:
        run.interrupts.restore(stored.interrupts, run.now)
    run.deaths, run.waits_until = stored.deaths, stored.wakes_at
    run.files, run.files_doomed = stored.files, stored.files_doomed
    run.foreign_files = {folder: tuple(paths) for folder, paths in stored.foreign_files.items()} or None
    run.gate.waiting = tuple(seq for seq, _ in stored.messages)
    if run.submission.job.special is None:
        run.inbox = [Message(seq, message) for seq, message in stored.messages]
    else:
        run.inbox = [Signal(seq, signal["key"], signal["value"]) for seq, signal in stored.messages]
    if run.status is not Status.QUEUED:
        run.timers.drop("queue_timeout")


def recover(run: RunState, message: Recover) -> Steps:
    """Recover a run that had begun: it continues if its job allows it, else it ends.

    Unfinished files of the last body are deleted before the next body starts, or before the run ends.
    """
    if message.awaits_executor:
        await_executor(run, message)
        return
    background.add(run, partial(_remove_unfinished_files, run), partial(_keep_finished_files, run))
    yield from _continue_or_end(run, message)
    stored = run.submission.stored
    if run.ending and stored is not None and holds_slot(stored.record):
        run.recovering = True
        run.timers.set("detach", run.now + _DETACH_AFTER)
    else:
        run.report_recovered()


def detach(run: RunState) -> Steps:
    """The run's files are still being deleted: detach the run, so that other runs can start."""
    if run.recovering:
        yield from note(run, RunChanged(by="engine", detached=True, **run.submission.about()))
        run.report_recovered()


def _continue_or_end(run: RunState, message: Recover) -> Steps:
    stored, job = run.submission.stored, run.submission.job
    assert stored is not None, "only a run that was stored can be recovered"
    record = stored.record
    may_continue = job.resumable or record.attempt < job.max_attempts or never_began(record)
    if run.status is Status.CANCELLING or run.files_doomed:
        run.orphans = message.children
        if run.status is Status.RUNNING:  # a start was committed before the cancel
            yield from move(run, Status.CANCELLING, live_body=False, reason=record.reason)
        yield from end(run, Status.CANCELLED, reason=record.reason)
    elif run.status is Status.SUSPENDED and not job.registered:
        yield from end(run, Status.REJECTED, reason="unknown_job", error=unknown_job(job.name))
    elif not may_continue or not job.registered:
        did = "waited in its body" if run.status is Status.SUSPENDED else "executed"
        why = unknown_job(job.name) if not job.registered else f"the process ended while the run {did}"
        yield from end(run, Status.FAILED, reason="crashed", error=why)
    elif message.deaths >= MOST_DEATHS:
        why = f"the process died {message.deaths} times while the run executed"
        yield from end(run, Status.FAILED, reason="killed", error=why)
    elif run.status is Status.RUNNING:
        run.deaths, run.orphans = message.deaths, message.children
        yield from move(
            run,
            Status.SUSPENDED,
            *run.closing("ended", None, "engine"),
            live_body=False,
            reason="recovered",
            waiting_for="slot",
            interactive=False,
            memos=(Deaths(run.id, message.deaths),),
        )
        run.forget_interrupts()
        run.ask_for_slot()
    else:
        memos: tuple[Memo, ...] = ()
        if message.deaths:
            run.deaths, memos = message.deaths, (Deaths(run.id, message.deaths),)
        yield from without_body(run, record.waiting_for, memos)
        _resume_wait(run, record.waiting_for, stored.wakes_at, message.children)


def without_body(run: RunState, waiting_for: str | None, memos: tuple[Memo, ...] = ()) -> Steps:
    """The run continues to wait without its body; it accepts messages if it waits for one."""
    awaits_message = waiting_for == "message"
    yield from lose_body(run, awaits_message=awaits_message, memos=memos)
    run.gate.awaited = awaits_message


def lapsed(run: RunState, children: Sequence[str], *, in_lane: bool) -> Steps:
    """The body was ended because the engine lost its lease, while it waited for these child runs. `in_lane`:
    the run was queued for a slot."""
    run.lapsed = True
    why = "the engine lost its lease on the store while the run executed"
    yield from _lose_body(run, "lease_lost", "lease_lost", why, (), children, in_lane=in_lane)


def executor_lost(run: RunState, lost: Lost, children: Sequence[str], *, in_lane: bool) -> Steps:
    """The executor has lost the body, or is lost itself: the run continues as after a crash. If its process
    has died, that counts against the run."""
    run.lapsed = True
    _keep_deadline(run)
    if run.executor is not None and is_child(run.executor):  # it wrote to the engine's own data folder
        background.add(run, partial(_remove_unfinished_files, run), partial(_keep_finished_files, run))
    memos: tuple[Memo, ...] = ()
    if lost.died:
        run.deaths += 1
        memos = (Deaths(run.id, run.deaths),)
        if run.deaths >= MOST_DEATHS:
            why = f"{run.deaths} processes died while they executed the run"
            yield from end(run, Status.FAILED, reason="killed", error=why)
            return
        run.effects.tell("supervisor", "", Suspect(run.id, run.deaths))
    suspended, failed = ("body_lost", "body_lost") if lost.forgotten else ("executor_lost", "crashed")
    yield from _lose_body(run, suspended, failed, lost.why, memos, children, in_lane=in_lane)


def _lose_body(
    run: RunState,
    suspended: str,
    failed: str,
    why: str,
    memos: tuple[Memo, ...],
    children: Sequence[str],
    *,
    in_lane: bool,
) -> Steps:
    """The body ended without a result: the run continues with a new body, or fails. `suspended` and `failed`
    are the reasons."""
    job = run.submission.job
    run.orphans = children
    run.timers.drop("run_timeout")
    run.run_clock.reset()
    run.next_attempt = run.attempt if job.resumable else run.attempt + 1
    if not job.resumable and run.attempt >= job.max_attempts:
        yield from end(run, Status.FAILED, reason=failed, error=why)
    elif run.status is Status.RUNNING:
        yield from move(
            run,
            Status.SUSPENDED,
            *run.closing("ended", None, "engine"),
            live_body=False,
            reason=suspended,
            waiting_for="slot",
            interactive=False,
            enters_again=True,
            memos=memos,
        )
        run.forget_interrupts()
    else:
        if run.has_interrupts:
            run.interrupts.body_ended()
        yield from without_body(run, None if in_lane else run.waiting_for, memos)
        if in_lane:
            run.ask_for_slot()
        else:
            _resume_wait(run, run.waiting_for, run.waits_until, list(children))


def refused(run: RunState, unfit: Unfit) -> Steps:
    """The executor cannot execute the body: the run continues at another one. If only executors have the job,
    the run ends: the engine could not check its parameters."""
    job, executor = run.submission.job, run.executor
    assert executor is not None, "only an executor refuses a body"
    if job.terms is not None:
        yield from end(run, Status.FAILED, reason="rejected", error=unfit.why)
        return
    run.effects.tell("supervisor", "", ExecutorUnfit(executor, job.name, unfit.why))
    yield from begin_elsewhere(run, "executor_refused")


def begin_elsewhere(run: RunState, reason: str) -> Steps:
    """The body never began: the run continues at another executor, or at the same one later."""
    run.timers.drop("run_timeout")
    run.run_clock.reset()
    run.next_attempt = run.attempt
    yield from move(
        run,
        Status.SUSPENDED,
        *run.closing("ended", None, "engine"),
        live_body=False,
        reason=reason,
        waiting_for="slot",
        interactive=False,
        enters_again=True,
    )
    run.forget_interrupts()


def _keep_deadline(run: RunState) -> None:
    """Set the timer of the deadline again: it was dropped when the body was requested to end."""
    deadline = run.submission.terms.deadline
    if deadline is not None:
        run.timers.set("deadline", run.submission.created_at + deadline)


def continue_elsewhere(run: RunState, *, queued: bool) -> None:
    """The body was stopped because its executor exits: request a slot for a new body, unless the run is
    `queued`."""
    run.verdict = None
    run.lapsed = True
    _keep_deadline(run)
    if run.status is Status.SUSPENDED and run.waiting_for not in (None, "slot"):
        _resume_wait(run, run.waiting_for, run.waits_until, [])
    elif not queued:
        run.ask_for_slot()


def await_executor(run: RunState, message: Recover) -> None:
    """The engine has restarted, and the run's body can still execute: wait for its executor."""
    stored, submission = run.submission.stored, run.submission
    assert stored is not None, "only a run that was stored can be recovered"
    record = stored.record
    assert record.executor is not None, "its body executes in an executor"
    run.generation = message.generation
    run.next_attempt = run.attempt  # the body continues
    run.executor, run.fence = record.executor, record.fence or 0
    run.gate.interactive, run.gate.streaming = record.interactive, record.streaming
    run.gate.compacting = record.compacting
    run.host = LocalHost(submission, run.attempt, run.services, run.answers)
    run.host.children = dict.fromkeys(message.children)
    inbox, run.inbox = run.inbox, ()
    order = run.order_for_body(None)
    run.execution = execution = RemoteExecution(order, run.host, record.executor, inbox)
    run.services.executors.expect(execution)
    if run.status is Status.CANCELLING:
        run.verdict = Verdict(Status.CANCELLED, record.reason or "cancelled", "engine")
        execution.request_cancel(resumes_later=False)
        run.timers.clear()
        enforce(run, execution)
    elif run.status is Status.RUNNING:
        run.run_clock.start(run.now)
        if submission.terms.run_timeout is not None:
            run.timers.set("run_timeout", run.now + submission.terms.run_timeout)


async def _remove_unfinished_files(run: RunState) -> list[str] | None:
    """Remove the unfinished files of the last body; returns their paths, or `None` if they are not known.

    A file can be recorded as finished although it was not renamed yet; its name can then belong to an older
    run's file. `FileGivenUp` is therefore committed before the part, the only evidence of that, is removed.
    """
    files, handle = run.services.files, run.submission.handle
    unfinished = None
    try:
        unfinished = await files.unfinished(handle, run.id)
        given_up = tuple(FileGivenUp(run.id, path) for path in unfinished if path in run.files)
        if given_up:
            await run.services.journal.ask(Change((), run=run.id, memos=given_up))
        if unfinished:
            await files.remove_parts(handle, run.id)
    except OSError:  # the run can continue, or end, nevertheless
        logger.exception("unfinished files of run %s could not be found or deleted", run.id)
    return unfinished


def _keep_finished_files(run: RunState, unfinished: list[str] | None) -> Steps:
    if unfinished is None:
        run.files = []  # keep its finished files: some could belong to an older run
    else:
        run.files = [path for path in run.files if path not in unfinished]
    yield from ()


def _resume_wait(
    run: RunState,
    waiting_for: str | None,
    wakes_at: float | None,
    children: list[str],
) -> None:
    """Resume the run's wait; when it ends, the run requests a slot for a new body."""
    within = run.submission.terms.waits
    left = 0.0 if wakes_at is None else _seconds_until(run, wakes_at, within)
    if waiting_for == "retry" and not left:
        run.ask_for_slot(new_place=True)
    elif waiting_for == "retry":
        run.timers.set("retry", run.now + left)
    elif waiting_for == "time" and left:
        run.timers.set("wake", run.now + left)
    elif waiting_for == "answer":
        until = wakes_at if run.submission.job.special is not None else None
        wait(run, Pause("answer", until, within=within))
    elif waiting_for == "signal":
        wait(run, Pause("signal", wakes_at, within=within))
    elif waiting_for == "message":
        wait(run, Pause("message"))
    elif waiting_for == "child" and children:
        run.orphans = children
        ended = TellWhenSet(run.services.delivery, "run", run.id, ChildrenEnded())
        each = Countdown([ended], len(children))
        for child in children:
            run.effects.tell("journal", "", WatchEnd(child, each))
    else:
        run.ask_for_slot()


def wait(run: RunState, pause: Pause) -> None:
    """Wait without a body, unless the awaited signal, answer or message is already there."""
    run.waits_for = pause
    if pause.until is not None:
        left = _seconds_until(run, pause.until, pause.within)
        run.timers.set("wake", run.now + left)
    check_answers(run)
    check_signals(run)
    check_messages(run)


def _seconds_until(run: RunState, wall: float, within: float | None) -> float:
    """Seconds until a time; at most `within`, because the clock can have been set back."""
    left = max(0.0, wall - run.services.wall_clock())
    return left if within is None else min(left, within)


def check_answers(run: RunState) -> None:
    """End the bodiless wait for an answer when no interrupt is open."""
    pause = run.waits_for
    if (
        pause is not None
        and pause.waiting_for == "answer"
        and not (run.has_interrupts and run.interrupts.any_open())
    ):
        run.stop_waiting()


def check_signals(run: RunState) -> None:
    """End the bodiless wait when a received signal could be the awaited one, or when there are many signals.

    After a restart the awaited key is unknown, and any signal ends the wait.
    """
    pause = run.waits_for
    if pause is None or pause.waiting_for == "time" or run.submission.job.special is None:
        return
    if len(run.inbox) >= _MAX_WAITING_SIGNALS or any(
        pause.key is None or matches(pause.key, signal.key) for signal in run.inbox
    ):
        run.stop_waiting()


def check_messages(run: RunState) -> None:
    """End the bodiless wait for a message when there is one."""
    if run.waits_for is not None and run.waits_for.waiting_for == "message" and run.inbox:
        run.stop_waiting()


def children_ended(run: RunState, message: ChildrenEnded) -> None:
    """The child runs that the last body waited for have ended: request a slot."""
    if run.status is Status.SUSPENDED and run.execution is None and not run.ending:
        run.ask_for_slot()
