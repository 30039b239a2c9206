"""The machine of a run: the only place that decides how the run continues and how it ends.

`receive(message, now)` decides and leaves the results in `state.effects`: changes to commit, messages to
send, bodies to start, helpers to start. It never waits. While a change of the run is being committed,
further messages are deferred; they are handled in order when the outcome arrives. The functions that decide
`yield` such a change.

This module handles starts. `requests.py`, `termination.py`, `outcomes.py` and `restore.py` contain the rest:
functions that take the `RunState`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from ...persistence.store import Checkpoint
from ...protocol.states import Status
from ..engine.suspends import Suspended
from ..executors.remote_execution import RemoteExecution
from ..journal.change import Committed, Outcome
from ..messages import (
    AnswerInterrupt,
    Cancel,
    Evict,
    Forget,
    Inject,
    KeepTime,
    Recover,
    Reject,
    SendSignal,
    Started,
    Stop,
    Submission,
)
from . import background, outcomes, requests, restore, termination
from .background import BackgroundDone
from .body_messages import (
    Adopted,
    BodyEnded,
    Flag,
    OpenInterrupt,
    Resume,
    Save,
    Suspend,
    Taken,
    WithdrawInterrupt,
)
from .context import Body
from .execution import LiveBodies, LocalExecution
from .local_host import LocalHost
from .services import Services
from .state import AnySteps, RunState, Steps
from .transitions import move


class DeadlineReached(msgspec.Struct, gc=False):
    """From the run's actor to its machine: the deadline has passed."""


class RunMachine:
    """See the module's docstring."""

    __slots__ = ("_interrupt", "_steps", "state")

    def __init__(
        self,
        submission: Submission,
        services: Services,
        live_bodies: LiveBodies,
        interrupt: Callable[[BaseException], None],
        now: float,
    ) -> None:
        self._interrupt = interrupt
        self._steps: AnySteps | None = None
        self.state = run = RunState(submission, services, live_bodies)
        run.now = now
        _set_timers(run)
        if submission.stored is not None:
            restore.restore(run, submission.stored)

    def receive(self, message: Any, now: float) -> None:
        """Handle a message, or defer it."""
        run = self.state
        run.now = now
        if type(message) is Committed and self._steps is not None:
            self._advance(self._steps, message.outcome)
        elif self._steps is not None or (run.starting and type(message) is not BackgroundDone):
            if run.deferred is None:
                run.deferred = deque()
            run.deferred.append(message)
            return
        else:
            self._begin(message)
        if run.deferred:
            self._handle_deferred()

    def has_work(self) -> bool:
        """Whether the run still needs its actor."""
        run = self.state
        if run.background or self._steps is not None:
            return True
        if run.execution is not None:
            if run.stopping is None:
                return True
            return not (run.abandoned or (run.execution.continues and run.stopping.now))
        if run.ended or (run.stopping is not None and run.stopping.now):
            return False
        return run.status is not Status.QUEUED or len(run.timers) > 0 or len(run.inbox) > 0

    def deadline(self) -> float:
        """When the actor must send `DeadlineReached`."""
        run = self.state
        if self._steps is not None or run.starting:
            return math.inf  # the timers are checked when that is done
        due = run.timers.next()
        return min(due, run.interrupts.deadline()) if run.has_interrupts else due

    def _begin(self, message: Any) -> None:
        kind = type(message)
        if kind is Started:
            self._advance(self._started(message))
            return
        steps = _HANDLERS[kind](self.state, message)
        if steps is not None:
            self._advance(steps)

    def _advance(self, steps: AnySteps, outcome: Outcome | None = None) -> None:
        """Continue handling a message, up to the next change that must be committed."""
        try:
            change = next(steps) if outcome is None else steps.send(outcome)
        except StopIteration:
            self._steps = None
        else:
            self._steps = steps
            self.state.effects.commit(change)

    def _handle_deferred(self) -> None:
        """Handle the deferred messages."""
        run = self.state
        while run.deferred and self._steps is None:
            if not run.starting:
                self._begin(run.deferred.popleft())
                continue
            done = next((m for m in run.deferred if type(m) is BackgroundDone), None)
            if done is None:
                return
            run.deferred.remove(done)
            self._begin(done)

    # Starts.

    def _started(self, message: Started) -> Steps:
        """The run has a slot: for a new body, or for a body whose wait has ended."""
        run = self.state
        run.take_slot(message)
        if run.ending is not None:
            if run.ending.to is Status.CANCELLED:
                by, reason = run.ending.by, run.ending.reason
                yield from move(run, Status.CANCELLING, live_body=True, reason=reason, by=by)
            return
        if run.abandoned or (run.execution is None and (message.resumes or run.verdict is not None)):
            yield from self._return_slot()
            return
        if run.verdict is not None:
            return  # its body is ending; the slot is released when it has ended
        executed = run.run_clock.start(run.now)
        run_timeout = run.submission.terms.run_timeout
        if run_timeout is not None:
            run.timers.set("run_timeout", run.now + run_timeout - executed)
        if message.resumes:
            run.resume_body()
        else:
            self._prepare_body()

    def _return_slot(self) -> Steps:
        """Release a slot that was granted for a body that has since ended."""
        run = self.state
        if run.verdict is not None:
            yield from termination.suspend_for_shutdown(run)
            return
        waiting_for = "retry" if run.timers.has("retry") else "slot"
        yield from move(
            run,
            Status.SUSPENDED,
            live_body=False,
            reason="lease_lost" if run.lapsed and waiting_for == "slot" else waiting_for,
            waiting_for=waiting_for,
            interactive=False,
        )
        if waiting_for == "slot":
            run.ask_for_slot()

    def _prepare_body(self) -> None:
        """Start a body, after its checkpoint is loaded if it can have one."""
        run = self.state
        run.timers.drop("queue_timeout")
        run.gate.new_body()
        if not run.background and _has_no_checkpoint(run):
            self._start_body(None)
        else:
            run.starting = True
            background.add(run, partial(_load_checkpoint, run), self._checkpoint_loaded)

    def _checkpoint_loaded(self, checkpoint: Checkpoint | None) -> Steps:
        run = self.state
        run.starting = False
        yield from _handle_timers(run)  # a deadline can have passed before the body starts
        if run.status is Status.RUNNING and run.ending is None:
            self._start_body(checkpoint)

    def _start_body(self, checkpoint: Checkpoint | None) -> None:
        run = self.state
        submission, order = run.submission, run.order_for_body(checkpoint)
        host = LocalHost(submission, run.attempt, run.services, run.answers)
        run.host = host
        if run.woken_at is not None:
            host.woken_at, run.woken_at = run.woken_at, None
        inbox, run.inbox = tuple(run.inbox), ()
        if run.executor is None:
            body = Body(order, host, run.services.surroundings, inbox)
            run.execution = LocalExecution(submission.job, body, order.params, self._interrupt)
        else:
            run.execution = RemoteExecution(order, host, run.executor, inbox)
        run.effects.start_body(run.execution)


