"""The error text of a failed body, for the run's record and for the log."""

from __future__ import annotations

import logging

from ...protocol.names import is_probe
from ..messages import Submission

logger = logging.getLogger("greenroom")

_LONGEST_ERROR = 10_000


class Failure(Exception):
    """A failure with a complete message: it is logged without a traceback."""


def error_text(error: BaseException) -> str:
    """An exception as text of limited length; an exception group as the exceptions in it."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(error_text(part) for part in error.exceptions[:10])[:_LONGEST_ERROR]
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
    expected = is_probe(submission.handle) or is_probe(submission.lane)
    logger.log(
        logging.DEBUG if expected else logging.ERROR,
        "run %s of job %r on handle %r failed in attempt %d %s: %s",
        submission.id,
        submission.job.name,
        submission.handle,
        attempt,
        then,
        error_text(error),
        exc_info=None if isinstance(error, Failure) else error,
    )
