"""Convert a run's last state to its result or to an exception."""

from __future__ import annotations

from typing import Any

from .errors import (
    Conflict,
    Invalid,
    RunCancelled,
    RunEnded,
    RunFailed,
    RunRejected,
    RunTimedOut,
    Unavailable,
)
from .jobs import AnyJob
from .parameters import convert_result
from .records import RunRecord
from .states import UNSUCCESSFUL, Status
from .values import copied, shown

_RAISED: dict[Status, type[RunEnded]] = {
    Status.FAILED: RunFailed,
    Status.CANCELLED: RunCancelled,
    Status.TIMED_OUT: RunTimedOut,
    Status.REJECTED: RunRejected,
}


def raise_unless_succeeded(run: RunRecord | None, job: AnyJob | None = None) -> Any:
    """Return the result of an ended run, or raise the exception for the status in which it ended.

    If `job` is the submitted function, the result is converted to its return annotation.
    """
    if run is None:
        raise Unavailable("the run is no longer in the engine's memory: get it by its id")
    if run.status is Status.SUCCEEDED:
        return copied(run.result) if job is None or job.result_type is None else _converted(run, job)
    raise _RAISED[run.status](run)


def failed(run: RunRecord) -> RunRecord:
    """Return a run that ended without success and was not cancelled. Raises `Conflict` for any other."""
    if run.status in UNSUCCESSFUL:
        return run
    words = ", ".join(status for status in Status if status in UNSUCCESSFUL)
    raise Conflict(
        f"run {run.id} is {run.status} and cannot be retried, only runs that are {words}: use rerun", run=run
    )


def _converted(run: RunRecord, job: AnyJob) -> Any:
    try:
        return convert_result(run.result, job.result_type)
    except Invalid as error:
        raise Invalid(
            f"result of job {shown(run.job)}, run {run.id}, does not match the function's return annotation: "
            f"{error.message}; get_run returns it unconverted",
            run_id=run.id,
            **error.details,
        ) from None
