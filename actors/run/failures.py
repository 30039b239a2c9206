"""Failed bodies: the error text for the run's record and for the log."""

from __future__ import annotations

import logging

from ...protocol.executors import Ended
from ...protocol.names import is_probe
from ...protocol.retries import Fail, Retry
from ..messages import Submission

logger = logging.getLogger("greenroom")

_LONGEST_ERROR = 10_000
_LONGEST_TRACEBACK = 100_000


class Failure(Exception):
    """A failure with a complete message: it is logged without a traceback."""


class RemoteError(Exception):
    """The exception of a body in an executor: its text and its traceback, and whether it is that of a child
    that was cancelled."""

    def __init__(self, text: str, traceback: str, *, child_cancelled: bool) -> None:
        super().__init__(text)
        self.text = text[:_LONGEST_ERROR]
        self.traceback = traceback[:_LONGEST_TRACEBACK]
        self.child_cancelled = child_cancelled

    @staticmethod
    def of(ended: Ended) -> RemoteError:
        """The exception that an executor has reported."""
        return RemoteError(
            ended.error or "the body failed",
            ended.traceback or "",
            child_cancelled=ended.child_cancelled,
        )


def error_text(error: BaseException) -> str:
    """An exception as text of limited length; an exception group as the exceptions in it."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(error_text(part) for part in error.exceptions[:10])[:_LONGEST_ERROR]
    if isinstance(error, RemoteError):
        return error.text
    if isinstance(error, Failure):
        return str(error)[:_LONGEST_ERROR]
    if isinstance(error, Retry):
        cause = _cause(error)
        if cause is not None and not isinstance(cause, Retry):
            return error_text(cause)
    name = type(error).__name__
    try:
        text = str(error)[:_LONGEST_ERROR].encode(errors="backslashreplace").decode()
    except Exception:  # an exception whose `__str__` raises must not stop the engine
        text = "(its str() raised an exception)"
    if isinstance(error, Fail) and text:
        return text  # the message that its author has written
    return f"{name}: {text}" if text else name


def _cause(error: BaseException) -> BaseException | None:
    """The exception that an exception was raised from, or during."""
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def has_traceback(error: BaseException) -> bool:
    """Whether the log shows the traceback of an exception: not if its text says everything."""
    if isinstance(error, Fail | Retry):
        return _cause(error) is not None
    return not isinstance(error, Failure)


def log_failure(submission: Submission, attempt: int, error: BaseException, why: str, then: str) -> None:
    """Log a failure with its text (`why`) and what follows it (`then`). Failures of probes are logged at
    debug level only."""
    level = logging.DEBUG if is_probe(submission.handle) or is_probe(submission.lane) else logging.ERROR
    text = "run %s of job %r on handle %r failed in attempt %d %s: %s"
    about = (submission.id, submission.job.name, submission.handle, attempt, then, why)
    if not isinstance(error, RemoteError):
        logger.log(level, text, *about, exc_info=error if has_traceback(error) else None)
    elif logger.isEnabledFor(level):
        record = logger.makeRecord(logger.name, level, __file__, 0, text, about, None, log_failure.__name__)
        record.exc_text = error.traceback or None  # what formatters show after the message
        logger.handle(record)