def _has_no_checkpoint(run: RunState) -> bool:
    """Whether no checkpoint can exist from which the body could resume."""
    return run.submission.kind == "start" and not run.had_body


async def _load_checkpoint(run: RunState) -> Checkpoint | None:
    """The checkpoint from which the body resumes: the run's own or, for kind `continue`, also another run's.

    The start is committed, so every checkpoint saved before it is committed, too.
    """
    submission = run.submission
    if _has_no_checkpoint(run):
        return None
    saved = await run.services.journal.checkpoint(submission.handle, submission.job.name)
    if saved is None or (submission.kind == "start" and saved.run != submission.id):
        return None
    return saved


def _deadline_reached(run: RunState, message: DeadlineReached) -> Steps:
    yield from _handle_timers(run)
    if run.has_interrupts:
        yield from run.interrupts.on_deadline(run.now)
    restore.check_answers(run)


def _handle_timers(run: RunState) -> Steps:
    for timer in run.timers.take_due(run.now):
        match timer:
            case "queue_timeout" | "run_timeout" | "deadline":
                yield from termination.expire(run, timer)
            case "cancel_scope":
                termination.cancel_scope(run)
            case "abandon":
                termination.abandon(run)
            case "retry":
                run.ask_for_slot(new_place=True)
            case "wake":
                waited, stored = run.waits_for, run.submission.stored
                if waited is not None:
                    run.woken_at = waited.until
                elif stored is not None:
                    run.woken_at = stored.wakes_at
                run.stop_waiting()
            case "detach":
                yield from restore.detach(run)


def _keep_time(run: RunState, message: KeepTime) -> None:
    """Keep the actor awake. Its timers are set, unless it has been awake since before its time."""
    if run.status is Status.QUEUED:
        _set_timers(run)


def _set_timers(run: RunState) -> None:
    """Set the timers of a new run. A delayed one has none until its time, so it needs no actor."""
    submission = run.submission
    if submission.not_before is not None:
        return
    if submission.terms.queue_timeout is not None:
        run.timers.set("queue_timeout", submission.waits_since + submission.terms.queue_timeout)
    if submission.terms.deadline is not None:
        run.timers.set("deadline", submission.created_at + submission.terms.deadline)


def _suspended(run: RunState, message: Suspended) -> None:
    """The computer was suspended: advance all waits that depend on wall time.

    Grace and executing time are not advanced, because no body could use them during the suspend.
    """
    run.timers.advance(message.seconds, ("queue_timeout", "deadline", "retry", "wake"))
    if run.has_interrupts:
        run.interrupts.advance(message.seconds)
    if run.execution is not None:
        run.execution.advance(message.seconds)


_HANDLERS: dict[type, Callable[[RunState, Any], AnySteps | None]] = {
    BackgroundDone: background.done,
    DeadlineReached: _deadline_reached,
    Recover: restore.recover,
    BodyEnded: outcomes.body_ended,
    Adopted: requests.adopted,
    Suspend: requests.suspend,
    Resume: requests.resume,
    OpenInterrupt: requests.open_interrupt,
    Save: requests.save,
    WithdrawInterrupt: requests.withdraw_interrupt,
    AnswerInterrupt: requests.answer,
    Flag: requests.flag,
    Inject: requests.inject,
    SendSignal: requests.signal,
    Taken: requests.taken,
    Cancel: termination.cancel,
    Stop: termination.stop,
    Evict: termination.evict,
    Reject: termination.reject,
    Forget: termination.forget,
    KeepTime: _keep_time,
    Suspended: _suspended,
    restore.ChildrenEnded: restore.children_ended,
}
