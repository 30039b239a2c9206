"""A run: the one authority over how it goes on and how it ends.

Its actor is awake while there is something to do: a body that executes, a timer, a wait. It starts the body
in a task of its own when the lane grants a slot, answers for it meanwhile, and commits each transition before
anyone hears of it. A queued run without a timer has no actor; its submission is all there is of it.

Here stand the actor and how it starts a body. What it does about everything else that it is told stands in
`asking.py`, `ending.py`, `outcomes.py` and `comeback.py`: functions that are given its `RunState`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import trio

from ..persistence.store import Checkpoint
from ..protocol.states import Status
from . import asking, comeback, ending, errands, outcomes
from .actor import Actor, Delivery, TellWhenSet
from .body import Body, Services
from .bodymessages import Ask, Flag, Resume, Save, Suspend, Taken, Unask
from .errands import ErrandDone
from .execution import BodyEnded, Execution, LiveBodies
from .messages import (
    AnswerInterrupt,
    Cancel,
    Forget,
    Granted,
    Inject,
    KeepTime,
    Recover,
    Reject,
    SendSignal,
    Stop,
    Submission,
)
from .runstate import RunState
from .suspends import Suspended

_AT_ONCE = 0.001


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
        self._spawn = spawn
        self._interrupt = interrupt
        self._state = run = RunState(submission, delivery, services, live_bodies)
        terms, since = submission.terms, submission.created_at
        if terms.queue_timeout is not None:
            run.timers.set("queue_timeout", since + terms.queue_timeout)
        if terms.deadline is not None:
            run.timers.set("deadline", since + terms.deadline)
        if submission.stored is not None:
            comeback.restore(run, submission.stored)

    def has_work(self) -> bool:
        run = self._state
        if run.errands:
            return True
        if run.execution is not None:
            return not (run.abandoned and run.stopping is not None)
        if run.ledger.ended or (run.stopping is not None and run.stopping.now):
            return False
        return run.ledger.status is not Status.QUEUED or len(run.timers) > 0 or len(run.inbox) > 0

    def report(self) -> dict[str, Any]:
        run = self._state
        return super().report() | {
            "job": run.submission.job.name,
            "status": str(run.ledger.status),
            "attempt": run.ledger.attempt,
            "body": run.execution is not None,
            "abandoned": run.abandoned,
            "messages": len(run.doorstep.waiting),
        }

    async def on_batch(self, messages: Sequence[Any]) -> None:
        for message in messages:
            await self._handle(message)
        self._set_deadline()

    async def _handle(self, message: Any) -> None:
        run, kind = self._state, type(message)
        if kind is ErrandDone:
            await errands.done(run, message)
        elif run.starting:
            run.put_aside = (*run.put_aside, message)
        elif kind is Granted:
            await self._granted(message)
        elif kind is Recover:
            children_ended = TellWhenSet(self, comeback.ChildrenEnded())
            await comeback.recover(run, message, children_ended)
        else:
            await _HANDLERS[kind](run, message)

    async def on_deadline(self) -> None:
        now = trio.current_time()
        await self._act_on_timers(now)
        await self._state.questions.on_deadline(now)
        comeback.look_for_answers(self._state)
        self._set_deadline()

    def _set_deadline(self) -> None:
        if self._state.starting:
            self.deadline = math.inf  # its body begins soon, and all is looked at then
            return
        self.deadline = min(self._state.timers.next(), self._state.questions.deadline())

    async def _act_on_timers(self, now: float) -> None:
        run = self._state
        for timer in run.timers.take_due(now):
            match timer:
                case "queue_timeout" | "run_timeout" | "deadline":
                    await ending.expire(run, timer)
                case "cancel_scope":
                    ending.cancel_scope(run)
                case "abandon":
                    await ending.abandon(run)
                case "retry":
                    run.ask_for_new_place()
                case "wake":
                    waited, stored = run.waits_for, run.submission.stored
                    if waited is not None:
                        run.woken_at = waited.until
                    elif stored is not None:
                        run.woken_at = stored.wakes_at
                    run.stop_waiting()
                case "detach":
                    await comeback.detach(run)

    async def _granted(self, message: Granted) -> None:
        """There is a slot: for a new body, or for the one whose wait is over."""
        run = self._state
        ledger, terms = run.ledger, run.submission.terms
        await self._act_on_timers(trio.current_time() + _AT_ONCE)  # a deadline comes before the slot
        startable = ledger.status in (Status.QUEUED, Status.SUSPENDED) and run.verdict is None
        if not startable or run.ending or (run.stopping is not None and run.stopping.now):
            run.give_back(message.generation)
            return
        resumes = run.execution is not None
        outcome = await ledger.move(
            Status.RUNNING,
            live_body=resumes,
            reason=None,
            attempt=run.next_attempt,
            generation=message.generation,
            interactive=None if resumes else True,
        )
        if not outcome.held and run.submission.refused:  # it could not be stored
            run.give_back(message.generation)
            return
        if not outcome.held:  # the lane was reset since, and the slot with it: back to the same place
            run.enter_lane()
            return
        executed = run.run_clock.start()
        if terms.run_timeout is not None:
            run.timers.set("run_timeout", trio.current_time() + terms.run_timeout - executed)
        if resumes:
            run.go_on()
        else:
            await self._prepare_body()

    async def _prepare_body(self) -> None:
        """Start a body, as soon as it is known what it goes on from."""
        run = self._state
        run.timers.drop("queue_timeout")
        run.doorstep.new_body()
        if not run.errands and _begins_afresh(run):
            self._start_body(None)
        else:
            run.starting = True
            errands.send(run, partial(_load_checkpoint, run), self._go_on_from)

    async def _go_on_from(self, checkpoint: Checkpoint | None) -> None:
        run = self._state
        run.starting = False
        await self._act_on_timers(trio.current_time())  # its time may be over before its body begins
        if run.ledger.status is Status.RUNNING and not run.ending:
            self._start_body(checkpoint)
        messages, run.put_aside = run.put_aside, ()
        for message in messages:
            await self._handle(message)

    def _start_body(self, checkpoint: Checkpoint | None) -> None:
        run = self._state
        submission = run.submission
        body = Body(
            submission,
            run.ledger.attempt,
            checkpoint,
            tuple(run.inbox),
            self,
            run.services,
            run.questions.kept,
        )
        body.woken_at, run.woken_at = run.woken_at, None
        run.inbox = ()
        run.execution = Execution(submission.job, body, submission.params, self, self._interrupt)
        self._spawn(run.execution)


def _begins_afresh(run: RunState) -> bool:
    """Whether nothing can have been saved that the body could go on from."""
    submission = run.submission
    first = run.ledger.attempt == 1 and submission.stored is None and not run.lapsed
    return submission.kind == "start" and first


async def _load_checkpoint(run: RunState) -> Checkpoint | None:
    """What the body goes on from: what this run has saved, or for a `continue` also what another has.
    Whatever was saved by then is committed, since the start is."""
    submission = run.submission
    if _begins_afresh(run):
        return None
    saved = await run.journal.checkpoint(submission.handle, submission.job.name)
    if saved is None or (submission.kind == "start" and saved.run != submission.id):
        return None
    return saved


async def _keep_time(run: RunState, message: KeepTime) -> None:
    """Nothing to do but to be awake: the timers are set."""


async def _suspended(run: RunState, message: Suspended) -> None:
    """The machine was suspended: what waits for a time of day is nearer to it. Grace and executing time are
    not, for nobody could use them meanwhile."""
    run.timers.advance(message.seconds, ("queue_timeout", "deadline", "retry", "wake"))
    run.questions.advance(message.seconds)
    if run.execution is not None:
        run.execution.body.advance(message.seconds)


_HANDLERS: dict[type, Callable[[RunState, Any], Awaitable[None]]] = {
    BodyEnded: outcomes.body_ended,
    Suspend: asking.suspend,
    Resume: asking.resume,
    Ask: asking.ask,
    Save: asking.save,
    Unask: asking.unask,
    AnswerInterrupt: asking.answer,
    Flag: asking.flag,
    Inject: asking.inject,
    SendSignal: asking.signal,
    Taken: asking.taken,
    Cancel: ending.cancel,
    Stop: ending.stop,
    Reject: ending.reject,
    Forget: ending.forget,
    KeepTime: _keep_time,
    Suspended: _suspended,
    comeback.ChildrenEnded: comeback.go_on_without_children,
}
