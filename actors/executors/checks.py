"""Checks of what an executor sends: every value and name, as for a body in the engine's process.

An executor can run other code than ours, so nothing that it sends is trusted.
"""

from __future__ import annotations

import math
from typing import Any, cast

import msgspec

from ...persistence.files import inside
from ...protocol import executors as wire
from ...protocol.errors import Invalid
from ...protocol.lane_settings import check_priority
from ...protocol.names import FLOW, check_name
from ...protocol.submission import OnWait, SubmitCommand, SubmitOptions, from_wire
from ...protocol.validation import check_labels, check_needs, check_seconds, check_text
from ...protocol.values import json_value, shown
from ..scheduling.stored_bodies import CHILD_PREFIX

MOST_NAMES = 1000
"""The number of jobs, functions or calls of an executor."""
_MOST_PATHS = 1000
_LONGEST_PATH = 4096


def check_attach(attach: wire.Attach, max_bytes: int, *, child: bool) -> None:
    """Check what an executor announces. Raises `GreenroomError`."""
    check_name("executor", attach.executor)
    check_name("start", attach.start)
    if attach.executor.startswith(CHILD_PREFIX) != child:
        raise Invalid(
            f"executor {shown(attach.executor)}: names that begin with local- are reserved for child "
            "processes of the engine: choose another name",
            value=attach.executor,
        )
    for what, names in (
        ("jobs", attach.jobs),
        ("functions", attach.functions),
        ("calls", attach.calls),
    ):
        if len(names) > MOST_NAMES:
            raise Invalid(f"{what} must have at most {MOST_NAMES:,} entries (got {len(names):,})")
    for job in attach.jobs:
        _check_terms(job, max_bytes)
    for function in attach.functions:
        check_name("function", function)
    check_labels("labels", attach.labels)
    if attach.folder:
        check_name("folder", attach.folder)
    if attach.version:
        check_name("version", attach.version)


def _check_terms(job: wire.JobTerms, max_bytes: int) -> None:
    if check_name("job", job.name) == FLOW:
        raise Invalid(f"job name {FLOW!r} is reserved for flows: choose another name")
    check_name("lane", job.lane)
    check_needs(job.needs)
    if job.priority is not None:
        check_priority("priority", job.priority)
    json_value(job.params, "params", max_bytes)
    for what in ("backoff", "run_timeout", "queue_timeout", "deadline", "grace"):
        _check_duration(what, getattr(job, what))


def checked_request(request: wire.Request, max_bytes: int) -> wire.Request:
    """Return the request if all its values are valid. Raises `GreenroomError`."""
    match request:
        case wire.WriteLog():
            json_value(request.text, "log", max_bytes)
            check_name("level", request.level)
        case wire.SaveCheckpoint():
            json_value(request.value, "checkpoint", max_bytes)
        case wire.ReleaseSlot():
            _check_duration("within", request.within)
        case wire.OpenInterrupt():
            json_value(request.data, "interrupt", max_bytes)
            check_name("key", request.key)
            _check_duration("timeout", request.timeout)
        case wire.CallChild():
            json_value(request.params, "params", max_bytes)
        case wire.AwaitChild():
            check_text("run", request.run)
        case wire.FinishFile():
            _check_path(request.path)
        case wire.GiveUpFiles():
            if len(request.paths) > _MOST_PATHS:
                raise Invalid(f"paths must have at most {_MOST_PATHS:,} entries (got {len(request.paths):,})")
            for path in request.paths:
                _check_path(path)
        case _:
            pass  # its fields are checked when it is decoded
    return request


def checked_report(report: wire.Report, max_bytes: int) -> wire.Report:
    """Return the report if all its values are valid. Raises `GreenroomError`."""
    match report:
        case wire.Progress():
            json_value({"done": report.done, "total": report.total, **report.stats}, "progress", max_bytes)
        case wire.BlockedLoop():
            json_value(report.where, "where", max_bytes)
            _check_duration("seconds", report.seconds)
        case _:
            pass
    return report


def checked_result(value: Any, max_bytes: int) -> Any:
    """Return the result of a body if it is valid. Raises `GreenroomError`."""
    return json_value(value, "result", max_bytes)


def submit_options(request: wire.CallChild, on_wait: OnWait | None) -> SubmitOptions:
    """The options of a child run, encoded as in the command `submit`. Raises `Invalid`."""
    fields = {"id": 0, "on_conflict": "queue", **request.options, "params": request.params}
    try:
        command = msgspec.convert(fields, SubmitCommand)
    except msgspec.ValidationError as error:
        raise Invalid(f"options of the child run are invalid: {error}") from None
    return SubmitOptions(
        job=request.job,
        handle=request.handle,
        params=request.params,
        on_wait=on_wait,
        **cast(dict[str, Any], from_wire(command)),
    )


def checked_delay(seconds: float | None) -> float | None:
    """Return the delay before a retry; `None`, the job's default, if it is not valid."""
    try:
        _check_duration("retry_after", seconds)
    except Invalid:
        return None
    return seconds


def _check_path(path: str) -> None:
    if len(path.encode()) > _LONGEST_PATH:
        raise Invalid(f"path must have at most {_LONGEST_PATH:,} bytes (got {len(path.encode()):,})")
    inside(path)


def _check_duration(what: str, seconds: float | None) -> None:
    if seconds is not None and not math.isfinite(check_seconds(what, seconds, 0)):
        raise Invalid(f"{what} must be finite, or null for no limit (got {shown(seconds)})")
