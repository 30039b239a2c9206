"""One execution: a body in a task of its own, inside the cancel scope by which its run ends it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import trio

from ..protocol.parameters import convert_params
from .actor import Actor
from .blocking import BlockingRun
from .body import Run
from .jobs import Job


class Returned(msgspec.Struct, gc=False):
    """The body returned a value."""

    value: Any


class Raised(msgspec.Struct, gc=False):
    """The body raised."""

    error: BaseException


class Stopped(msgspec.Struct, gc=False):
    """The body ended because its scope was cancelled."""


class BodyEnded(msgspec.Struct, gc=False):
    """To the run's actor: no code of this execution is left."""

    outcome: Returned | Raised | Stopped


class Execution:
    """A body while it executes. `interrupt` is told of what is no mere failure (Ctrl-C, say)."""

    def __init__(
        self,
        job: Job,
        run: Run,
        params: Any,
        actor: Actor,
        interrupt: Callable[[BaseException], None],
    ) -> None:
        self.run = run
        self.scope = trio.CancelScope()
        self._job = job
        self._params = params
        self._actor = actor
        self._interrupt = interrupt

    @trio.lowlevel.enable_ki_protection
    async def __call__(self, living: dict[Execution, None]) -> None:
        """Execute the body, and tell the run's actor how it ended. It stands in `living` meanwhile."""
        outcome: Returned | Raised | Stopped = Stopped()
        living[self] = None
        try:
            with self.scope:
                outcome = Returned(await self._body())
        except Exception as error:
            outcome = Raised(error)
        except BaseException as error:
            if _is_cancel(error):
                raise  # the engine itself is going down
            self._interrupt(error)
            outcome = Raised(error)
        finally:
            del living[self]
        self._actor.tell(BodyEnded(outcome))

    @trio.lowlevel.disable_ki_protection
    async def _body(self) -> Any:
        job, run = self._job, self.run
        if job.params_type is not None:
            run.params = convert_params(self._params, job.params_type)
        arguments = (run.params,) if job.params_type is not None else ()
        if not job.in_thread:
            return await job.function(run, *arguments)
        return await trio.to_thread.run_sync(job.function, BlockingRun(run), *arguments, limiter=_UNLIMITED)


_UNLIMITED = trio.CapacityLimiter(math.inf)
"""Slots limit how many bodies execute; a limit on threads beside that could only deadlock."""


def _is_cancel(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(trio.Cancelled) is not None
    return isinstance(error, trio.Cancelled)
