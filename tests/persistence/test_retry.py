"""Retries: which failures, how often, and after a commit with an unknown outcome."""

from collections.abc import Awaitable, Callable

import pytest
import trio

from greenroom.persistence.failures import StoreBroken, StoreDown
from greenroom.persistence.retry import with_retry


class Attempts:
    """Two functions that fail as configured, and record when they were called."""

    def __init__(self, *outcomes: Exception | str) -> None:
        self._outcomes = list(outcomes)
        self._began = trio.current_time()
        self.calls: list[tuple[str, float]] = []

    def _function(self, name: str) -> Callable[[], Awaitable[str]]:
        async def call() -> str:
            self.calls.append((name, trio.current_time() - self._began))
            outcome = self._outcomes.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        return call

    async def run(self) -> str:
        return await with_retry(self._function("first"), self._function("again"))


def transient(*, outcome_known: bool = True) -> StoreDown:
    return StoreDown("lost", outcome_known=outcome_known, transient=True)


async def test_a_successful_call_is_made_once(autojump_clock: trio.testing.MockClock):
    attempts = Attempts("done")
    assert await attempts.run() == "done"
    assert attempts.calls == [("first", 0)]


async def test_a_transient_failure_is_retried_after_1_2_and_4_seconds(
    autojump_clock: trio.testing.MockClock,
):
    attempts = Attempts(transient(), transient(), transient(), "done")
    assert await attempts.run() == "done"
    assert attempts.calls == [("first", 0), ("first", 1), ("first", 3), ("first", 7)]


async def test_the_fourth_failure_is_the_last(autojump_clock: trio.testing.MockClock):
    attempts = Attempts(*[transient() for _ in range(4)])
    with pytest.raises(StoreDown) as caught:
        await attempts.run()
    assert len(attempts.calls) == 4
    assert caught.value.outcome_known


@pytest.mark.parametrize("error", [StoreDown("full"), StoreBroken("corrupt"), ValueError("mine")])
async def test_any_other_failure_is_raised_immediately(
    error: Exception, autojump_clock: trio.testing.MockClock
):
    attempts = Attempts(error)
    with pytest.raises(type(error)) as caught:
        await attempts.run()
    assert caught.value is error
    assert attempts.calls == [("first", 0)]


async def test_after_an_unknown_outcome_the_second_function_is_called(
    autojump_clock: trio.testing.MockClock,
):
    attempts = Attempts(transient(), transient(outcome_known=False), transient(), "it was there")
    assert await attempts.run() == "it was there"
    assert [name for name, _ in attempts.calls] == ["first", "first", "again", "again"]


@pytest.mark.parametrize("last", [StoreDown("unreachable"), StoreBroken("wrong password")])
async def test_a_later_failure_does_not_make_an_unknown_outcome_known(
    last: StoreDown | StoreBroken, autojump_clock: trio.testing.MockClock
):
    attempts = Attempts(transient(outcome_known=False), last)
    with pytest.raises(type(last)) as caught:
        await attempts.run()
    assert not caught.value.outcome_known


async def test_waiting_can_be_cancelled(autojump_clock: trio.testing.MockClock):
    attempts = Attempts(transient())
    with trio.move_on_after(0.5) as scope:
        await attempts.run()
    assert scope.cancelled_caught
