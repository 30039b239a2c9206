"""From a run's last state to a result or an exception."""

from __future__ import annotations

from typing import Any

from .errors import Invalid, RunCancelled, RunEnded, RunFailed, RunRejected, RunTimedOut, Unavailable
from .jobs import AnyJob
from .parameters import convert_result
from .records import RunRecord
from .states import Status
from .values import copied, shown

_RAISED: dict[Status, type[RunEnded]] = {
    Status.FAILED: RunFailed,
    Status.CANCELLED: RunCancelled,
    Status.TIMED_OUT: RunTimedOut,
    Status.REJECTED: RunRejected,
}


def raise_unless_succeeded(run: RunRecord | None, job: AnyJob | None = None) -> Any:
    """The result of an ended run, or the exception that says how it ended. With the function that was
    submitted, the result is converted to its return annotation."""
    if run is None:
        raise Unavailable("the run is not in the engine's memory any more: ask for it by its id")
    if run.status is Status.SUCCEEDED:
        return copied(run.result) if job is None or job.result_type is None else _converted(run, job)
    raise _RAISED[run.status](run)


def _converted(run: RunRecord, job: AnyJob) -> Any:
    try:
        return convert_result(run.result, job.result_type)
    except Invalid as error:
        raise Invalid(
            f"result of job {shown(run.job)}, run {run.id}, doesn't fit the function's return annotation: "
            f"{error.message}; get_run gives it as it is",
            run_id=run.id,
            **error.details,
        ) from None
