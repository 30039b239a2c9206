"""The errors of Greenroom: one class per code, each with its HTTP status.

The embedded engine raises them, the gateway sends them, and clients raise the same classes for the errors
that they receive (`from_code`). `details` are JSON values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from .records import RunRecord


class GreenroomError(Exception):
    """The base class of all errors that have a code."""

    code: ClassVar[str] = "internal"
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, /, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details: Mapping[str, Any] = details


class Invalid(GreenroomError):
    """A value is invalid. The message contains the value and what is accepted."""

    code = "invalid"
    http_status = 400


class Unauthorized(GreenroomError):
    """The token is missing, invalid or revoked."""

    code = "unauthorized"
    http_status = 401


class Forbidden(GreenroomError):
    """The token's role or its restrictions do not permit this command."""

    code = "forbidden"
    http_status = 403


class NotFound(GreenroomError):
    """Nothing has this name or id."""

    code = "not_found"
    http_status = 404


class Conflict(GreenroomError):
    """The current state does not permit this; `details` contains `active_run` or `run`."""

    code = "conflict"
    http_status = 409


class HandleLocked(GreenroomError):
    """The handle has an admitted run, so its draft parameters cannot change."""

    code = "handle_locked"
    http_status = 409


class NotInteractive(GreenroomError):
    """The run accepts no messages and no cancel: its body has not started, or is in post-processing."""

    code = "not_interactive"
    http_status = 409


class NotStreaming(GreenroomError):
    """The job accepts messages only while it streams, and it is not streaming."""

    code = "not_streaming"
    http_status = 409


class Compacting(GreenroomError):
    """The run is compacting and accepts no messages until it has finished."""

    code = "compacting"
    http_status = 409


class NoActiveRun(GreenroomError):
    """The handle has no admitted run, or the run has ended."""

    code = "no_active_run"
    http_status = 409


class TooLarge(GreenroomError):
    """A value is larger than allowed."""

    code = "too_large"
    http_status = 413


class RateLimited(GreenroomError):
    """The client sent too many commands in a short time."""

    code = "rate_limited"
    http_status = 429


class QueueFull(GreenroomError):
    """There are too many pending runs, or too many messages wait for the body."""

    code = "queue_full"
    http_status = 429


class Internal(GreenroomError):
    """An internal error: a bug in Greenroom."""


class Draining(GreenroomError):
    """The engine is draining and accepts no new runs."""

    code = "draining"
    http_status = 503


class Unavailable(GreenroomError):
    """The engine has stopped, or its store is unreachable; nothing was changed."""

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
    """Return the exception for an error that a server sent; an unknown code becomes `Internal`."""
    return BY_CODE.get(code, Internal)(message, **details)


class RunEnded(Exception):
    """The run ended without a result; `run` is its last state."""

    def __init__(self, run: RunRecord) -> None:
        why = run.error or run.reason
        super().__init__(f"run {run.id} of job {run.job!r} {run.status}" + (f": {why}" if why else ""))
        self.run = run


class RunFailed(RunEnded):
    """The body raised an exception, or its process died and the run must not be repeated."""


class RunCancelled(RunEnded):
    """A user, a clear, a replacement or a shutdown cancelled the run."""


class RunTimedOut(RunEnded):
    """A deadline of the run was exceeded."""


class RunRejected(RunEnded):
    """The run could not start after a restart: its job is unknown, or its parameters are invalid."""


class RunAbandoned(Exception):
    """Raised in a body that no longer belongs to its run. All that the body reports is refused.

    The body ignored its cancellation past its grace, a newer attempt has replaced it, or its run has ended.
    """
