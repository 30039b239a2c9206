"""Requests to a run while its body executes: from the body, and from callers.

A body requests to wait without its slot, to get a slot again, to open an interrupt, to change a phase, to
save a checkpoint. Callers send messages, signals and answers. Each function here decides about one message
(`body_messages.py`, `messages.py`) and replies after the commit.
"""

from __future__ import annotations

from ...persistence.store import AnswersSpent, Checkpoint, Memo, MessagesTaken
from ...protocol.errors import Conflict, GreenroomError, Invalid, NoActiveRun, NotInteractive, QueueFull
from ...protocol.events import Event, RunMessage, RunSignal
from ...protocol.states import PENDING, Status
from ...protocol.values import copied, shown
from ..journal.change import REPORTING, Change
from ..journal.messages import unavailable
from ..messages import AnswerInterrupt, Inject, SendSignal
from .body_messages import Adopted, Flag, OpenInterrupt, Resume, Save, Suspend, Taken, WithdrawInterrupt
from .message_gate import MAX_MESSAGES
from .pause import Message, Signal
from .restore import check_answers, check_messages, check_signals
from .state import RunState, Steps
from .transitions import changed, move, note

# Waiting without a slot.


def adopted(run: RunState, message: Adopted) -> None:
    """The body's executor has attached again: the body can repeat the requests that it waits for."""
    if run.execution is None:
        return  # the body has ended in the meantime
    if run.status is Status.SUSPENDED:
        run.adopted_wait = run.waiting_for
    if run.has_interrupts:
        run.interrupts.body_ended()


def suspend(run: RunState, message: Suspend) -> Steps:
    """The body starts to wait and releases its slot."""
    if run.verdict is not None:
        message.reply.set(None)
    elif run.adopted_wait == message.waiting_for:
        run.adopted_wait = None
        message.reply.set(None)  # the body repeats the request
    elif run.status is not Status.RUNNING:
        message.reply.fail(_wait_conflict(run))
    else:
        yield from _release_slot(run, message.waiting_for, message.wakes_at, message.within)
        message.reply.set(None)


def resume(run: RunState, message: Resume) -> None:
    """The body's wait has ended: it continues when the run has a slot again."""
    run.adopted_wait = None
    if run.verdict is not None or run.status is not Status.SUSPENDED:
        message.reply.set(None)
    else:
        run.resuming = message.reply
        run.ask_for_slot()


def _release_slot(
    run: RunState, waiting_for: str, at: float | None, within: float | None, *before: Event
) -> Steps:
    kept = at is None and not run.submission.terms.bodiless
    yield from move(
        run,
        Status.SUSPENDED,
        *before,
        live_body=True,
        reason=waiting_for,
        waiting_for=waiting_for,
        by="body",
        memos=() if kept else (run.wakes_at(at, within, bodiless=False),),
    )
    run.run_clock.stop(run.now)
    run.timers.drop("run_timeout")


def _wait_conflict(run: RunState) -> Conflict:
    return Conflict(f"run {run.id} already waits without its slot: only one such wait at a time is allowed")


# Interrupts.


def open_interrupt(run: RunState, message: OpenInterrupt) -> Steps:
    """Open an interrupt, unless its answer is already known."""
    interrupts = run.interrupts
    stopping = run.stopping is not None and not run.submission.job.resumable
    if run.verdict is not None or stopping:
        message.answer.set({"approved": False, "reason": "shutdown" if stopping else "cancelled"})
        message.reply.set(False)
    elif (kept := interrupts.stored_answer(message)) is not None:
        message.answer.set(kept.answer)
        message.reply.set(_repeats_release(run, message))
    elif (refusal := _interrupt_refusal(run, message)) is not None:
        message.reply.fail(refusal)
    else:
        repeats = _repeats_release(run, message)
        opened = interrupts.open(message, run.now)
        if message.release_slot and not repeats:
            yield from _release_slot(run, "answer", None, None, *opened)
        elif opened:
            yield from note(run, *opened)
        message.reply.set(message.release_slot)


def _repeats_release(run: RunState, message: OpenInterrupt) -> bool:
    """Whether the run had released its slot for this interrupt before its executor attached again."""
    if not message.release_slot or run.adopted_wait != "answer":
        return False
    run.adopted_wait = None
    return True


