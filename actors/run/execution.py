"""An execution: a body while it executes, as its run's machine sees it.

The body executes in a task of this process (`LocalExecution`) or in an executor
(`actors/executors/remote_execution.py`).
"""

from __future__ import annotations

import inspect
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import msgspec
import trio

from ...protocol.parameters import convert_params
from ...protocol.tracecontext import trace_context
from .. import tracing
from ..jobs import Job
from .api import Run
from .blocking import BlockingRun
from .body_messages import Raised, Returned, Stopped
from .context import Body
from .pause import Pause


class Execution(ABC):
    """See the module's docstring."""

    id: str
    """The id of the run."""
    attempt: int
    lapsed = False
    """Whether the body was ended because the engine lost its lease; its outcome is then ignored."""
    continues = False
    """Whether the body continues when the engine stops, so that the next engine can adopt it."""

    @property
    @abstractmethod
    def untaken(self) -> int:
        """The number of messages or signals that the body has not taken."""

    @abstractmethod
    def deliver(self, message: Any) -> None:
        """Pass a committed message or signal to the body."""

    @abstractmethod
    def request_cancel(self, *, resumes_later: bool) -> None:
        """The body should end. `resumes_later`: the run and its children continue with another body."""

    @abstractmethod
    def stop(self) -> None:
        """Cancel the body's scope."""

    @abstractmethod
    def close(self, why: str) -> Sequence[Any]:
        """Refuse all further calls of the body; returns the messages that it has not taken."""

    @abstractmethod
    def advance(self, seconds: float) -> None:
        """This computer was suspended for `seconds`: shorten the body's sleeps by that."""

    @abstractmethod
    async def discard_parts(self) -> None:
        """Delete the unfinished files of a body that is abandoned."""

    @abstractmethod
    def settle(self) -> None:
        """How the run continues after the end of the body is committed."""


class LiveBody(msgspec.Struct, frozen=True):
    """A description of an executing body, for logs and errors."""

    run: str
    attempt: int
    patience: float
    """Seconds between a request to end and the moment the body is abandoned; infinite if it never is."""


class LiveBodies:
    """The bodies that execute in this process, and those in child processes, for which `none` also waits.
    `ends` is called when one of this process has ended, before its run is notified."""

    def __init__(self, ends: Callable[[LocalExecution], None] = lambda _: None) -> None:
        self.may_begin: Callable[[], Awaitable[None]] | None = None
        """Awaited before the first step of each body: returns when the body may execute."""
        self._ends = ends
        self._executions: dict[LocalExecution, None] = {}
        self._begun: dict[LocalExecution, None] = {}  # those that have executed their first step
        self._abandoned: dict[LocalExecution, None] = {}
        self._elsewhere: dict[Execution, None] = {}  # in child processes of this one
        self._none = trio.lowlevel.ParkingLot()
        self._only_abandoned = trio.lowlevel.ParkingLot()

    def __iter__(self) -> Iterator[LocalExecution]:
        return iter(self._executions)

    def __contains__(self, execution: LocalExecution) -> bool:
        return execution in self._executions

    def add(self, execution: LocalExecution) -> None:
        """A body begins."""
        self._executions[execution] = None

    def begin(self, execution: LocalExecution) -> None:
        """A body executes its first step."""
        self._begun[execution] = None

    def begun(self) -> Sequence[LocalExecution]:
        """The bodies that have executed their first step. Can be called from any thread."""
        return list(self._begun)

    def remove(self, execution: LocalExecution) -> None:
        """A body has ended."""
        self._ends(execution)
        del self._executions[execution]
        self._begun.pop(execution, None)
        self._abandoned.pop(execution, None)
        self._look()

    def abandoned(self, execution: Execution) -> None:
        """A body is abandoned: `none` no longer waits for it."""
        if isinstance(execution, LocalExecution):
            self._abandoned[execution] = None
            self._look()
        else:
            self.ended_elsewhere(execution)

    def begin_elsewhere(self, execution: Execution) -> None:
        """A body begins in a child process, which ends with this one."""
        self._elsewhere[execution] = None

    def ended_elsewhere(self, execution: Execution) -> None:
        """A body in another process has ended."""
        if self._elsewhere.pop(execution, self) is None:
            self._look()

    async def none(self) -> None:
        """Wait until only abandoned bodies execute, here and in child processes."""
        while self._elsewhere or not self.only_abandoned:
            await self._none.park()

    async def only_abandoned_remain(self) -> None:
        """Wait until bodies execute in this process, and all of them are abandoned."""
        while not (self._abandoned and self.only_abandoned):
            await self._only_abandoned.park()

    @property
    def only_abandoned(self) -> bool:
        """Whether no bodies execute in this process except abandoned ones."""
        return len(self._executions) == len(self._abandoned)

    def _look(self) -> None:
        if self.only_abandoned:
            self._only_abandoned.unpark_all()
            if not self._elsewhere:
                self._none.unpark_all()


