"""A failed body, told to people: the text that becomes its run's error, and the line in the log."""

from __future__ import annotations

import logging

from ...protocol.names import is_probe
from ..messages import Submission

logger = logging.getLogger("greenroom")

_LONGEST_ERROR = 10_000


class Failure(Exception):
    """A failure whose text says it all: where it was raised is of no interest."""


def error_text(error: BaseException) -> str:
    """An exception as a text of bounded length; a group as the exceptions in it."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(error_text(part) for part in error.exceptions[:10])[:_LONGEST_ERROR]
    if isinstance(error, Failure):
        return str(error)[:_LONGEST_ERROR]
    name = type(error).__name__
    try:
        text = str(error)[:_LONGEST_ERROR].encode(errors="backslashreplace").decode()
    except Exception:  # an exception that can't even be printed is still only the job's
        text = "(its text can't be had)"
    return f"{name}: {text}" if text else name


def log_failure(submission: Submission, attempt: int, error: BaseException, then: str) -> None:
    """Log a failure and what comes `then`; as an error, unless the run is a probe, which may fail."""
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
