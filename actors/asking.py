"""What a body asks of its run while it executes, and what others tell the body through it.

A body asks to wait without its slot, to be given one again, to put a question to people, to show a phase.
Others send it messages and answers. Each of these functions handles one such message (`body.py`,
`messages.py`), in the task of the run's actor, and replies after the commit.
"""

from __future__ import annotations

from ..persistence.store import AnswersSpent, Checkpoint, Memo, MessagesTaken
from ..protocol.errors import Conflict, GreenroomError, Invalid, NoActiveRun, NotInteractive, QueueFull
from ..protocol.events import Event, RunMessage, RunSignal
from ..protocol.states import PENDING, Status
from ..protocol.values import copied
from .bodymessages import Ask, Flag, Resume, Save, Suspend, Taken, Unask
from .change import REPORTING, Change
from .comeback import look_for_answers, look_for_messages, look_for_signals
from .doorstep import MAX_MESSAGES
from .messages import AnswerInterrupt, Inject, SendSignal
from .outage import unavailable
from .pause import Message, Signal
from .runstate import RunState

# The body's wait without its slot.


async def suspend(run: RunState, message: Suspend) -> None:
    """The body waits, and gives its slot back meanwhile."""
    if run.verdict is not None:
        message.reply.set(None)
    elif run.ledger.status is not Status.RUNNING:
        message.reply.fail(_second_wait(run))
    else:
        at, now = message.wakes_at, run.services.wall_clock()
        run.waits_until = at
        memos = () if at is None else (run.wakes_at(at, max(0.0, at - now)),)
        await _release_slot(run, message.waiting_for, memos)
        message.reply.set(None)


async def resume(run: RunState, message: Resume) -> None:
    """The body's wait is over: it goes on when there is a slot for it."""
    if run.verdict is not None or run.ledger.status is not Status.SUSPENDED:
        message.reply.set(None)
    else:
        run.resuming = message.reply
        run.enter_lane()


async def _release_slot(run: RunState, waiting_for: str, memos: tuple[Memo, ...], *before: Event) -> None:
    await run.ledger.move(
        Status.SUSPENDED,
        *before,
        live_body=True,
        reason=waiting_for,
        waiting_for=waiting_for,
        by="body",
        memos=memos,
    )
    run.run_clock.stop()
    run.timers.drop("run_timeout")


def _second_wait(run: RunState) -> Conflict:
    return Conflict(f"run {run.id} waits without its slot already: one such wait at a time")


# Its questions.


async def ask(run: RunState, message: Ask) -> None:
    """Open a question, unless its answer is known already."""
    questions = run.questions
    stopping = run.stopping is not None and not run.submission.job.resumable
    if run.verdict is not None or stopping:
        message.answer.set({"approved": False, "reason": "shutdown" if stopping else "cancelled"})
        message.reply.set(False)
    elif (kept := questions.recall(message)) is not None:
        message.answer.set(kept.answer)
        message.reply.set(False)
    elif (refusal := _refuses_question(run, message)) is not None:
        message.reply.fail(refusal)
    else:
        opened = questions.open(message)
        if message.release_slot:
            await _release_slot(run, "answer", (), *opened)
        elif opened:
            await run.ledger.note(*opened)
        message.reply.set(message.release_slot)


def _refuses_question(run: RunState, message: Ask) -> GreenroomError | None:
    if run.questions.asked_by_body(message.key):
        return Conflict(f"run {run.id} asks under key {message.key!r} already")
    if message.release_slot:
        return None if run.ledger.status is Status.RUNNING else _second_wait(run)
    left = run.timers.left("run_timeout")
    if message.timeout >= left and run.submission.terms.run_timeout is not None:
        return Invalid(
            f"timeout {message.timeout:g} must be shorter than the {left:g} s that are left of the run's "
            "own time: shorten it, or wait with release_slot=True",
            value=message.timeout,
        )
    return None


async def unask(run: RunState, message: Unask) -> None:
    """The body doesn't wait for the answer any more."""
    if run.verdict is not None and run.verdict.to is Status.SUSPENDED:
        return  # the run asks on while the engine is away
    event = run.questions.withdraw(message.key)
    if event is not None and not run.ledger.ended:
        await run.ledger.note(event)


async def save(run: RunState, message: Save) -> None:
    """The body saves a checkpoint. Answers given until now are spent: a later body asks anew."""
    if run.abandoned or run.execution is None:
        return  # the body, if there is one, has been told
    events, spent = run.questions.pass_checkpoint()
    counts = (message.interrupts, message.calls)
    memos: tuple[Memo, ...] = (
        Checkpoint(run.submission.handle, run.submission.job.name, run.id, message.value, *counts),
    )
    if spent:
        memos = (*memos, AnswersSpent(run.id, spent))
    run.journal.tell(
        Change(
            tuple(events),
            run=run.id,
            expect=REPORTING,
            attempt=message.attempt,
            memos=memos,
            reply=message.reply,
        )
    )


async def answer(run: RunState, message: AnswerInterrupt) -> None:
    """Somebody answers a question."""
    message.reply.set(await run.questions.answer(message))
    look_for_answers(run)


# Its phases, and messages for it.


async def flag(run: RunState, message: Flag) -> None:
    """The body begins or ends a phase."""
    await run.ledger.note(run.ledger.changed(**{message.name: message.value}))
    run.doorstep.set(message.name, message.value)
    message.reply.set(None)


async def inject(run: RunState, message: Inject) -> None:
    """Somebody has a message for the body."""
    if run.ledger.ended:
        message.reply.fail(NoActiveRun(f"run {run.id} has ended"))
        return
    if run.submission.job.special is not None:
        message.reply.fail(NotInteractive(f"run {run.id} walks a flow, which takes signals, no messages"))
        return
    refusal = run.doorstep.refusal(ending=run.verdict is not None or run.ending)
    if refusal is not None:
        message.reply.fail(refusal)
        return
    event = RunMessage(by=message.by, message=message.message, **run.submission.about())
    outcome = await run.ledger.note(event)
    run.doorstep.add(outcome.seq)
    if run.execution is not None:
        run.execution.body.deliver(Message(outcome.seq, copied(message.message)))
    else:
        run.inbox = (*run.inbox, Message(outcome.seq, copied(message.message)))
        look_for_messages(run)
    message.reply.set("accepted")


async def signal(run: RunState, message: SendSignal) -> None:
    """Somebody puts a value into what the run shares. It is kept until the run's body has taken it."""
    job, body = run.submission.job, run.execution.body if run.execution is not None else None
    if run.ledger.ended:
        message.reply.set(None)
    elif job.special is None:
        message.reply.fail(Conflict(f"run {run.id} is of job {job.name!r}: only flows take signals"))
    elif (len(run.inbox) if body is None else body.untaken) >= MAX_MESSAGES:
        message.reply.fail(QueueFull(f"{MAX_MESSAGES} signals wait for run {run.id} already"))
    else:
        event = RunSignal(by=message.by, key=message.key, value=message.value, **run.submission.about())
        outcome = await run.journal.ask(Change((event,), run=run.id, expect=PENDING))
        if not outcome.held:
            message.reply.fail(unavailable())
            return
        came = Signal(outcome.seq, message.key, message.value)
        if body is not None:
            body.deliver(came)
        else:
            run.inbox = (*run.inbox, came)
            look_for_signals(run)
        message.reply.set(True)


async def taken(run: RunState, message: Taken) -> None:
    """The body has taken messages: they need not be kept any longer."""
    memo = MessagesTaken(run.id, run.doorstep.take(message.count))
    run.journal.tell(Change((), run=run.id, memos=(memo,)))
