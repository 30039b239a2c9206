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
from msgspec.structs import replace

from ..persistence.store import FilesDoomed, Memo, MessagesTaken, StoredRun, WakesAt
from ..protocol.errors import (
    Conflict,
    GreenroomError,
    Invalid,
    NoActiveRun,
    NotInteractive,
    RunAbandoned,
    RunCancelled,
)
from ..protocol.events import Event, RunChanged, RunMessage
from ..protocol.names import is_probe
from ..protocol.records import RunRecord
from ..protocol.states import Status
from ..protocol.values import copied
from .actor import Actor, Countdown, Delivery, Reply, TellWhenSet
from .body import Ask, Flag, Resume, Run, Services, Suspend, Taken, Unask, cancel_child
from .change import Change
from .doorstep import Doorstep
from .execution import BodyEnded, Execution, LiveBodies, Raised, Returned
from .jobs import exponential, unknown_job
from .journal import LoadCheckpoint, WatchEnd
from .ledger import Ledger
from .messages import (
    AnswerInterrupt,
    BodyGone,
    Cancel,
    Enter,
    Forget,
    Granted,
    Inject,
    KeepTime,
    Leave,
    Left,
    Recover,
    Recovered,
    Reject,
    Retry,
    Stop,
    Submission,
)
from .questions import Questions
from .timers import RunClock, Timers

logger = logging.getLogger("greenroom")

_LONGEST_ERROR = 10_000
_AT_ONCE = 0.001


class Verdict(msgspec.Struct, frozen=True):
    """How the run goes on once its body, which has been told to end, has ended."""

    to: Status
    reason: str
    by: str


class ChildrenEnded(msgspec.Struct, gc=False):
    """To itself, after a restart: the runs that its last body waited for have ended."""


