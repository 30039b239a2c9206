"""The options of a job for retries: which errors are retried, and the delay before the next attempt."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

from ..protocol.errors import Invalid
from ..protocol.validation import check_seconds
from ..protocol.values import shown

Errors = tuple[type[Exception], ...]
Backoff = float | Callable[[int], float] | Callable[[int, Exception], float]


def exponential(attempt: int) -> float:
    """The default backoff, in seconds: 1, 2, 4, … and at most 60."""
    return min(60.0, 2.0 ** min(attempt - 1, 6))


def check_errors(job: str, option: str, errors: object) -> Errors:
    """Return the types of exceptions of `retry_on` or `never_on`: one type, or several."""
    types = errors if isinstance(errors, tuple | list) else (errors,)
    for each in types:
        if not (isinstance(each, type) and issubclass(each, Exception)):
            raise Invalid(
                f"job {job!r}: {option} must contain only subclasses of Exception (got {shown(each)})"
            )
    return tuple(types)


def check_backoff(job: str, backoff: object) -> tuple[Backoff, bool]:
    """Return the backoff of a job, and whether it is a function that takes the error after the attempt.

    It does if it has a second parameter without a default, or one with the name `error`.
    """
    if not callable(backoff):
        return _check_delay(backoff), False
    try:
        signature = inspect.signature(backoff)
    except (TypeError, ValueError):  # a built-in function
        return backoff, False
    parameters = [each for each in signature.parameters.values() if each.kind in _BY_POSITION]
    takes_error = len(parameters) > 1 and (
        parameters[1].default is inspect.Parameter.empty or parameters[1].name == "error"
    )
    try:
        signature.bind(*([1, None] if takes_error else [1]))
    except TypeError as error:
        raise Invalid(
            f"job {job!r}: backoff is called with the attempt, or with attempt and error: {error}"
        ) from None
    return backoff, takes_error


_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def call_backoff(backoff: Callable[..., object], *arguments: object) -> float:
    """Call a caller's backoff function, and check its result."""
    return _check_delay(backoff(*arguments))


def _check_delay(seconds: object) -> float:
    checked = check_seconds("backoff", seconds, 0)
    if not math.isfinite(checked):
        raise Invalid(f"backoff must be a finite number of seconds (got {shown(seconds)})")
    return checked
