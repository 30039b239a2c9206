"""Which errors permit another attempt, and the delay before it, without a scheduler."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from greenroom import Fail, Jobs, Retry
from greenroom.actors.jobs import Job, announced_job
from greenroom.actors.run.retries import decide, delay, own_delay
from greenroom.errors import Invalid
from greenroom.protocol.executors import JobTerms
from tests.machines.driving import Driver
from tests.machines.making import submission


def job(**options: Any) -> Job:
    jobs = Jobs()
    jobs.job("work", **({"max_attempts": 3} | options))(lambda run: None)
    return jobs.get("work")


def raised_during(first: Exception, error: Exception) -> Exception:
    """An exception that a body raises while it handles another one."""
    try:
        try:
            raise first
        except Exception:
            raise error  # noqa: B904  # as bodies do it
    except Exception as raised:
        return raised


NO_ROUTE, NO_FILE, WRONG = ConnectionError("no route"), FileNotFoundError("x"), ValueError("no")
DECISIONS: dict[str, tuple[dict[str, Any], Exception, bool]] = {
    "every Exception by default": ({}, WRONG, True),
    "of retry_on": ({"retry_on": (OSError,)}, NO_ROUTE, True),
    "one type without a tuple": ({"retry_on": OSError}, NO_ROUTE, True),
    "not of retry_on": ({"retry_on": (OSError,)}, WRONG, False),
    "retry_on nothing": ({"retry_on": ()}, WRONG, False),
    "of never_on": ({"never_on": (ValueError,)}, WRONG, False),
    "not of never_on": ({"never_on": (ValueError,)}, NO_ROUTE, True),
    "never_on wins": ({"retry_on": (OSError,), "never_on": (FileNotFoundError,)}, NO_FILE, False),
    "a group of retry_on": ({"retry_on": (OSError,)}, ExceptionGroup("", [NO_ROUTE, NO_FILE]), True),
    "a group with another": ({"retry_on": (OSError,)}, ExceptionGroup("", [NO_ROUTE, WRONG]), False),
    "a group with one of never_on": (
        {"retry_on": (Exception,), "never_on": (ValueError,)},
        ExceptionGroup("", [ExceptionGroup("", [WRONG])]),
        False,
    ),
    "Retry in spite of never_on": ({"retry_on": (), "never_on": (Exception,)}, Retry(5), True),
    "Retry in a group": ({"retry_on": (OSError,)}, ExceptionGroup("", [Retry(5), NO_ROUTE]), True),
    "Retry in a group with another": ({"retry_on": (OSError,)}, ExceptionGroup("", [Retry(5), WRONG]), False),
    "Fail in spite of retry_on": ({"retry_on": (Exception,)}, Fail("no"), False),
    "Fail in a group": ({}, ExceptionGroup("", [Retry(5), Fail("no")]), False),
}


@pytest.mark.parametrize(("options", "error", "retries"), DECISIONS.values(), ids=DECISIONS)
def test_the_type_of_the_error_decides_whether_it_is_retried(
    options: dict[str, Any], error: Exception, retries: bool
) -> None:
    assert decide(job(**options), 1, error).retries is retries


@pytest.mark.parametrize("option", ["retry_on", "never_on"])
@pytest.mark.parametrize("errors", [int, ("ValueError",), (ValueError(),), (KeyboardInterrupt,), 5])
def test_only_subclasses_of_exception_can_be_retried(option: str, errors: Any) -> None:
    with pytest.raises(Invalid, match=f"job 'work': {option} must contain only subclasses of Exception"):
        job(**{option: errors})


TEXTS: dict[str, tuple[Exception, int, str]] = {
    "Fail": (Fail("the disk is full"), 1, "the disk is full"),
    "Fail without a message": (Fail(""), 1, "Fail"),
    "Fail in a group": (ExceptionGroup("", [WRONG, Fail("the disk is full")]), 1, "the disk is full"),
    "Retry": (Retry(2.5), 1, "Retry: another attempt after 2.5 s"),
    "Retry for another error": (raised_during(NO_ROUTE, Retry(2.5)), 1, "ConnectionError: no route"),
    "the last Retry": (
        raised_during(NO_ROUTE, Retry(2.5)),
        3,
        "ConnectionError: no route (no attempts remain: max_attempts is 3)",
    ),
    "another error in the last attempt": (WRONG, 3, "ValueError: no"),
}


@pytest.mark.parametrize(("error", "attempt", "text"), TEXTS.values(), ids=TEXTS)
def test_the_text_of_an_error(error: Exception, attempt: int, text: str) -> None:
    assert decide(job(), attempt, error).text == text


def test_retry_sets_the_delay_and_the_latest_one_of_a_group_counts() -> None:
    assert decide(job(), 1, WRONG).after is None
    assert decide(job(), 1, Retry(2)).after == 2
    assert decide(job(), 1, ExceptionGroup("", [Retry(2), Retry(7)])).after == 7


@pytest.mark.parametrize("after", [-1, float("inf"), float("nan"), "5", True])
def test_retry_takes_a_finite_number_of_seconds(after: Any) -> None:
    with pytest.raises(Invalid, match="after must be a"):
        Retry(after)


# Backoffs.


def seconds(backoff: Any, attempt: int = 2, error: Exception = WRONG, random: float = 1.0) -> float:
    return delay(job(backoff=backoff), attempt, error, lambda: random)


class Doubling:
    def after(self, attempt: int) -> float:
        return attempt * 2.0

    def __call__(self, attempt: int, error: Exception) -> float:
        return attempt * len(str(error))


BACKOFFS: dict[str, tuple[Any, float]] = {
    "a number": (5, 5.0),
    "of the attempt": (lambda attempt: attempt * 10.0, 20.0),
    "of the attempt and the error": (lambda attempt, error: attempt * len(str(error)), 4.0),
    "with an option": (lambda attempt, cap=3.0: cap, 3.0),
    "with an error that has a default": (lambda attempt, error=None: float(len(str(error))), 2.0),
    "a method": (Doubling().after, 4.0),
    "an object": (Doubling(), 4.0),
    "any arguments": (lambda *arguments: float(len(arguments)), 1.0),
    "a built-in function": (int, 2.0),
}


@pytest.mark.parametrize(("backoff", "expected"), BACKOFFS.values(), ids=BACKOFFS)
def test_a_callers_backoff_is_called_by_its_signature_and_gets_no_jitter(backoff: Any, expected: float):
    assert seconds(backoff, random=0.0) == seconds(backoff, random=1.0) == expected


@pytest.mark.parametrize(
    "backoff", [lambda: 5, lambda a, b, c: 5, lambda *, attempt: 5, -1, "5", float("inf")]
)
def test_a_backoff_that_cannot_be_called_or_is_no_duration_is_refused(backoff: Any) -> None:
    with pytest.raises(Invalid, match="backoff"):
        job(backoff=backoff)


def test_the_default_backoff_doubles_up_to_a_minute_and_is_shortened_by_up_to_half_of_it() -> None:
    work = job()
    assert [delay(work, n, WRONG, lambda: 1.0) for n in range(1, 10)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert [delay(work, n, WRONG, lambda: 0.0) for n in (1, 2, 9)] == [0.5, 1, 30]


def test_the_backoff_that_an_executor_announces_is_that_of_its_job() -> None:
    assert delay(announced_job(JobTerms(name="work", backoff=7.0)), 2, WRONG, lambda: 1.0) == 7
    assert delay(announced_job(JobTerms(name="work")), 2, WRONG, lambda: 1.0) == 2


@pytest.mark.parametrize("backoff", [lambda attempt: 1 / 0, lambda attempt: math.inf])
def test_the_default_that_replaces_a_failed_backoff_has_jitter(backoff: Callable[[int], float]) -> None:
    work = job(backoff=backoff)
    assert [delay(work, n, WRONG, lambda: 0.0) for n in (1, 2, 9)] == [0.5, 1, 30]
    assert own_delay(work, 2, WRONG, lambda: 1.0) == 2


def test_the_event_of_a_retry_names_the_error_and_the_delay() -> None:
    driver = Driver(submission(job=job(backoff=lambda attempt, error: len(str(error)) * 1.5), place=1))
    driver.start()
    driver.raises(ValueError("four"))
    event = driver.events[-1]
    assert (event.to, event.reason, event.error, event.retry_after) == (
        "suspended",
        "retry",
        "ValueError: four",
        6.0,
    )
