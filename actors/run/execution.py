"""One execution: a body in its own task, inside the cancel scope with which the run ends it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import msgspec
import trio

from ...protocol.parameters import convert_params
from ..jobs import Job
from .api import Run
from .blocking import BlockingRun
from .context import Body
from .pause import Pause


class Returned(msgspec.Struct):
    """The body returned a value."""

    value: Any


class Raised(msgspec.Struct):
    """The body raised."""

    error: BaseException


class Stopped(msgspec.Struct):
    """The body ended because its scope was cancelled."""


class BodyEnded(msgspec.Struct):
    """From an execution to the run's actor: the body has ended.

    The outcome is a `Pause` if the run continues later with a new body.
    """

    outcome: Returned | Raised | Stopped | Pause


class LiveBody(msgspec.Struct, frozen=True):
    """A description of an executing body, for logs and errors."""

    run: str
    attempt: int
    patience: float
    """Seconds between a request to end and the moment the body is abandoned; infinite if it never is."""


class LiveBodies:
    """The bodies that execute. `ends` is called when one has ended, before its run is notified."""

    def __init__(self, ends: Callable[[Execution], None] = lambda _: None) -> None:
        self.may_begin: Callable[[], Awaitable[None]] | None = None
        """Awaited before the first step of each body: returns when the body may execute."""
        self._ends = ends
        self._executions: dict[Execution, None] = {}
        self._begun: dict[Execution, None] = {}  # those that have executed their first step
        self._abandoned: dict[Execution, None] = {}
        self._none = trio.lowlevel.ParkingLot()

    def __iter__(self) -> Iterator[Execution]:
        return iter(self._executions)

    def __contains__(self, execution: Execution) -> bool:
        return execution in self._executions

    def add(self, execution: Execution) -> None:
        """A body begins."""
        self._executions[execution] = None

    def begin(self, execution: Execution) -> None:
        """A body executes its first step."""
        self._begun[execution] = None

    def begun(self) -> Sequence[Execution]:
        """The bodies that have executed their first step. Can be called from any thread."""
        return list(self._begun)

    def remove(self, execution: Execution) -> None:
        """A body has ended."""
        self._ends(execution)
        del self._executions[execution]
        self._begun.pop(execution, None)
        self._abandoned.pop(execution, None)
        self._look()

    def abandoned(self, execution: Execution) -> None:
        """A body is abandoned: `none` no longer waits for it."""
        self._abandoned[execution] = None
        self._look()

    async def none(self) -> None:
        """Wait until only abandoned bodies execute."""
        while len(self._executions) > len(self._abandoned):
            await self._none.park()

    def _look(self) -> None:
        if len(self._executions) == len(self._abandoned):
            self._none.unpark_all()


class Execution:
    """A body while it executes. `interrupt` is called with errors that must stop the engine, such as
    `KeyboardInterrupt`."""

    def __init__(
        self,
        job: Job,
        body: Body,
        params: Any,
        interrupt: Callable[[BaseException], None],
    ) -> None:
        self.body = body
        self.scope = trio.CancelScope()
        self.lapsed = False
        """Whether the body was ended because the engine lost its lease; its outcome is then ignored."""
        self.children: Sequence[str] = ()
        """The child runs that the body waited for when the lease was lost."""
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
        return LiveBody(self.body.id, self.body.attempt, patience)

    def lapse(self, why: str) -> None:
        """End the body immediately. Its run's actor decides afterwards how the run continues."""
        self.lapsed = True
        self.children = tuple(self.body.children)
        self.body.request_cancel()
        self.body.resume_later()
        self.body.lapse(why)
        self.scope.cancel()

    @trio.lowlevel.enable_ki_protection
    async def __call__(self, living: LiveBodies) -> None:
        """Execute the body and report its outcome to the run's actor. It is in `living` until it ends."""
        outcome: Returned | Raised | Stopped | Pause = Stopped()
        try:
            with self.scope:
                if living.may_begin is not None:
                    await living.may_begin()
                living.begin(self)
                value = await self._execute()
                outcome = value if isinstance(value, Pause) else Returned(self.body.as_result(value))
        except Exception as error:
            outcome = Raised(error)
        except BaseException as error:
            if not _is_cancel(error):
                self._interrupt(error)
            elif trio.current_effective_deadline() == -math.inf:
                raise  # the engine itself is being cancelled
            outcome = Raised(error)
        finally:
            living.remove(self)
        self.body.tell_actor(BodyEnded(Stopped() if self.lapsed else outcome))

    @trio.lowlevel.disable_ki_protection
    async def _execute(self) -> Any:
        job, run = self._job, Run(self.body)
        if job.params_type is not None:
            run.params = convert_params(self._params, job.params_type)
        arguments = (run.params,) if job.params_type is not None else ()
        if job.loop == "asyncio":
            return await self.body.services.asyncio_bodies.execute(job.function, run, *arguments)
        if not job.in_thread:
            return await job.function(run, *arguments)
        return await trio.to_thread.run_sync(job.function, BlockingRun(run), *arguments, limiter=_UNLIMITED)


_UNLIMITED = trio.CapacityLimiter(math.inf)
"""Slots limit how many bodies execute; an additional limit on threads could only cause deadlocks."""


def _is_cancel(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[1] is None
    return isinstance(error, trio.Cancelled)
