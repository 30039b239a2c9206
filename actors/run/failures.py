"""Failed bodies: the error text for the run's record and for the log, and the delay before a retry."""

from __future__ import annotations

import logging

from ...protocol.executors import Ended
from ...protocol.names import is_probe
from ..jobs import Job, exponential
from ..messages import Submission

logger = logging.getLogger("greenroom")

_LONGEST_ERROR = 10_000
_LONGEST_TRACEBACK = 100_000


class Failure(Exception):
    """A failure with a complete message: it is logged without a traceback."""


class RemoteError(Exception):
    """The exception of a body in an executor: its text, its traceback, and what follows from its type."""

    def __init__(self, text: str, traceback: str, *, retries: bool, child_cancelled: bool) -> None:
        super().__init__(text)
        self.text = text[:_LONGEST_ERROR]
        self.traceback = traceback[:_LONGEST_TRACEBACK]
        self.retries = retries
        self.child_cancelled = child_cancelled

    @staticmethod
    def of(ended: Ended) -> RemoteError:
        """The exception that an executor has reported."""
        return RemoteError(
            ended.error or "the body failed",
            ended.traceback or "",
            retries=ended.retries,
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
    name = type(error).__name__
    try:
        text = str(error)[:_LONGEST_ERROR].encode(errors="backslashreplace").decode()
    except Exception:  # an exception whose `__str__` raises must not stop the engine
        text = "(its str() raised an exception)"
    return f"{name}: {text}" if text else name


def log_failure(submission: Submission, attempt: int, error: BaseException, then: str) -> None:
    """Log a failure and what follows it (`then`). Failures of probes are logged at debug level only."""
    level = logging.DEBUG if is_probe(submission.handle) or is_probe(submission.lane) else logging.ERROR
    text = "run %s of job %r on handle %r failed in attempt %d %s: %s"
    about = (submission.id, submission.job.name, submission.handle, attempt, then, error_text(error))
    if not isinstance(error, RemoteError):
        logger.log(level, text, *about, exc_info=None if isinstance(error, Failure) else error)
    elif logger.isEnabledFor(level):
        record = logger.makeRecord(logger.name, level, __file__, 0, text, about, None, log_failure.__name__)
        record.exc_text = error.traceback or None  # what formatters show after the message
        logger.handle(record)


def retry_delay(job: Job, attempt: int) -> float:
    """The seconds from the failure of this attempt to the next one."""
    try:
        return job.delay(attempt)
    except Exception:  # an error in the job's code; the run continues with the default
        logger.exception(
            "backoff function of job %r failed for attempt %d; using the default", job.name, attempt
        )
        return exponential(attempt)
