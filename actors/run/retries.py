"""Whether an error of a body permits another attempt, and how many seconds later that begins.

The process in which the body has executed decides (`decide`) and calls the job's own backoff function
(`own_delay`), because it has the exception and the job's functions. The engine counts the attempts, and
computes the delay of the built-in backoffs (`delay`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import msgspec

from ...protocol.retries import Fail, Retry
from ..jobs import Job
from ..retry_options import call_backoff, exponential
from .failures import error_text

logger = logging.getLogger("greenroom")


class Decision(msgspec.Struct, frozen=True, gc=False):
    """What follows from an error: whether it permits another attempt, after how many seconds (`None`: as the
    job's backoff says), and the text of the error."""

    retries: bool
    after: float | None
    text: str


def decide(job: Job, attempt: int, error: BaseException) -> Decision:
    """Decide about the error with which this attempt has ended.

    `Fail` is never retried, and `Retry` always is; for other errors `never_on` decides, then `retry_on`. An
    exception group is retried if everything in it is.
    """
    if not isinstance(error, Exception):
        return Decision(False, None, error_text(error))
    parts = list(_parts(error))
    failed = [part for part in parts if isinstance(part, Fail)]
    if failed:
        return Decision(False, None, "; ".join(error_text(part) for part in failed))
    text = error_text(error)
    after = max((part.after for part in parts if isinstance(part, Retry)), default=None)
    if after is not None and attempt >= job.max_attempts:
        text = f"{text} (no attempts remain: max_attempts is {job.max_attempts})"
    forbidden = any(isinstance(part, job.never_on) for part in parts if not isinstance(part, Retry))
    return Decision(not forbidden and _permits(job, error), after, text)


def delay(job: Job, attempt: int, error: BaseException, random: Callable[[], float]) -> float:
    """The seconds from the failure of this attempt to the next one, as the job's backoff says.

    The default backoff gets jitter, between half of it and all of it, so that runs that fail at the same time
    do not return at the same time.
    """
    own = own_delay(job, attempt, error, random)
    return _default_delay(attempt, random) if own is None else own


def _default_delay(attempt: int, random: Callable[[], float]) -> float:
    return exponential(attempt) * (0.5 + random() / 2)


def own_delay(job: Job, attempt: int, error: BaseException, random: Callable[[], float]) -> float | None:
    """The job's own backoff, a number or the result of its function; `None` if it has the default one."""
    backoff = job.backoff
    if backoff is exponential:
        return None
    if not callable(backoff):
        return backoff
    try:
        return call_backoff(backoff, attempt, *([error] if job.backoff_takes_error else ()))
    except Exception:  # an error in the job's code; the run continues with the default
        logger.exception(
            "backoff function of job %r failed for attempt %d; using the default", job.name, attempt
        )
        return _default_delay(attempt, random)


def _permits(job: Job, error: BaseException) -> bool:
    """Whether `retry_on` permits another attempt."""
    if job.retry_on is None or isinstance(error, (Retry, *job.retry_on)):
        return True
    return isinstance(error, BaseExceptionGroup) and all(_permits(job, part) for part in error.exceptions)


def _parts(error: BaseException) -> Iterator[BaseException]:
    """An exception and, if it is a group, everything in it."""
    yield error
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _parts(part)
