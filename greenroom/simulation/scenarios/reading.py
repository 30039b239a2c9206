"""Calls that read runs, and checks of their results."""

from __future__ import annotations

from collections.abc import Awaitable
from random import Random
from typing import TypeVar

from ...protocol.errors import GreenroomError, Unavailable
from ...protocol.events import RunProgress
from ...protocol.records import RunRecord
from .bodies import HANDLES
from .callers import Caller

T = TypeVar("T")


async def snapshot(caller: Caller, random: Random) -> None:
    await caller.client.snapshot()


async def get_run(caller: Caller, random: Random) -> None:
    id = caller.some_run(random)
    run = await _unless_unknown(caller, id, caller.client.get_run(id))
    if run is not None:
        _check_shown(caller, run)


async def _unless_unknown(caller: Caller, id: str, asked: Awaitable[T]) -> T | None:
    """Await a call about a run. If the run is not found, check that it does not exist, and return `None`."""
    try:
        return await asked
    except Unavailable:
        raise
    except GreenroomError:
        caller.check(id not in caller.model.runs, f"received an error for run {id}, which exists")
        return None


def _check_shown(caller: Caller, run: RunRecord) -> None:
    known = caller.model.runs[run.id]
    right = (
        run.status in known.statuses_between(caller.since, caller.model.seq) and run.params == known.params
    )
    caller.check(right, f"received {run}, but it is {known}")


async def list_runs(caller: Caller, random: Random) -> None:
    handle, status = random.choice((None, *HANDLES)), random.choice((None, "queued", "succeeded"))
    runs = await caller.client.list_runs(handle=handle, status=status, limit=random.choice((2, 100)))
    ids = [run.id for run in runs]
    caller.check(ids == sorted(ids, reverse=True), f"received a list of runs that is not newest first: {ids}")
    for run in runs:
        fits = handle in (None, run.handle) and status in (None, run.status)
        caller.check(fits, f"listed runs with handle {handle} and status {status}, but received {run}")
        _check_shown(caller, run)


async def history(caller: Caller, random: Random) -> None:
    id = caller.some_run(random)
    shown = await _unless_unknown(caller, id, caller.client.history(id))
    if shown is None:
        return
    kept = [
        event
        for event in caller.model.events
        if getattr(event, "run", None) == id and not isinstance(event, RunProgress)
    ]
    least = sum(event.seq <= caller.since for event in kept)
    right = len(shown) >= least and shown == kept[: len(shown)]
    caller.check(right, f"received the history {shown} of run {id}, but it is {kept}")
