"""How a run comes back after a restart: what it was, whether it may go on, and what it waits for.

Its last body is gone with the process; or it had to go because the engine lost its lease, which comes to the
same. If its author said that it may go on, it waits for what that body
waited for, and then stands in its lane for a slot for a new one; else it ends here.
"""

from __future__ import annotations

import logging
from functools import partial

import msgspec

from ...persistence.store import Deaths, FileGivenUp, Memo, StoredRun
from ...protocol.events import RunChanged
from ...protocol.states import Status
from ..actor import TellWhenSet
from ..channel import Countdown
from ..engine.recovery import holds_slot
from ..jobs import unknown_job
from ..journal.change import Change
from ..journal.messages import WatchEnd
from ..messages import Recover
from ..scheduling.trials import MOST_DEATHS
from . import errands
from .execution import Execution
from .pause import Message, Pause, Signal, concerns
from .state import RunState, Steps
from .termination import end
from .transitions import lose_body, move, note

logger = logging.getLogger("greenroom")

_A_MOMENT = 0.5
"""Seconds for which starts wait for the deletes of a run that ends with a restart."""

_MANY = 100
"""Signals that a run lets gather while it waits for another one."""


class ChildrenEnded(msgspec.Struct, gc=False):
    """From a run's actor to itself: the runs that its last body waited for have ended."""


def restore(run: RunState, stored: StoredRun) -> None:
    """Be what the run was when the engine ended, but for its body."""
    record = stored.record
    run.status, run.attempt, run.waiting_for = record.status, record.attempt, record.waiting_for
    if record.attempt and record.reason != "retry" and run.submission.job.resumable:
        run.next_attempt = record.attempt  # what the restart broke off is no attempt lost
    else:
        run.next_attempt = record.attempt + 1
    if stored.interrupts:
        run.interrupts.restore(stored.interrupts, run.now)
    run.deaths, run.waits_until = stored.deaths, stored.wakes_at
    run.files, run.files_doomed = stored.files, stored.files_doomed
    run.gate.waiting = tuple(seq for seq, _ in stored.messages)
    if run.submission.job.special is None:
        run.inbox = [Message(seq, message) for seq, message in stored.messages]
    else:
        run.inbox = [Signal(seq, signal["key"], signal["value"]) for seq, signal in stored.messages]
    if run.status is not Status.QUEUED:
        run.timers.drop("queue_timeout")


def recover(run: RunState, message: Recover) -> Steps:
    """The run had begun: let it go on if its author said that it may, else end it. What the last body left
    unfinished is deleted before the next one begins, or before the run has ended."""
    errands.send(run, partial(_tidy_up_files, run), partial(_without_parts, run))
    yield from _go_on_or_end(run, message)
    stored = run.submission.stored
    if run.ending and stored is not None and holds_slot(stored.record):
        run.recovering = True
        run.timers.set("detach", run.now + _A_MOMENT)
    else:
        run.recovered()


def detach(run: RunState) -> Steps:
    """What the run has left is still being deleted: it is not counted among those that execute any more, so
    that others may start."""
    if run.recovering:
        yield from note(run, RunChanged(by="engine", detached=True, **run.submission.about()))
        run.recovered()


def _go_on_or_end(run: RunState, message: Recover) -> Steps:
    stored, job = run.submission.stored, run.submission.job
    assert stored is not None, "only a run that was stored can be recovered"
    record = stored.record
    may_go_on = job.resumable or record.attempt < job.max_attempts
    if run.status is Status.CANCELLING or run.files_doomed:
        run.orphans = message.children
        if run.status is Status.RUNNING:  # a start had crossed the cancel, which dooms the files first
            yield from move(run, Status.CANCELLING, live_body=False, reason=record.reason)
        yield from end(run, Status.CANCELLED, reason=record.reason)
    elif run.status is Status.SUSPENDED and not job.registered:
        yield from end(run, Status.REJECTED, reason="unknown_job", error=unknown_job(job.name))
    elif not may_go_on or not job.registered:
        why = unknown_job(job.name) if not job.registered else "the process ended while it executed"
        yield from end(run, Status.FAILED, reason="crashed", error=why)
    elif message.deaths >= MOST_DEATHS:
        why = f"the process has died {message.deaths} times while it executed"
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
        yield from _without_body(run, record.waiting_for, memos)
        _wait_again(run, record.waiting_for, stored.wakes_at, message.children)