class LocalExecution(Execution):
    """A body in its own task of this process, inside the cancel scope with which the run ends it.

    `interrupt` is called with errors that must stop the process, such as `KeyboardInterrupt`.
    """

    def __init__(
        self,
        job: Job,
        body: Body,
        params: Any,
        interrupt: Callable[[BaseException], None],
    ) -> None:
        self.id = body.order.run
        self.attempt = body.order.attempt
        self.body = body
        self.scope = trio.CancelScope()
        self._job = job
        self._params = params
        self._interrupt = interrupt

    @property
    def job_name(self) -> str:
        """The job's name."""
        return self._job.name

    @property
    def file(self) -> str | None:
        """The source file of the body, if known."""
        code = getattr(inspect.unwrap(self._job.function), "__code__", None)
        return None if code is None else code.co_filename

    def describe(self) -> LiveBody:
        """A description of this body."""
        job = self._job
        patience = 2 * job.grace if job.cancel == "cooperative" else job.grace
        return LiveBody(self.id, self.attempt, patience)

    # For the run's machine, or the executor's link.

    @property
    def untaken(self) -> int:
        return self.body.untaken

    def deliver(self, message: Any) -> None:
        self.body.deliver(message)

    def request_cancel(self, *, resumes_later: bool) -> None:
        self.body.request_cancel()
        if resumes_later:
            self.body.resume_later()

    def stop(self) -> None:
        self.scope.cancel()

    def close(self, why: str) -> Sequence[Any]:
        return self.body.close(why)

    def advance(self, seconds: float) -> None:
        self.body.advance(seconds)

    async def discard_parts(self) -> None:
        await self.body.discard_parts()

    def settle(self) -> None:
        pass  # the body's task has already ended

    def lapse(self, why: str) -> None:
        """End the body immediately. Its run's actor decides afterwards how the run continues."""
        self.lapsed = True
        self.request_cancel(resumes_later=True)
        self.body.lapse(why)
        self.scope.cancel()

    # The body's task.

    @trio.lowlevel.enable_ki_protection
    async def __call__(self, living: LiveBodies) -> None:
        """Execute the body and report its outcome to its host. It is in `living` until it ends."""
        outcome: Returned | Raised | Stopped | Pause = Stopped()
        try:
            with self.scope:
                if living.may_begin is not None:
                    await living.may_begin()
                living.begin(self)
                span = None
                if self.body.order.traceparent is not None or tracing.API in sys.modules:
                    span = _span_of(self.body)
                if span is None:
                    outcome = self._outcome_of(await self._execute())
                else:
                    outcome = await self._execute_in(span)
        except Exception as error:
            outcome = Raised(error)
        except BaseException as error:
            if not _is_cancel(error):
                self._interrupt(error)
            elif trio.current_effective_deadline() == -math.inf:
                raise  # the process itself is being cancelled
            outcome = Raised(error)
        finally:
            living.remove(self)
        self.body.host.ended(Stopped() if self.lapsed else outcome)

    def check(self) -> None:
        """Raise `Invalid` if the parameters cannot be converted; for an executor, before the body begins."""
        if self._job.params_type is not None:
            convert_params(self._params, self._job.params_type)

    def _outcome_of(self, value: Any) -> Returned | Pause:
        if isinstance(value, Pause):
            return value
        return Returned(self.body.as_result(value), self.body.saw_cancel_request)

    async def _execute_in(self, span: tracing.Span) -> Returned | Pause:
        """Execute the body while the span is the current one."""
        with span:
            try:
                outcome = self._outcome_of(await self._execute())
            except BaseException as error:
                span.set(outcome="failed" if isinstance(error, Exception) else "cancelled")
                raise
            span.set(outcome="paused" if isinstance(outcome, Pause) else "succeeded")
            return outcome

    @trio.lowlevel.disable_ki_protection
    async def _execute(self) -> Any:
        job, run = self._job, Run(self.body)
        if job.params_type is not None:
            run.params = convert_params(self._params, job.params_type)
        arguments = (run.params,) if job.params_type is not None else ()
        if job.loop == "asyncio":
            asyncio_bodies = self.body.surroundings.asyncio_bodies
            return await asyncio_bodies.execute(job.function, run, *arguments)
        if not job.in_thread:
            return await job.function(run, *arguments)
        return await trio.to_thread.run_sync(job.function, BlockingRun(run), *arguments, limiter=_UNLIMITED)


_UNLIMITED = trio.CapacityLimiter(math.inf)
"""Slots limit how many bodies execute; an additional limit on threads could only cause deadlocks."""


def _span_of(body: Body) -> tracing.Span | None:
    order = body.order
    return tracing.start_around_code(
        f"execute {order.job}",
        "consumer",
        trace_context(order.traceparent, order.tracestate),
        run=order.run,
        handle=order.handle,
        lane=order.lane,
        job=order.job,
        attempt=order.attempt,
    )


def _is_cancel(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[1] is None
    return isinstance(error, trio.Cancelled)
