"""Background tasks of a run: work that takes time outside the engine, such as deleting files.

A machine never waits for a disk during its turn. It passes such work to a helper task and continues; a
message brings the result, and only then the follow-up step is executed. The background tasks of one run are
executed one at a time, in order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from .services import Services
from .state import RunState, Steps

T = TypeVar("T")


class BackgroundDone(msgspec.Struct):
    """From a helper task to the run's actor: the first background task is done or has failed."""

    outcome: Any = None
    error: Exception | None = None


def add(run: RunState, work: Callable[[], Awaitable[T]], then: Callable[[T], Steps]) -> None:
    """Queue work for a helper task; `then` is called with its result in a turn of the actor."""
    run.background = (*run.background, (work, then))
    if len(run.background) == 1:
        _begin_first(run)


def done(run: RunState, message: BackgroundDone) -> Steps:
    """The first task is done: execute its follow-up step and begin the next task."""
    if message.error is not None:
        raise message.error
    (_, then), *rest = run.background
    run.background = tuple(rest)
    yield from then(message.outcome)
    if rest:
        _begin_first(run)


def _begin_first(run: RunState) -> None:
    run.effects.help(partial(_do, run.services, run.id, run.background[0][0]))


async def _do(services: Services, run: str, work: Callable[[], Awaitable[Any]]) -> None:
    try:
        message = BackgroundDone(await work())
    except Exception as error:  # the actor raises it, so that the log names the run and the engine stops
        message = BackgroundDone(error=error)
    services.delivery.tell("run", run, message)