class RunActor(Actor):
    """See the module's text."""

    def __init__(
        self,
        submission: Submission,
        delivery: Delivery,
        services: Services,
        live_bodies: LiveBodies,
        spawn: Callable[[Execution], None],
        interrupt: Callable[[BaseException], None],
    ) -> None:
        super().__init__("run", submission.id)
        self._submission = submission
        self._delivery = delivery
        self._services = services
        self._journal = services.journal
        self._live_bodies = live_bodies
        self._spawn = spawn
        self._interrupt = interrupt
        self._ledger = Ledger(submission, services.journal)
        self._doorstep = Doorstep(submission.id, submission.job.accepts)
        self._questions = Questions(submission, services.journal, services.wall_clock)
        self._timers = Timers()
        self._run_clock = RunClock()
        self._next_attempt = 1  # the number of the attempt that the next slot is for
        self._execution: Execution | None = None
        self._verdict: Verdict | None = None
        self._abandoned = False
        self._stopping: Stop | None = None
        self._resuming: Reply[None] | None = None  # of a body whose wait is over, and that needs a slot
        self._inbox: list[Any] = []  # what the last body left
        self._files: list[str] = []  # what this run has finished
        self._files_doomed = False
        self._orphans: list[str] = []  # the children of a body that a restart has ended
        terms, since = submission.terms, submission.created_at
        if terms.queue_timeout is not None:
            self._timers.set(self._queue_timeout, since + terms.queue_timeout)
        if terms.deadline is not None:
            self._timers.set(self._deadline, since + terms.deadline)
        if submission.stored is not None:
            self._restore(submission.stored)

    def has_work(self) -> bool:
        if self._execution is not None:
            return not (self._abandoned and self._stopping is not None)
        if self._ledger.ended or (self._stopping is not None and self._stopping.now):
            return False
        return self._ledger.status is not Status.QUEUED or len(self._timers) > 0

    def report(self) -> dict[str, Any]:
        return super().report() | {
            "job": self._submission.job.name,
            "status": str(self._ledger.status),
            "attempt": self._ledger.attempt,
            "body": self._execution is not None,
            "abandoned": self._abandoned,
            "messages": len(self._doorstep.waiting),
        }

    async def on_batch(self, messages: Sequence[Any]) -> None:
        for message in messages:
            await _HANDLERS[type(message)](self, message)
        self._set_deadline()

    async def on_deadline(self) -> None:
        now = trio.current_time()
        await self._timers.act(now)
        await self._questions.on_deadline(now)
        self._look_for_answers()
        self._set_deadline()

    def _set_deadline(self) -> None:
        self.deadline = min(self._timers.next(), self._questions.deadline())

    # Executing.

    async def _granted(self, message: Granted) -> None:
        ledger = self._ledger
        await self._timers.act(trio.current_time() + _AT_ONCE)  # a deadline comes before the slot
        startable = ledger.status in (Status.QUEUED, Status.SUSPENDED) and self._verdict is None
        if not startable or (self._stopping is not None and self._stopping.now):
            self._give_back(message.generation)
            return
        resumes = self._execution is not None
        outcome = await ledger.move(
            Status.RUNNING,
            live_body=resumes,
            reason=None,
            attempt=self._next_attempt,
            generation=message.generation,
            interactive=None if resumes else True,
        )
        if not outcome.held and self._submission.over:  # it could not be stored
            self._give_back(message.generation)
            return
        if not outcome.held:  # the lane was reset since, and the slot with it: back to the same place
            self._enter_lane()
            return
        executed = self._run_clock.start()
        if self._submission.terms.run_timeout is not None:
            left = self._submission.terms.run_timeout - executed
            self._timers.set(self._run_timeout, trio.current_time() + left)
        if resumes:
            self._go_on()
        else:
            await self._start_body()

    async def _start_body(self) -> None:
        submission = self._submission
        self._timers.drop(self._queue_timeout)
        self._doorstep.new_body()
        run = Run(
            submission, self._ledger.attempt, await self._load_checkpoint(), self._inbox, self, self._services
        )
        self._inbox = []
        self._execution = Execution(submission.job, run, submission.params, self, self._interrupt)
        self._spawn(self._execution)

    async def _load_checkpoint(self) -> Any:
        """What the body goes on from: what this run has saved, or for a `continue` also what another has."""
        submission = self._submission
        if submission.kind == "start" and self._ledger.attempt == 1 and submission.stored is None:
            return None
        reply: Reply[Any] = Reply()
        self._journal.tell(LoadCheckpoint(submission.handle, submission.job.name, reply))
        saved = await reply.get()
        if saved is None or (submission.kind == "start" and saved.run != submission.id):
            return None
        return copied(saved.value)

    async def _body_ended(self, message: BodyEnded) -> None:
        execution, self._execution = self._execution, None
        assert execution is not None, "a run has one body at a time"
        self._inbox = execution.run.close("its body has ended")
        self._files += execution.run.finished_files
        self._resuming = None
        self._doorstep.no_body()
        self._timers.drop(self._cancel_scope)
        self._timers.drop(self._abandon)
        if self._abandoned:
            self._delivery.tell("handle", self._submission.handle, BodyGone(self._submission.id))
            return
        outcome, verdict = message.outcome, self._verdict
        if verdict is not None and verdict.to is Status.TIMED_OUT:
            await self._end(Status.TIMED_OUT, reason=verdict.reason)
        elif isinstance(outcome, Returned):
            await self._returned(outcome.value, execution.run)
        elif isinstance(outcome, Raised) and not self._passes_cancel_on(outcome.error):
            await self._raised(outcome.error)
        else:
            assert verdict is not None, "a body's scope is cancelled only by a verdict"
            await self._stopped(verdict)

    def _passes_cancel_on(self, error: BaseException) -> bool:
        """Whether the body raised because a child of it was cancelled together with it."""
        verdict = self._verdict
        return verdict is not None and verdict.to is Status.CANCELLED and isinstance(error, RunCancelled)

    async def _returned(self, value: Any, run: Run) -> None:
        verdict = self._verdict
        if verdict is not None and verdict.to is Status.CANCELLED and run.obeyed_cancel:
            await self._end(Status.CANCELLED, reason=verdict.reason, by=verdict.by)
            return
        await self._end(Status.SUCCEEDED, reason=None, result=value, by="body")

    async def _raised(self, error: BaseException) -> None:
        job, ledger = self._submission.job, self._ledger
        may_retry = (
            self._verdict is None and isinstance(error, Exception) and ledger.attempt < job.max_attempts
        )
        self._log_failure(error, "and is tried again" if may_retry else "and has no attempt left")
        if not may_retry:
            await self._end(Status.FAILED, reason="error", error=error_text(error), by="body")
            return
        delay = self._retry_delay()
        if ledger.status is Status.RUNNING:
            wakes_at = self._services.wall_clock() + delay
            await ledger.move(
                Status.SUSPENDED,
                *self._questions.closing("ended", None, "body"),
                memos=(WakesAt(self.name, wakes_at),),
                live_body=False,
                reason="retry",
                waiting_for="retry",
                interactive=False,
                error=error_text(error),
                by="body",
            )
        else:  # another task of the body had given the slot back to wait
            closing = self._questions.closing("ended", None, "body")
            await ledger.note(*closing, self._no_body())
        self._questions.forget()
        self._timers.drop(self._run_timeout)
        self._run_clock.reset()
        self._next_attempt = ledger.attempt + 1
        self._timers.set(self._retry, trio.current_time() + delay)

    def _retry_delay(self) -> float:
        job, attempt = self._submission.job, self._ledger.attempt
        try:
            return job.delay(attempt)
        except Exception:  # the job author's mistake; the run goes on with the default
            logger.exception("backoff of job %r failed for attempt %d", job.name, attempt)
            return exponential(attempt)

    async def _stopped(self, verdict: Verdict) -> None:
        if verdict.to is not Status.SUSPENDED:
            await self._end(verdict.to, reason=verdict.reason, by=verdict.by)
        elif self._ledger.status is Status.RUNNING:
            await self._suspend_for_shutdown()
        else:
            await self._ledger.note(self._no_body())

    async def _retry(self) -> None:
        self._delivery.tell("supervisor", "", Retry(self._submission.id))

    # Ending.

    async def _cancel(self, message: Cancel) -> None:
        status = self._ledger.status
        only_queued = message.reason in ("lane_cleared", "handle_cleared")
        if self._ledger.ended or status is Status.CANCELLING or (only_queued and status is not Status.QUEUED):
            message.reply.fail(await self._cannot_cancel())
        elif self._execution is None:
            if message.files == "delete" and self._files:
                self._files_doomed = True
                await self._ledger.note(memos=(FilesDoomed(self.name),))
            run = await self._end(Status.CANCELLED, reason=message.reason, by=message.by)
            message.reply.set(run)
        elif not self._doorstep.interactive:
            message.reply.fail(
                NotInteractive(f"run {self._submission.id} is in post-processing: it ends by itself")
            )
        else:
            await self._cancel_body(message)

    async def _cannot_cancel(self) -> Conflict:
        id = self._submission.id
        run = await self._journal.look(lambda committed: committed.runs.get(id))
        return Conflict(f"run {id} is {self._ledger.status} and can't be cancelled", run=run)

    async def _cancel_body(self, message: Cancel) -> None:
        why = "shutdown" if message.reason == "shutdown" else "cancelled"
        refusal = {"approved": False, "reason": why}
        memos: tuple[Memo, ...] = ()
        if message.files == "delete":
            memos = (FilesDoomed(self._submission.id),)
            self._files_doomed = True
        outcome = await self._ledger.move(
            Status.CANCELLING,
            *self._questions.closing(why, refusal, message.by),
            live_body=True,
            reason=message.reason,
            by=message.by,
            memos=memos,
        )
        self._questions.refuse(refusal)
        if self._verdict is None or self._verdict.to is Status.SUSPENDED:
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
        else:
            for child in execution.run.children:
                self._delivery.tell("supervisor", "", cancel_child(child))
        self._go_on()
        if job.cancel == "cooperative":
            self._timers.set(self._cancel_scope, now + job.grace)
            self._timers.set(self._abandon, now + 2 * job.grace)
        else:
            execution.scope.cancel()
            self._timers.set(self._abandon, now + job.grace)

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
        self._live_bodies.abandoned(execution)
        self._questions.fail(RunAbandoned(f"run {submission.id}: {why}"))
        try:
            await execution.run.discard_parts()
        except OSError:
            logger.exception("run %s left unfinished files that could not be deleted", self.name)
        self._files += execution.run.finished_files
        if verdict.to is not Status.SUSPENDED:
            await self._end(verdict.to, reason="abandoned", body_remains=True)
        elif self._ledger.status is Status.RUNNING:
            await self._suspend_for_shutdown()

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
        if self._files_doomed and to is not Status.SUCCEEDED:
            await self._delete_files()
        outcome = await self._ledger.move(
            to,
            *self._questions.closing("ended", None, by),
            live_body=self._execution is not None,
            reason=reason,
            by=by,
            result=result,
            error=error,
            holds_handle=body_remains,
        )
        assert outcome.held, f"run {self.name} could not become {to} from {self._ledger.status}"
        self._questions.forget()
        self._timers.clear()
        for child in self._orphans:
            self._delivery.tell("supervisor", "", cancel_child(child))
        return outcome.run

    async def _delete_files(self) -> None:
        try:
            await self._services.files.delete(self._submission.handle, self._files)
        except OSError:
            logger.exception("run %s could not delete all of its files %s", self.name, self._files)

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
        waits = self._ledger.status is Status.SUSPENDED
        if not message.now and not resumable:
            await self._refuse_questions()
        elif not message.now and not waits:
            return  # it executes, and has some time to finish
        elif resumable:
            self._stop_body(Verdict(Status.SUSPENDED, "shutdown", "engine"))
        else:
            await self._cancel_body(Cancel(self.name, "engine", "shutdown", "keep", Reply()))

    async def _refuse_questions(self) -> None:
        refusal = {"approved": False, "reason": "shutdown"}
        events = self._questions.closing("shutdown", refusal, "engine")
        if events:
            await self._ledger.note(*events)
            self._questions.refuse(refusal)

    async def _suspend_for_shutdown(self) -> None:
        await self._ledger.move(
            Status.SUSPENDED, live_body=False, reason="shutdown", waiting_for="slot", interactive=False
        )

    # What the body asks.

    async def _suspend(self, message: Suspend) -> None:
        if self._verdict is not None:
            message.reply.set(None)
        elif self._ledger.status is not Status.RUNNING:
            message.reply.fail(self._second_wait())
        else:
            memos = () if message.wakes_at is None else (WakesAt(self.name, message.wakes_at),)
            await self._release_slot(message.waiting_for, memos)
            message.reply.set(None)

    def _no_body(self) -> RunChanged:
        return self._ledger.changed(interactive=False, streaming=False, compacting=False)

    async def _release_slot(self, waiting_for: str, memos: tuple[Memo, ...], *before: Event) -> None:
        await self._ledger.move(
            Status.SUSPENDED,
            *before,
            live_body=True,
            reason=waiting_for,
            waiting_for=waiting_for,
            by="body",
            memos=memos,
        )
        self._run_clock.stop()
        self._timers.drop(self._run_timeout)

    async def _resume(self, message: Resume) -> None:
        if self._verdict is not None or self._ledger.status is not Status.SUSPENDED:
            message.reply.set(None)
        else:
            self._resuming = message.reply
            self._enter_lane()

    def _go_on(self) -> None:
        """Let a body go on whose wait is over."""
        resuming, self._resuming = self._resuming, None
        if resuming is not None:
            resuming.set(None)

    async def _ask(self, message: Ask) -> None:
        questions = self._questions
        stopping = self._stopping is not None and not self._submission.job.resumable
        if self._verdict is not None or stopping:
            message.answer.set({"approved": False, "reason": "shutdown" if stopping else "cancelled"})
            message.reply.set(False)
        elif message.key in questions.answers:
            message.answer.set(questions.answers[message.key])
            message.reply.set(False)
        elif (refusal := self._refuses_question(message)) is not None:
            message.reply.fail(refusal)
        else:
            opened = questions.open(message)
            if message.release_slot:
                await self._release_slot("answer", (), *opened)
            elif opened:
                await self._ledger.note(*opened)
            message.reply.set(message.release_slot)

    def _refuses_question(self, message: Ask) -> GreenroomError | None:
        if self._questions.asked_by_body(message.key):
            return Conflict(f"run {self.name} asks under key {message.key!r} already")
        if message.release_slot:
            return None if self._ledger.status is Status.RUNNING else self._second_wait()
        left = self._timers.left(self._run_timeout)
        if message.timeout >= left and self._submission.terms.run_timeout is not None:
            return Invalid(
                f"timeout {message.timeout:g} must be shorter than the {left:g} s that are left of the run's "
                "own time: shorten it, or wait with release_slot=True",
                value=message.timeout,
            )
        return None

    def _second_wait(self) -> Conflict:
        return Conflict(f"run {self.name} waits without its slot already: one such wait at a time")

    async def _unask(self, message: Unask) -> None:
        if self._verdict is not None and self._verdict.to is Status.SUSPENDED:
            return  # the run asks on while the engine is away
        event = self._questions.withdraw(message.key)
        if event is not None and not self._ledger.ended:
            await self._ledger.note(event)

    async def _flag(self, message: Flag) -> None:
        await self._ledger.note(self._ledger.changed(**{message.name: message.value}))
        self._doorstep.set(message.name, message.value)
        message.reply.set(None)

    async def _taken(self, message: Taken) -> None:
        waiting = self._doorstep.waiting
        memo = MessagesTaken(self.name, tuple(waiting.popleft() for _ in range(message.count)))
        self._journal.tell(Change((), run=self.name, memos=(memo,)))

    # What others ask.

    async def _inject(self, message: Inject) -> None:
        if self._ledger.ended:
            message.reply.fail(NoActiveRun(f"run {self.name} has ended"))
            return
        if self._verdict is not None:
            self._doorstep.no_body()
        refusal = self._doorstep.refusal()
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
        outcome = await self._ledger.note(event)
        self._doorstep.waiting.append(outcome.seq)
        self._execution.run.deliver(message.message)
        message.reply.set("accepted")

    async def _answer(self, message: AnswerInterrupt) -> None:
        message.reply.set(await self._questions.answer(message))
        self._look_for_answers()

    async def _keep_time(self, message: KeepTime) -> None:
        """Nothing to do but to be awake: the timers are set."""

    # After a restart.

    def _restore(self, stored: StoredRun) -> None:
        """Be what the run was when the engine ended, but for its body."""
        record = stored.record
        self._ledger.status, self._ledger.attempt = record.status, record.attempt
        retried = record.reason == "retry" or not self._submission.job.resumable
        self._next_attempt = record.attempt + (1 if retried else 0)
        self._questions.restore(stored.questions)
        self._files_doomed = stored.files_doomed
        for seq, message in stored.messages:
            self._doorstep.waiting.append(seq)
            self._inbox.append(message)
        if self._ledger.status is not Status.QUEUED:
            self._timers.drop(self._queue_timeout)

    async def _recover(self, message: Recover) -> None:
        await self._go_on_or_end(message)
        self._delivery.tell("supervisor", "", Recovered())

    async def _go_on_or_end(self, message: Recover) -> None:
        """The run had begun: let it go on if its author said that it may, else end it."""
        stored, job = self._submission.stored, self._submission.job
        assert stored is not None, "only a run that was stored can be recovered"
        unfinished = await self._services.files.remove_parts(self._submission.handle, self.name)
        self._files = [path for path in stored.files if path not in unfinished]
        record, ledger = stored.record, self._ledger
        may_go_on = job.resumable or record.attempt < job.max_attempts
        if ledger.status is Status.CANCELLING or self._files_doomed:
            self._orphans = message.children
            await self._end(Status.CANCELLED, reason=record.reason)
        elif ledger.status is Status.SUSPENDED and not job.registered:
            await self._end(Status.REJECTED, reason="unknown_job", error=unknown_job(job.name))
        elif not may_go_on or not job.registered:
            why = unknown_job(job.name) if not job.registered else "the process ended while it executed"
            await self._end(Status.FAILED, reason="crashed", error=why)
        elif ledger.status is Status.RUNNING:
            await ledger.move(
                Status.SUSPENDED,
                *self._questions.closing("ended", None, "engine"),
                live_body=False,
                reason="recovered",
                waiting_for="slot",
                interactive=False,
            )
            self._questions.forget()
            self._enter_lane()
        else:
            await ledger.note(self._no_body())
            self._wait_again(stored, message.children)

    def _wait_again(self, stored: StoredRun, children: list[str]) -> None:
        """Wait for what the run waited for, and then for a slot for a new body."""
        waiting_for, wakes_at = stored.record.waiting_for, stored.wakes_at
        left = 0.0 if wakes_at is None else max(0.0, wakes_at - self._services.wall_clock())
        if waiting_for == "retry" and not left:
            self._delivery.tell("supervisor", "", Retry(self.name))
        elif waiting_for == "retry":
            self._timers.set(self._retry, trio.current_time() + left)
        elif waiting_for == "time" and left:
            self._timers.set(self._wake, trio.current_time() + left)
        elif waiting_for == "answer":
            self._look_for_answers()
        elif waiting_for == "child" and children:
            self._orphans = children
            all_ended: Reply[None] = TellWhenSet(self, ChildrenEnded())
            each = Countdown([all_ended], len(children))
            for child in children:
                self._journal.tell(WatchEnd(child, each))
        else:
            self._enter_lane()

    def _look_for_answers(self) -> None:
        """A run without a body that waited for an answer goes on when none of its questions is open."""
        stored = self._submission.stored
        if (
            stored is not None
            and stored.record.waiting_for == "answer"
            and self._execution is None
            and self._ledger.status is Status.SUSPENDED
            and self._questions.deadline() == math.inf
            and not self._questions.any_open()
        ):
            self._submission.stored = replace(stored, record=replace(stored.record, waiting_for="slot"))
            self._enter_lane()

    async def _wake(self) -> None:
        self._enter_lane()

    async def _children_ended(self, message: ChildrenEnded) -> None:
        if self._ledger.status is Status.SUSPENDED and self._execution is None:
            self._enter_lane()

    async def _forget(self, message: Forget) -> None:
        """The run could not be stored: there is nothing to end."""
        self._ledger.status = Status.REJECTED
        self._timers.clear()

    async def _reject(self, message: Reject) -> None:
        await self._end(Status.REJECTED, reason="rejected", error=message.why)

    # Slots.

    def _enter_lane(self) -> None:
        submission = self._submission
        assert submission.place is not None, "a run that executed has a place"
        self._delivery.tell("lane", submission.lane, Enter(submission, submission.place, False))

    def _give_back(self, generation: int) -> None:
        submission = self._submission
        self._delivery.tell("lane", submission.lane, Leave(submission.id, generation))
        self._delivery.tell("supervisor", "", Left(submission.id, submission.lane, generation, unused=True))

    def _log_failure(self, error: BaseException, then: str) -> None:
        submission = self._submission
        expected = is_probe(submission.handle) or is_probe(submission.lane)
        logger.log(
            logging.DEBUG if expected else logging.ERROR,
            "run %s of job %r on handle %r failed in attempt %d %s: %s",
            submission.id,
            submission.job.name,
            submission.handle,
            self._ledger.attempt,
            then,
            error_text(error),
            exc_info=error,
        )


def error_text(error: BaseException) -> str:
    """An exception as a text of bounded length; a group as the exceptions in it."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(error_text(part) for part in error.exceptions[:10])[:_LONGEST_ERROR]
    name = type(error).__name__
    try:
        text = str(error)[:_LONGEST_ERROR].encode(errors="backslashreplace").decode()
    except Exception:  # an exception that can't even be printed is still only the job's
        text = "(its text can't be had)"
    return f"{name}: {text}" if text else name


_HANDLERS: dict[type, Callable[[Any, Any], Awaitable[None]]] = {
    Granted: RunActor._granted,
    BodyEnded: RunActor._body_ended,
    Cancel: RunActor._cancel,
    Stop: RunActor._stop,
    KeepTime: RunActor._keep_time,
    Suspend: RunActor._suspend,
    Resume: RunActor._resume,
    Ask: RunActor._ask,
    Unask: RunActor._unask,
    Flag: RunActor._flag,
    Taken: RunActor._taken,
    Inject: RunActor._inject,
    AnswerInterrupt: RunActor._answer,
    Recover: RunActor._recover,
    Reject: RunActor._reject,
    Forget: RunActor._forget,
    ChildrenEnded: RunActor._children_ended,
}
