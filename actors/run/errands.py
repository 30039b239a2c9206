"""Work of a run that takes time outside the engine, such as deleting files: done beside the run's actor.

No machine waits for a disk in its turn. It gives such work to a helper task and goes on; a message brings it
the outcome, and only then does what was to follow happen. The errands of one run are done one at a time, in
order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from .context import Services
from .state import RunState, Steps

T = TypeVar("T")


class ErrandDone(msgspec.Struct):
    """From a helper task to the run's actor: its first errand is done, or has failed with an error that is a
    bug."""

    outcome: Any = None
    error: Exception | None = None


def send(run: RunState, work: Callable[[], Awaitable[T]], then: Callable[[T], Steps]) -> None:
    """Have work done beside the actor, after the errands before it; `then` is called in the actor's turn."""
    run.errands = (*run.errands, (work, then))
    if len(run.errands) == 1:
        _begin_first(run)


def done(run: RunState, message: ErrandDone) -> Steps:
    """The first errand is done: do what was to follow, and begin the next one."""
    if message.error is not None:
        raise message.error
    (_, then), *rest = run.errands
    run.errands = tuple(rest)
    yield from then(message.outcome)
    if rest:
        _begin_first(run)


def _begin_first(run: RunState) -> None:
    run.effects.help(partial(_do, run.services, run.id, run.errands[0][0]))


async def _do(services: Services, run: str, work: Callable[[], Awaitable[Any]]) -> None:
    try:
        message = ErrandDone(await work())
    except Exception as error:  # the actor raises it, which names the run and stops the engine
        message = ErrandDone(error=error)
    services.delivery.tell("run", run, message)
