"""Work of a run that takes time outside the engine, such as deleting files: done beside the run's actor.

An actor never waits for a disk in its turn: a slot that it was granted meanwhile would hold up every later
start. So it gives such work to a helper task and goes on; a message brings it the outcome, and only then does
what was to follow happen. The errands of one run are done one at a time, in order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from .runstate import RunState

T = TypeVar("T")


class ErrandDone(msgspec.Struct):
    """From a helper task to the run's actor: its first errand is done, or has failed with an error that is a
    bug."""

    outcome: Any = None
    error: Exception | None = None


def send(run: RunState, work: Callable[[], Awaitable[T]], then: Callable[[T], Awaitable[None]]) -> None:
    """Have work done beside the actor, after the errands before it; `then` is called in the actor's turn."""
    run.errands = (*run.errands, (work, then))
    if len(run.errands) == 1:
        _begin_first(run)


async def done(run: RunState, message: ErrandDone) -> None:
    """The first errand is done: do what was to follow, and begin the next one."""
    if message.error is not None:
        raise message.error
    (_, then), *rest = run.errands
    run.errands = tuple(rest)
    await then(message.outcome)
    if rest:
        _begin_first(run)


def _begin_first(run: RunState) -> None:
    run.services.spawn(partial(_do, run, run.errands[0][0]))


async def _do(run: RunState, work: Callable[[], Awaitable[Any]]) -> None:
    try:
        message = ErrandDone(await work())
    except Exception as error:  # the actor raises it, which names the run and stops the engine
        message = ErrandDone(error=error)
    run.delivery.tell("run", run.id, message)
