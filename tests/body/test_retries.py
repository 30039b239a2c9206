"""What decides about a retry: the type of the error, `Retry` and `Fail`, and the job's backoff."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest
import trio

from greenroom import Fail, Jobs, Retry, Run
from greenroom.errors import RunFailed
from tests.support import open_engine


def failing_with(*errors: Exception, **options: Any) -> tuple[Jobs, list[float]]:
    """A job whose attempts raise these errors, one after another; and the times at which they began."""
    jobs, begun = Jobs(), []

    @jobs.job("work", **({"max_attempts": 5} | options))
    async def work(run: Run) -> int:
        begun.append(trio.current_time())
        if run.attempt <= len(errors):
            raise errors[run.attempt - 1]
        return run.attempt

    return jobs, begun


async def outcome(jobs: Jobs, **options: Any) -> tuple[Any, int]:
    """The result or the error of a run, and the number of its attempts."""
    async with open_engine(jobs, store="memory:", **options) as engine:
        ticket = await engine.submit("work", handle="alice")
        try:
            result = await ticket.result()
        except RunFailed as failed:
            result = failed.run.error
        return result, (await engine.get_run(ticket.id)).attempt


async def test_only_errors_of_retry_on_are_retried(autojump_clock):
    jobs, _ = failing_with(OSError("busy"), KeyError("x"), retry_on=(OSError, TimeoutError))
    assert await outcome(jobs) == ("KeyError: 'x'", 2)


async def test_errors_of_never_on_are_not_retried_even_if_retry_on_contains_them(autojump_clock):
    jobs, _ = failing_with(
        OSError("busy"), ConnectionError("gone"), retry_on=OSError, never_on=ConnectionError
    )
    assert await outcome(jobs) == ("ConnectionError: gone", 2)


async def test_retry_sets_the_delay_of_the_next_attempt(autojump_clock):
    jobs, begun = failing_with(Retry(after=30), Retry(after=0), retry_on=(), backoff=5)
    assert await outcome(jobs) == (3, 3)
    assert [at - begun[0] for at in begun] == [0, 30, 30]


async def test_retry_in_the_last_attempt_fails_the_run_with_an_error_that_says_so(autojump_clock):
    jobs, begun = failing_with(Retry(after=30), Retry(after=30), max_attempts=2)
    error, attempts = await outcome(jobs)
    assert error == ("Retry: another attempt after 30 s (no attempts remain: max_attempts is 2)")
    assert attempts == len(begun) == 2


async def test_fail_fails_the_run_with_its_message_without_another_attempt(autojump_clock, caplog):
    jobs, _ = failing_with(OSError("busy"), Fail("the account is closed"))
    assert await outcome(jobs) == ("the account is closed", 2)
    assert "failed in attempt 2 and is not retried: the account is closed" in caplog.text
    assert "Traceback" not in caplog.text.partition("attempt 2")[2]


async def test_a_backoff_can_depend_on_the_error(autojump_clock):
    jobs, begun = failing_with(
        OSError("busy"), OSError("very busy"), backoff=lambda attempt, error: attempt * len(str(error))
    )
    assert await outcome(jobs) == (3, 3)
    assert [at - begun[0] for at in begun] == [0, 4, 4 + 2 * 9]


async def test_the_default_backoff_has_jitter_from_the_random_of_the_engine(autojump_clock):
    async def pauses(seed: int) -> list[float]:
        jobs, begun = failing_with(*[OSError("busy")] * 4)
        assert await outcome(jobs, random=Random(seed)) == (5, 5)
        return [later - sooner for sooner, later in pairwise(begun)]

    first = await pauses(1)
    assert all(most / 2 <= pause < most for pause, most in zip(first, [1, 2, 4, 8], strict=True))
    assert await pauses(1) == pytest.approx(first)
    assert await pauses(2) != pytest.approx(first)


async def test_the_event_of_a_retry_names_its_error_and_its_delay(autojump_clock):
    jobs, _ = failing_with(OSError("busy"), Retry(after=30), backoff=5)
    async with open_engine(jobs, store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await ticket.result()
        history = await engine.history(ticket.id)
    retries = [event for event in history if getattr(event, "reason", None) == "retry"]
    assert [(event.error, event.retry_after) for event in retries] == [
        ("OSError: busy", 5.0),
        ("Retry: another attempt after 30 s", 30.0),
    ]
    assert [event.retry_after for event in history if event not in retries and hasattr(event, "to")] == [
        None
    ] * 5


@pytest.mark.parametrize("kind", ["thread", "asyncio"])
async def test_retry_and_fail_end_the_attempts_of_threads_and_of_asyncio_bodies_in_the_same_way(kind):
    jobs = Jobs()

    def decide(attempt: int) -> None:
        if attempt == 1:
            raise Retry(after=0)
        raise Fail("the account is closed")

    if kind == "thread":

        @jobs.job("work", max_attempts=9, backoff=1000)
        def work(run: Any) -> None:
            decide(run.attempt)
    else:

        @jobs.job("work", max_attempts=9, backoff=1000, loop="asyncio")
        async def work(run: Any) -> None:
            decide(run.attempt)

    assert await outcome(jobs) == ("the account is closed", 2)


async def test_retry_and_fail_in_a_nursery_of_the_body_count_as_those_of_the_body(autojump_clock):
    jobs = Jobs()

    @jobs.job("work", max_attempts=3)
    async def work(run: Run) -> None:
        async def part() -> None:
            raise Retry(after=5) if run.attempt == 1 else Fail("no")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(part)

    assert await outcome(jobs) == ("no", 2)