def _interrupt_refusal(run: RunState, message: OpenInterrupt) -> GreenroomError | None:
    if run.interrupts.awaited_by_body(message.key):
        return Conflict(f"run {run.id} already has an open interrupt with key {shown(message.key)}")
    if message.release_slot:
        released = run.status is not Status.RUNNING and run.adopted_wait != "answer"
        return _wait_conflict(run) if released else None
    left = run.timers.left("run_timeout", run.now)
    if message.timeout >= left and run.submission.terms.run_timeout is not None:
        return Invalid(
            f"timeout must be less than the {left:g} s that remain of run_timeout (got {message.timeout:g}): "
            "shorten it, or use release_slot=True",
            value=message.timeout,
        )
    return None


def withdraw_interrupt(run: RunState, message: WithdrawInterrupt) -> Steps:
    """The body no longer waits for the answer."""
    if run.verdict is not None and run.verdict.to is Status.SUSPENDED:
        return  # the interrupt stays open while the engine is stopped
    event = run.interrupts.withdraw(message.key)
    if event is not None and not run.ended:
        yield from note(run, event)


def save(run: RunState, message: Save) -> None:
    """Save a checkpoint. Earlier answers are spent: a later body opens its interrupts again."""
    if run.abandoned or run.execution is None:
        return  # an abandoned body's calls have already failed
    events, spent = run.interrupts.pass_checkpoint() if run.has_interrupts else ([], ())
    counts = (message.interrupts, message.calls)
    memos: tuple[Memo, ...] = (
        Checkpoint(run.submission.handle, run.submission.job.name, run.id, message.value, *counts),
    )
    if spent:
        memos = (*memos, AnswersSpent(run.id, spent))
    run.effects.commit(
        Change(
            tuple(events),
            run=run.id,
            expect=REPORTING,
            attempt=message.attempt,
            memos=memos,
            reply=message.reply,
        )
    )


def answer(run: RunState, message: AnswerInterrupt) -> Steps:
    """A caller answers an interrupt."""
    outcome = yield from run.interrupts.answer(message)
    message.reply.set(outcome)
    check_answers(run)


# Phases and messages.


def flag(run: RunState, message: Flag) -> Steps:
    """The body begins or ends a phase."""
    yield from note(run, changed(run, **{message.name: message.value}))
    run.gate.set(message.name, message.value)
    message.reply.set(None)


def inject(run: RunState, message: Inject) -> Steps:
    """A caller sends the body a message."""
    if run.ended:
        message.reply.fail(NoActiveRun(f"run {run.id} has ended"))
        return
    if run.submission.job.special is not None:
        message.reply.fail(
            NotInteractive(f"run {run.id} executes a flow and accepts no messages: send a signal instead")
        )
        return
    refusal = run.gate.refusal(ending=run.verdict is not None or run.ending is not None)
    if refusal is not None:
        message.reply.fail(refusal)
        return
    event = RunMessage(by=message.by, message=message.message, **run.submission.about())
    outcome = yield from note(run, event)
    run.gate.add(outcome.seq)
    if run.execution is not None:
        run.execution.deliver(Message(outcome.seq, copied(message.message)))
    else:
        run.inbox = (*run.inbox, Message(outcome.seq, copied(message.message)))
        check_messages(run)
    message.reply.set("accepted")


def signal(run: RunState, message: SendSignal) -> Steps:
    """A caller sends a flow's run a value for its shared state. It is kept until the body takes it."""
    job, execution = run.submission.job, run.execution
    if run.ended:
        message.reply.set(None)
    elif job.special is None:
        message.reply.fail(
            Conflict(f"run {run.id} of job {shown(job.name)} accepts no signals: only flows do")
        )
    elif (len(run.inbox) if execution is None else execution.untaken) >= MAX_MESSAGES:
        message.reply.fail(QueueFull(f"run {run.id} already has {MAX_MESSAGES} waiting signals: retry later"))
    else:
        event = RunSignal(by=message.by, key=message.key, value=message.value, **run.submission.about())
        outcome = yield Change((event,), run=run.id, expect=PENDING, notify_run=True)
        if not outcome.held:
            message.reply.fail(unavailable())
            return
        received = Signal(outcome.seq, message.key, message.value)
        if execution is not None:
            execution.deliver(received)
        else:
            run.inbox = (*run.inbox, received)
            check_signals(run)
        message.reply.set(True)


def taken(run: RunState, message: Taken) -> None:
    """The body has taken messages: they are no longer kept."""
    taken = run.gate.take(message.seq)
    if taken:
        run.effects.commit(Change((), run=run.id, memos=(MessagesTaken(run.id, taken),)))