def _without_body(run: RunState, waiting_for: str | None, memos: tuple[Memo, ...] = ()) -> Steps:
    """The run waits on without its body; it can be talked to if it waits for a message."""
    awaits_message = waiting_for == "message"
    yield from lose_body(run, awaits_message=awaits_message, memos=memos)
    run.gate.awaited = awaits_message


def lapsed(run: RunState, execution: Execution, *, in_lane: bool) -> Steps:
    """Its body had to go, because the engine lost its lease. `in_lane`: it stood there for a slot again."""
    job = run.submission.job
    run.lapsed = True
    run.orphans = execution.children
    run.timers.drop("run_timeout")
    run.run_clock.reset()
    run.next_attempt = run.attempt if job.resumable else run.attempt + 1
    if not job.resumable and run.attempt >= job.max_attempts:
        why = "the engine lost its lease on the store while it executed"
        yield from end(run, Status.FAILED, reason="lease_lost", error=why)
    elif run.status is Status.RUNNING:
        yield from move(
            run,
            Status.SUSPENDED,
            *run.closing("ended", None, "engine"),
            live_body=False,
            reason="lease_lost",
            waiting_for="slot",
            interactive=False,
            enters_again=True,
        )
        run.forget_interrupts()
    else:
        if run.asks:
            run.interrupts.body_is_gone()
        yield from _without_body(run, None if in_lane else run.waiting_for)
        if in_lane:
            run.ask_for_slot()
        else:
            _wait_again(run, run.waiting_for, run.waits_until, list(execution.children))


async def _tidy_up_files(run: RunState) -> list[str] | None:
    """Find out which files the last body left unfinished, and remove them; returns their paths, or `None` if
    they are not known. A file that was recorded as finished and has not got its name may stand in an older
    run's place: that it isn't this run's is committed before the part is gone, which shows it."""
    files, handle = run.services.files, run.submission.handle
    unfinished = None
    try:
        unfinished = await files.unfinished(handle, run.id)
        given_up = tuple(FileGivenUp(run.id, path) for path in unfinished if path in run.files)
        if given_up:
            await run.services.journal.ask(Change((), run=run.id, memos=given_up))
        if unfinished:
            await files.remove_parts(handle, run.id)
    except OSError:  # the run can go on, or end, all the same
        logger.exception("what run %s left of unfinished files could not be found or deleted", run.id)
    return unfinished


def _without_parts(run: RunState, unfinished: list[str] | None) -> Steps:
    if unfinished is None:
        run.files = []  # rather keep what it has finished than delete what an older run has
    else:
        run.files = [path for path in run.files if path not in unfinished]
    yield from ()


def _wait_again(
    run: RunState,
    waiting_for: str | None,
    wakes_at: float | None,
    children: list[str],
) -> None:
    """Wait for what the run waited for, and then for a slot for a new body."""
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
    """Wait without a body, unless what the run waits for has come already."""
    run.waits_for = pause
    if pause.until is not None:
        left = _seconds_until(run, pause.until, pause.within)
        run.timers.set("wake", run.now + left)
    look_for_answers(run)
    look_for_signals(run)
    look_for_messages(run)


def _seconds_until(run: RunState, wall: float, within: float | None) -> float:
    """How long it is to a time; never longer than it was when the wait began, for the clock may have been set
    back since."""
    left = max(0.0, wall - run.services.wall_clock())
    return left if within is None else min(left, within)


def look_for_answers(run: RunState) -> None:
    """A run without a body that waits for an answer goes on when none of its interrupts is open."""
    pause = run.waits_for
    if pause is not None and pause.waiting_for == "answer" and not (run.asks and run.interrupts.any_open()):
        run.stop_waiting()


def look_for_signals(run: RunState) -> None:
    """A run without a body goes on when one of its signals may be what it waits for, or when there are many,
    for its next body to take. After a restart it doesn't know any more what it waits for, and any will do."""
    pause = run.waits_for
    if pause is None or pause.waiting_for == "time" or run.submission.job.special is None:
        return
    if len(run.inbox) >= _MANY or any(
        pause.key is None or concerns(pause.key, signal.key) for signal in run.inbox
    ):
        run.stop_waiting()


def look_for_messages(run: RunState) -> None:
    """A run without a body that waits for a message goes on when there is one, for its next body to take."""
    if run.waits_for is not None and run.waits_for.waiting_for == "message" and run.inbox:
        run.stop_waiting()


def go_on_without_children(run: RunState, message: ChildrenEnded) -> None:
    """The runs have ended that the last body waited for."""
    if run.status is Status.SUSPENDED and run.execution is None and not run.ending:
        run.ask_for_slot()
