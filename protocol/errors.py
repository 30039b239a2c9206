"""Every error that Greenroom answers with: one class per code, each with its HTTP status.

The embedded engine raises them, the gateway sends them, and clients raise the same classes again from what
they receive (`from_code`). `details` are JSON values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from .records import RunRecord


class GreenroomError(Exception):
    """The base of all errors that name a code."""

    code: ClassVar[str] = "internal"
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, /, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details: Mapping[str, Any] = details


class Invalid(GreenroomError):
    """A value does not fit; the message names it and what would fit."""

    code = "invalid"
    http_status = 400


class Unauthorized(GreenroomError):
    """No token, or one that nobody issued."""

    code = "unauthorized"
    http_status = 401


class Forbidden(GreenroomError):
    """The token does not permit this command: its role, or what it is limited to."""

    code = "forbidden"
    http_status = 403


class NotFound(GreenroomError):
    """Nothing has this name or id."""

    code = "not_found"
    http_status = 404


class Conflict(GreenroomError):
    """The state as it is does not permit this; `details` holds `active_run` or `run`."""

    code = "conflict"
    http_status = 409


class HandleLocked(GreenroomError):
    """The handle has an admitted run, so its draft parameters can't change."""

    code = "handle_locked"
    http_status = 409


class NotInteractive(GreenroomError):
    """The run does not take messages or a cancel now: it has not begun, or is in post-processing."""

    code = "not_interactive"
    http_status = 409


class NotStreaming(GreenroomError):
    """The job takes messages only while it streams, and it doesn't now."""

    code = "not_streaming"
    http_status = 409


class Compacting(GreenroomError):
    """The run is compacting and takes no messages meanwhile."""

    code = "compacting"
    http_status = 409


class NoActiveRun(GreenroomError):
    """The handle has no admitted run, or the run has ended."""

    code = "no_active_run"
    http_status = 409


class TooLarge(GreenroomError):
    """A value has more bytes than are allowed."""

    code = "too_large"
    http_status = 413


class RateLimited(GreenroomError):
    """Too many commands in too short a time."""

    code = "rate_limited"
    http_status = 429


class QueueFull(GreenroomError):
    """Too many pending runs, or too many untaken messages."""

    code = "queue_full"
    http_status = 429


class Internal(GreenroomError):
    """A fault of Greenroom itself."""


class Draining(GreenroomError):
    """The engine takes no new runs now."""

    code = "draining"
    http_status = 503


class Unavailable(GreenroomError):
    """The engine has stopped, or its store can't be reached; nothing was changed."""

    code = "unavailable"
    http_status = 503


BY_CODE: dict[str, type[GreenroomError]] = {
    error.code: error
    for error in (
        Invalid,
        Unauthorized,
        Forbidden,
        NotFound,
        Conflict,
        HandleLocked,
        NotInteractive,
        NotStreaming,
        Compacting,
        NoActiveRun,
        TooLarge,
        RateLimited,
        QueueFull,
        Internal,
        Draining,
        Unavailable,
    )
}


def from_code(code: str, message: str, details: Mapping[str, Any]) -> GreenroomError:
    """The exception for an error that arrived over a wire; an unknown code becomes `Internal`."""
    return BY_CODE.get(code, Internal)(message, **details)


class RunEnded(Exception):
    """A run that was waited for ended without a result; `run` is its last state."""

    def __init__(self, run: RunRecord) -> None:
        why = run.error or run.reason
        super().__init__(f"run {run.id} of job {run.job!r} {run.status}" + (f": {why}" if why else ""))
        self.run = run


class RunFailed(RunEnded):
    """The body raised, or the process died while it executed and it may not be repeated."""


class RunCancelled(RunEnded):
    """A user, a clear, a replacement or a shutdown cancelled it."""


class RunTimedOut(RunEnded):
    """One of its deadlines passed."""


class RunRejected(RunEnded):
    """It could not be started any more after a restart."""


class RunAbandoned(Exception):
    """Raised inside a body whose run goes on without it: it ignored its cancellation past its grace, was
    outlived by a newer attempt, or its run has ended. Nothing that it reports is taken any more."""
