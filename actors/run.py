"""A run: the one authority over how it goes on and how it ends.

Its actor is awake while there is something to do: a body that executes, a timer, a wait. It starts the body
in a task of its own when the lane grants a slot, answers for it meanwhile, and commits each transition before
anyone hears of it. A queued run without a timer has no actor; its submission is all there is of it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import trio

from ..persistence.store import FilesDoomed, Memo, MessagesTaken, WakesAt
from ..protocol.errors import (
    Compacting,
    Conflict,
    GreenroomError,
    Invalid,
    NoActiveRun,
    NotInteractive,
    NotStreaming,
    QueueFull,
    RunAbandoned,
)
from ..protocol.events import Event, RunChanged, RunMessage, RunStateChanged
from ..protocol.names import is_probe
from ..protocol.records import RunRecord
from ..protocol.states import ENDED, Status, allowed_from
from ..protocol.values import json_value
from .actor import Actor, Delivery, Kind, Reply
from .body import Ask, Flag, Resume, Run, Services, Suspend, Taken, Unask
from .execution import BodyEnded, Execution, Raised, Returned
from .journal import REPORTING, Change, LoadCheckpoint, Outcome
from .messages import (
    AnswerInterrupt,
    BodyGone,
    Cancel,
    Cancelling,
    Done,
    Enter,
    Granted,
    Inject,
    KeepTime,
    Leave,
    Left,
    Retry,
    Stop,
    Submission,
)
from .questions import Questions

logger = logging.getLogger("greenroom")

MAX_MESSAGES = 1000
"""How many messages may wait for a body."""


class Verdict(msgspec.Struct, frozen=True):
    """How the run goes on once its body has ended because it was told to."""

    to: Status
    reason: str
    by: str


class RunActor(Actor):
    """See the module's text."""

    def __init__(
        self,
        submission: Submission,
        delivery: Delivery,
        services: Services,
        spawn: Callable[[Execution], None],
        interrupt: Callable[[BaseException], None],
    ) -> None:
        super().__init__("run", submission.id)
        self._submission = submission
        self._delivery = delivery
        self._services = services
        self._journal = services.journal
        self._spawn = spawn
        self._interrupt = interrupt
        self._status = Status.QUEUED
        self._attempt = 0
        self._generation: int | None = None  # of the slot it holds
        self._execution: Execution | None = None
        self._verdict: Verdict | None = None
        self._abandoned = False
        self._interactive = False
        self._streaming = False
        self._compacting = False
        self._stopping: Stop | None = None
        self._resuming: Reply[None] | None = None  # of a body whose wait is over, and that needs a slot
        self._questions = Questions(submission, services.journal, services.wall_clock)
        self._inbox: list[Any] = []  # what the last body left
        self._untaken = 0
        self._checkpoint: Any = None
        self._files: list[str] = []  # what this run has finished
        self._files_doomed = False
        self._executed = 0.0  # seconds of this attempt, up to its last suspension
        self._executing_since: float | None = None
        self._timers: dict[Callable[[], Awaitable[None]], float] = {}
        self._keep_time()

    def has_work(self) -> bool:
        if self._execution is not None:
            return not (self._abandoned and self._stopping is not None)
        if self._stopping is not None or self._status in ENDED:
            return False
        return self._status is not Status.QUEUED or bool(self._timers)

    def report(self) -> dict[str, Any]:
        return super().report() | {
            "job": self._submission.job.name,
            "status": str(self._status),
            "attempt": self._attempt,
            "body": self._execution is not None,
            "abandoned": self._abandoned,
            "untaken_messages": self._untaken,
        }

    async def on_batch(self, messages: Sequence[Any]) -> None:
        for message in messages:
            await _HANDLERS[type(message)](self, message)
        self._set_deadline()

    async def on_deadline(self) -> None:
        now = trio.current_time()
        for timer, at in sorted(self._timers.items(), key=lambda item: item[1]):
            if at <= now and self._timers.pop(timer, None) is not None:
                await timer()
        await self._questions.on_deadline(now)
        self._set_deadline()

    # Executing.

    async def _granted(self, message: Granted) -> None:
        startable = self._status in (Status.QUEUED, Status.SUSPENDED) and self._verdict is None
        if not startable or self._stopping is not None:
            self._give_back(message.generation)
            return
        resumes = self._execution is not None
        attempt = self._attempt if resumes else self._attempt + 1
        event = self._transition(
            Status.RUNNING, attempt=attempt, reason=None, interactive=None if resumes else True
        )
        outcome = await self._commit(event, generation=message.generation)
        if not outcome.held:  # the lane was reset since, and the slot with it: back to the same place
            self._enter_lane()
            return
        self._status = Status.RUNNING
        self._attempt = attempt
        self._generation = message.generation
        self._start_run_clock()
        if resumes:
            self._go_on()
        else:
            await self._start_body()

    async def _start_body(self) -> None:
        submission = self._submission
        self._timers.pop(self._queue_timeout, None)
        self._interactive, self._streaming, self._compacting = True, False, False
        if submission.kind == "continue" and self._attempt == 1:
            reply: Reply[Any] = Reply()
            self._journal.tell(LoadCheckpoint(submission.handle, submission.job.name, reply))
            saved = await reply.get()
            self._checkpoint = saved.value if saved is not None else None
        run = Run(submission, self._attempt, self._checkpoint, self._inbox, self, self._services)
        self._inbox = []
        self._execution = Execution(submission.job, run, submission.params, self, self._interrupt)
        self._spawn(self._execution)

    async def _body_ended(self, message: BodyEnded) -> None:
        execution, self._execution = self._execution, None
        assert execution is not None, "a run has one body at a time"
        self._inbox = execution.run.close("its body has ended")
        self._checkpoint = execution.run.checkpoint
        self._files += execution.run.finished_files
        self._resuming = None
        if self._abandoned:
            self._tell("handle", self._submission.handle, BodyGone(self._submission.id))
            return
        outcome, verdict = message.outcome, self._verdict
        if verdict is not None and verdict.to is Status.TIMED_OUT:
            await self._end(Status.TIMED_OUT, reason=verdict.reason)
        elif isinstance(outcome, Returned):
            await self._returned(outcome.value, execution.run)
        elif isinstance(outcome, Raised):
            await self._raised(outcome.error)
        else:
            await self._stopped(verdict)

    async def _returned(self, value: Any, run: Run) -> None:
        verdict = self._verdict
        if verdict is not None and verdict.to is Status.CANCELLED and run.obeyed_cancel:
            await self._end(Status.CANCELLED, reason=verdict.reason, by=verdict.by)
            return
        try:
            result = json_value(value, "result", self._services.door.max_value_bytes)
        except GreenroomError as error:
            await self._raised(error)
        else:
            await self._end(Status.SUCCEEDED, reason=None, result=result, by="body")

    async def _raised(self, error: BaseException) -> None:
        job = self._submission.job
        may_retry = (
            self._verdict is None and isinstance(error, Exception) and self._attempt < job.max_attempts
        )
        self._log_failure(error, "and is tried again" if may_retry else "and has no attempt left")
        if not may_retry:
            await self._end(Status.FAILED, reason="error", error=error_text(error), by="body")
            return
        if self._status is Status.RUNNING:
            event = self._transition(
                Status.SUSPENDED,
                reason="retry",
                waiting_for="retry",
                interactive=False,
                error=error_text(error),
                by="body",
            )
            await self._commit(event, leaves=True)
            self._status = Status.SUSPENDED
        else:
            await self._commit(self._changed(interactive=False, streaming=False, compacting=False))
        self._stop_run_clock()
        self._executed = 0.0
        self._interactive = False
        self._timers[self._retry] = trio.current_time() + job.delay(self._attempt)

    async def _stopped(self, verdict: Verdict | None) -> None:
        assert verdict is not None, "a body's scope is cancelled only by a verdict"
        if verdict.to is not Status.SUSPENDED:
            await self._end(verdict.to, reason=verdict.reason, by=verdict.by)
        elif self._status is Status.RUNNING:
            await self._suspend_for_shutdown()

    async def _retry(self) -> None:
        self._tell("supervisor", "", Retry(self._submission.id))

    # Ending.

    async def _cancel(self, message: Cancel) -> None:
        if self._status in ENDED or self._status is Status.CANCELLING:
            message.reply.fail(await self._cannot_cancel())
        elif self._execution is None:
            run = await self._end(Status.CANCELLED, reason=message.reason, by=message.by)
            message.reply.set(run)
        elif not self._interactive and message.reason != "shutdown":
            message.reply.fail(
                NotInteractive(f"run {self._submission.id} is in post-processing: it ends by itself")
            )
        else:
            await self._cancel_body(message)

    async def _cannot_cancel(self) -> Conflict:
        id = self._submission.id
        run = await self._journal.look(lambda committed: committed.runs.get(id))
        return Conflict(f"run {id} is {self._status} and can't be cancelled", run=run)

    async def _cancel_body(self, message: Cancel) -> None:
        refusal = {"approved": False, "reason": "shutdown" if message.reason == "shutdown" else "cancelled"}
        memos: tuple[Memo, ...] = ()
        if message.files == "delete":
            memos = (FilesDoomed(self._submission.id),)
            self._files_doomed = True
        outcome = await self._commit(
            *self._questions.closing(str(refusal["reason"]), refusal, message.by),
            self._transition(Status.CANCELLING, reason=message.reason, by=message.by),
            memos=memos,
            leaves=self._status is Status.SUSPENDED,  # it may stand in the lane's queue again
            also=Cancelling(self._submission.id),
        )
        self._status = Status.CANCELLING
        self._questions.refuse(refusal)
        if self._verdict is None:
            self._stop_body(Verdict(Status.CANCELLED, message.reason, message.by))
        message.reply.set(outcome.run)

    def _stop_body(self, verdict: Verdict) -> None:
        """Tell the body to end, for good."""
        execution, job, now = self._execution, self._submission.job, trio.current_time()
        assert execution is not None, "only a live body can be stopped"
        self._verdict = verdict
        self._timers.clear()
        execution.run.request_cancel()
        if verdict.to is Status.SUSPENDED:
            execution.run.go_on_later()
        self._go_on()
        if job.cancel == "cooperative" and not math.isinf(job.grace):
            self._timers[self._cancel_scope] = now + job.grace
            self._timers[self._abandon] = now + 2 * job.grace
        else:
            execution.scope.cancel()
            self._timers[self._abandon] = now + job.grace

    async def _cancel_scope(self) -> None:
        if self._execution is not None:
            self._execution.scope.cancel()

    async def _abandon(self) -> None:
        """The body has ignored its end for too long: the run ends without it."""
        execution, verdict, submission = self._execution, self._verdict, self._submission
        assert execution is not None, "the timer is set for a body"
        assert verdict is not None, "the timer is set with a verdict"
        self._abandoned = True
        logger.error(
            "run %s of job %r on handle %r ignored its end (%s) for %g s and is abandoned; "
            "its body still executes",
            submission.id,
            submission.job.name,
            submission.handle,
            verdict.reason,
            submission.job.grace,
        )
        why = "it ignored its end for too long and was abandoned"
        execution.run.close(why)
        self._questions.fail(RunAbandoned(f"run {submission.id}: {why}"))
        await execution.run.discard_parts()
        self._files += execution.run.finished_files
        if verdict.to is Status.SUSPENDED:
            if self._status is Status.RUNNING:
                await self._suspend_for_shutdown()
        else:
            await self._end(verdict.to, reason="abandoned", body_remains=True)

    async def _end(
        self,
        to: Status,
        *,
        reason: str | None,
        by: str = "engine",
        result: Any = None,
        error: str | None = None,
        body_remains: bool = False,
    ) -> RunRecord | None:
        """Commit the end, and let everyone go who waits for it."""
        submission = self._submission
        if self._files_doomed:
            await self._services.files.delete(submission.handle, self._files)
        event = self._transition(
            to, reason=reason, by=by, result=result, error=error, holds_handle=body_remains
        )
        outcome = await self._commit(
            *self._questions.closing("ended", None, by),
            event,
            leaves=True,
            also=Done(submission.id, body_remains),
        )
        assert outcome.held, f"run {submission.id} could not become {to} from {self._status}"
        self._status = to
        self._timers.clear()
        return outcome.run

    async def _expire(self, reason: str) -> None:
        if self._execution is None:
            await self._end(Status.TIMED_OUT, reason=reason)
        elif self._verdict is None:
            self._stop_body(Verdict(Status.TIMED_OUT, reason, "engine"))

    async def _queue_timeout(self) -> None:
        await self._expire("queue_timeout")

    async def _run_timeout(self) -> None:
        await self._expire("run_timeout")

    async def _deadline(self) -> None:
        await self._expire("deadline")

    async def _stop(self, message: Stop) -> None:
        """The engine is being left: first a word to finish, then the end of this execution."""
        self._stopping = message
        resumable = self._submission.job.resumable
        if self._execution is None or self._verdict is not None:
            return
        if not message.now:
            if not resumable:
                refusal = {"approved": False, "reason": "shutdown"}
                events = self._questions.closing("shutdown", refusal, "engine")
                if events:
                    await self._commit(*events)
                    self._questions.refuse(refusal)
        elif resumable:
            self._stop_body(Verdict(Status.SUSPENDED, "shutdown", "engine"))
        else:
            await self._cancel_body(Cancel(self._submission.id, "engine", "shutdown", "keep", Reply()))

    async def _suspend_for_shutdown(self) -> None:
        event = self._transition(Status.SUSPENDED, reason="shutdown", waiting_for="slot", interactive=False)
        await self._commit(event, leaves=True)
        self._status = Status.SUSPENDED

    # What the body asks.

    async def _suspend(self, message: Suspend) -> None:
        if self._verdict is not None:
            message.reply.set(None)
        elif self._status is not Status.RUNNING:
            message.reply.fail(self._second_wait())
        else:
            memos = () if message.wakes_at is None else (WakesAt(self._submission.id, message.wakes_at),)
            await self._release_slot(message.waiting_for, memos)
            message.reply.set(None)

    async def _resume(self, message: Resume) -> None:
        if self._verdict is not None or self._status is not Status.SUSPENDED:
            message.reply.set(None)
        else:
            self._resuming = message.reply
            self._enter_lane()

    async def _ask(self, message: Ask) -> None:
        questions = self._questions
        if self._verdict is not None or (self._stopping is not None and not self._submission.job.resumable):
            reason = "cancelled" if self._stopping is None else "shutdown"
            message.answer.set({"approved": False, "reason": reason})
            message.reply.set(False)
        elif message.key in questions.answers:
            message.answer.set(questions.answers[message.key])
            message.reply.set(False)
        elif (refusal := self._refuses_question(message)) is not None:
            message.reply.fail(refusal)
        else:
            opened = questions.open(message)
            if message.release_slot:
                await self._release_slot("answer", (), opened)
            else:
                await self._commit(opened)
            message.reply.set(message.release_slot)

    def _refuses_question(self, message: Ask) -> GreenroomError | None:
        if message.key in self._questions:
            return Conflict(f"run {self._submission.id} asks under key {message.key!r} already")
        if message.release_slot:
            return None if self._status is Status.RUNNING else self._second_wait()
        left = self._timers.get(self._run_timeout, math.inf) - trio.current_time()
        if message.timeout >= left and left != math.inf:
            return Invalid(
                f"timeout {message.timeout:g} must be shorter than the {left:g} s that are left of the run's "
                "own time: shorten it, or wait with release_slot=True",
                value=message.timeout,
            )
        return None

    def _second_wait(self) -> Conflict:
        return Conflict(f"run {self._submission.id} waits without its slot already: one such wait at a time")

    async def _unask(self, message: Unask) -> None:
        event = self._questions.withdraw(message.key)
        if event is not None and self._status not in ENDED:
            await self._commit(event)

    async def _flag(self, message: Flag) -> None:
        flags = {message.name: message.value}
        await self._commit(self._changed(**flags))
        setattr(self, f"_{message.name}", message.value)
        message.reply.set(None)

    async def _taken(self, message: Taken) -> None:
        self._untaken -= message.count
        memo = MessagesTaken(self._submission.id, message.count)
        self._journal.tell(Change((), run=self._submission.id, memos=(memo,)))

    # What others ask.

    async def _inject(self, message: Inject) -> None:
        refusal = self._refuses_message()
        if refusal is not None:
            message.reply.fail(refusal)
            return
        assert self._execution is not None, "an interactive run has a body"
        submission = self._submission
        event = RunMessage(
            seq=0,
            at=0,
            by=message.by,
            run=submission.id,
            handle=submission.handle,
            lane=submission.lane,
            message=message.message,
        )
        await self._commit(event)
        self._untaken += 1
        self._execution.run.deliver(message.message)
        message.reply.set("accepted")

    def _refuses_message(self) -> GreenroomError | None:
        id = self._submission.id
        if self._status in ENDED:
            return NoActiveRun(f"run {id} has ended")
        if self._execution is None or self._verdict is not None or not self._interactive:
            return NotInteractive(f"run {id} takes no messages now: it is {self._status}")
        if self._submission.job.accepts == "streaming" and not self._streaming:
            return NotStreaming(f"run {id} takes messages only while it streams")
        if self._compacting:
            return Compacting(f"run {id} is compacting and takes no messages meanwhile: try again later")
        if self._untaken >= MAX_MESSAGES:
            return QueueFull(f"{MAX_MESSAGES} messages wait for run {id} already: try again later")
        return None

    async def _answer(self, message: AnswerInterrupt) -> None:
        message.reply.set(await self._questions.answer(message))

    async def _keep(self, message: KeepTime) -> None:
        """Nothing to do but to be awake: the timers have been set."""

    # Slots and clocks.

    async def _release_slot(self, waiting_for: str, memos: tuple[Memo, ...], *before: Event) -> None:
        event = self._transition(Status.SUSPENDED, reason=waiting_for, waiting_for=waiting_for, by="body")
        await self._commit(*before, event, memos=memos, leaves=True)
        self._status = Status.SUSPENDED
        self._stop_run_clock()

    def _enter_lane(self) -> None:
        submission = self._submission
        assert submission.place is not None, "a run that executed has a place"
        self._tell("lane", submission.lane, Enter(submission, submission.place, False))

    def _give_back(self, generation: int) -> None:
        submission = self._submission
        self._tell("lane", submission.lane, Leave(submission.id, generation))
        self._tell("supervisor", "", Left(submission.id, submission.lane, generation, False))

    def _go_on(self) -> None:
        """Let a body go on whose wait is over."""
        resuming, self._resuming = self._resuming, None
        if resuming is not None:
            resuming.set(None)

    def _keep_time(self) -> None:
        terms, since = self._submission.terms, self._submission.created_at
        if terms.queue_timeout is not None:
            self._timers[self._queue_timeout] = since + terms.queue_timeout
        if terms.deadline is not None:
            self._timers[self._deadline] = since + terms.deadline

    def _start_run_clock(self) -> None:
        now = self._executing_since = trio.current_time()
        if self._submission.terms.run_timeout is not None:
            self._timers[self._run_timeout] = now + self._submission.terms.run_timeout - self._executed

    def _stop_run_clock(self) -> None:
        if self._executing_since is not None:
            self._executed += trio.current_time() - self._executing_since
            self._executing_since = None
        self._timers.pop(self._run_timeout, None)

    def _set_deadline(self) -> None:
        self.deadline = min(min(self._timers.values(), default=math.inf), self._questions.deadline())

    # Changes.

    async def _commit(
        self,
        *events: Event,
        generation: int | None = None,
        memos: tuple[Memo, ...] = (),
        leaves: bool = False,
        also: Done | Cancelling | None = None,
    ) -> Outcome:
        """Commit events, the last of which may be a transition. `leaves`: the run gives back its slot or its
        place in the queue with it. `also` is told to the handle."""
        submission, last = self._submission, events[-1]
        expect = REPORTING
        tells: list[tuple[Kind, str, object]] = []
        if isinstance(last, RunStateChanged):
            expect = allowed_from(last.to, live_body=self._execution is not None)
        if leaves:
            ended = isinstance(also, Done)
            tells.append(("lane", submission.lane, Leave(submission.id, self._generation)))
            tells.append(("supervisor", "", Left(submission.id, submission.lane, self._generation, ended)))
            self._generation = None
        if also is not None:
            tells.append(("handle", submission.handle, also))
        change = Change(
            events,
            run=submission.id,
            expect=expect,
            generation=generation,
            memos=memos,
            tells=tuple(tells),
        )
        return await self._journal.ask(change)

    def _transition(
        self,
        to: Status,
        *,
        reason: str | None,
        by: str = "engine",
        attempt: int | None = None,
        waiting_for: str | None = None,
        interactive: bool | None = None,
        result: Any = None,
        error: str | None = None,
        holds_handle: bool = False,
    ) -> RunStateChanged:
        submission = self._submission
        return RunStateChanged(
            seq=0,
            at=0,
            by=by,
            run=submission.id,
            handle=submission.handle,
            lane=submission.lane,
            from_=self._status,
            to=to,
            attempt=self._attempt if attempt is None else attempt,
            reason=reason,
            place=submission.place,
            waiting_for=waiting_for,
            interactive=interactive,
            result=result,
            error=error,
            holds_handle=holds_handle,
        )

    def _changed(self, **flags: bool) -> RunChanged:
        submission = self._submission
        return RunChanged(
            seq=0,
            at=0,
            by="body",
            run=submission.id,
            handle=submission.handle,
            lane=submission.lane,
            interactive=flags.get("interactive"),
            streaming=flags.get("streaming"),
            compacting=flags.get("compacting"),
        )

    def _tell(self, kind: Kind, name: str, message: object) -> None:
        self._delivery.tell(kind, name, message)

    def _log_failure(self, error: BaseException, then: str) -> None:
        submission = self._submission
        expected = is_probe(submission.handle) or is_probe(submission.lane)
        logger.log(
            logging.DEBUG if expected else logging.ERROR,
            "run %s of job %r on handle %r failed in attempt %d %s: %s",
            submission.id,
            submission.job.name,
            submission.handle,
            self._attempt,
            then,
            error_text(error),
            exc_info=error,
        )


def error_text(error: BaseException) -> str:
    """An exception in one line; a group as the exceptions in it."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(error_text(part) for part in error.exceptions)
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


_HANDLERS: dict[type, Callable[[Any, Any], Awaitable[None]]] = {
    Granted: RunActor._granted,
    BodyEnded: RunActor._body_ended,
    Cancel: RunActor._cancel,
    Stop: RunActor._stop,
    KeepTime: RunActor._keep,
    Suspend: RunActor._suspend,
    Resume: RunActor._resume,
    Ask: RunActor._ask,
    Unask: RunActor._unask,
    Flag: RunActor._flag,
    Taken: RunActor._taken,
    Inject: RunActor._inject,
    AnswerInterrupt: RunActor._answer,
}
