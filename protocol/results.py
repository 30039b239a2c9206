"""From a run's last state to a result or an exception."""

from __future__ import annotations

from typing import Any

from .errors import RunCancelled, RunEnded, RunFailed, RunRejected, RunTimedOut, Unavailable
from .records import RunRecord
from .states import Status
from .values import copied

_RAISED: dict[Status, type[RunEnded]] = {
    Status.FAILED: RunFailed,
    Status.CANCELLED: RunCancelled,
    Status.TIMED_OUT: RunTimedOut,
    Status.REJECTED: RunRejected,
}


def raise_unless_succeeded(run: RunRecord | None) -> Any:
    """The result of an ended run, or the exception that says how it ended."""
    if run is None:
        raise Unavailable("the run is not in the engine's memory any more: ask for it by its id")
    if run.status is Status.SUCCEEDED:
        return copied(run.result)
    raise _RAISED[run.status](run)
