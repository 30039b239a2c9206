"""Services: their registration, and the handling of their results and exceptions."""

import math
import threading
from typing import Any

import pytest
import trio
import trio.testing

from greenroom import Services
from greenroom.errors import Invalid
from greenroom.worker.calls import MAX_BYTES, Calls, Outcome, ServiceRequest
from greenroom.worker.examples import services as examples


async def called(services: Services, name: str, input: Any = None, **params: Any) -> Outcome:
    service = services.get(name)
    assert service is not None
    return await Calls(1).execute(service, ServiceRequest(input, params))


async def test_a_service_receives_the_parameters_only_if_it_takes_them():
    services = Services()

    @services.service("one")
    async def one(input: Any) -> Any:
        return [input]

    @services.service("two")
    async def two(input: Any, params: dict[str, Any]) -> Any:
        return [input, params]

    assert await called(services, "one", 1, a=2) == Outcome([1])
    assert await called(services, "two", 1, a=2) == Outcome([1, {"a": 2}])


async def test_missing_parameters_are_an_empty_dict():
    services = Services()
    services.service("two")(lambda input, params: params)
    service = services.get("two")
    assert service is not None
    assert await Calls(1).execute(service, ServiceRequest(1)) == Outcome({})


async def test_a_plain_function_runs_in_a_thread():
    services = Services()
    services.service("where")(lambda input: threading.get_ident())
    assert (await called(services, "where")).result != threading.get_ident()


async def test_plain_functions_run_concurrently_up_to_the_limit_of_calls():
    calls = Calls(60)  # more than trio's default limit of threads
    together = threading.Barrier(60, timeout=60)
    services = Services()
    services.service("meet")(lambda input: together.wait())
    service = services.get("meet")
    assert service is not None
    outcomes = []

    async def call() -> None:
        outcomes.append(await calls.execute(service, ServiceRequest()))

    async with trio.open_nursery() as nursery:
        for _ in range(60):
            nursery.start_soon(call)
    assert sorted(outcome.result for outcome in outcomes) == [*range(60)]


async def test_an_exception_of_a_service_is_the_error_of_its_call(caplog: pytest.LogCaptureFixture):
    services = Services()

    @services.service("async")
    async def fails(input: Any) -> None:
        raise LookupError("no such thing")

    services.service("plain")(lambda input: {}[input])
    assert await called(services, "async") == Outcome(error="LookupError: no such thing")
    assert await called(services, "plain", "key") == Outcome(error="KeyError: 'key'")
    assert "service 'async' failed: LookupError: no such thing" in caplog.text


@pytest.mark.parametrize("result", [math.nan, object(), {1: 2}, "x" * MAX_BYTES])
async def test_a_result_that_cannot_be_sent_is_an_error(result: Any):
    services = Services()
    services.service("odd")(lambda input: result)
    outcome = await called(services, "odd")
    assert outcome.result is None
    assert outcome.error.startswith("the result of service 'odd' cannot be sent: result")


async def test_a_service_that_fails_while_it_is_cancelled_is_cancelled_and_logged(
    caplog: pytest.LogCaptureFixture,
):
    services = Services()

    @services.service("messy")
    async def messy(input: Any) -> None:
        async def fail_late() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("during the cancel")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_late)
            nursery.start_soon(trio.sleep_forever)

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(called, services, "messy")
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert scope.cancelled_caught
    assert "during the cancel" in caplog.text


def test_a_duplicate_name_is_refused():
    services = Services()
    services.service("a")(lambda input: None)
    with pytest.raises(Invalid, match="service 'a' already exists"):
        services.service("a")(lambda input: None)


@pytest.mark.parametrize("function", [lambda: None, lambda a, b, c, d: None, lambda a, *, key: None])
def test_a_function_with_a_wrong_signature_is_refused(function: Any):
    with pytest.raises(Invalid, match="its function must take the input, and optionally"):
        Services().service("a")(function)


def test_an_invalid_name_is_refused():
    with pytest.raises(Invalid, match="service must not be empty"):
        Services().service("")(lambda input: None)


@pytest.mark.parametrize(
    ("name", "input", "params", "result"),
    [
        ("transform", "Abc", {"op": "upper"}, "ABC"),
        ("transform", "Abc", {"op": "lower"}, "abc"),
        ("transform", 21, {"mul": 2}, 42),
        ("transform", 2.5, {"mul": 2.0}, 5.0),
        ("transform", 7, {}, 7),
        ("sum", [1, 2, 3], {}, 6),
        ("sum", [0.5, "1.5"], {}, 2.0),
        ("sum", [], {}, 0),
        ("route", None, {"action": "goC"}, {"action": "goC"}),
        ("route", None, {}, {"action": "goB"}),
    ],
)
async def test_the_examples(name: str, input: Any, params: dict[str, Any], result: Any):
    assert await called(examples, name, input, **params) == Outcome(result)


@pytest.mark.parametrize(
    ("name", "input", "params", "error"),
    [
        ("transform", "Abc", {"op": "swap"}, "ValueError: params.op must be upper or lower for a string"),
        ("transform", None, {}, "ValueError: the input, unless it is a string, must be a number (got None)"),
        ("transform", True, {}, "ValueError: the input, unless it is a string, must be a number (got True)"),
        ("transform", 1, {"mul": "2"}, "ValueError: params.mul must be a number (got '2')"),
        ("transform", 1e300, {"mul": 1e300}, "the result of service 'transform' cannot be sent"),
        ("sum", "123", {}, "ValueError: the input must be an array of numbers (got '123')"),
        ("sum", [1, "x"], {}, "ValueError: could not convert string to float: 'x'"),
        ("sum", [1, None], {}, "ValueError: item 1 must be a number (got None)"),
        ("route", None, {"action": 3}, "ValueError: params.action must be a string (got 3)"),
    ],
)
async def test_invalid_inputs_of_the_examples_are_refused(
    name: str, input: Any, params: dict[str, Any], error: str
):
    outcome = await called(examples, name, input, **params)
    assert outcome.result is None
    assert outcome.error.startswith(error)


async def test_a_service_that_takes_a_third_argument_gets_the_idempotency_key():
    services = Services()

    @services.service("pay")
    async def pay(amount: int, params: dict[str, Any], key: str) -> str:
        return f"{amount} for {key}"

    service = services.get("pay")
    assert service is not None
    outcome = await Calls(1).execute(service, ServiceRequest(7, {}, "run:pay:1:"))
    assert outcome == Outcome("7 for run:pay:1:")
