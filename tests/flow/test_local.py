"""Nodes that call functions of this process: arguments, results and exceptions."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from greenroom import Jobs
from greenroom.errors import Conflict
from tests.support import open_engine

from .walking import Calls, Walked, flow, local, node, walk

pytestmark = pytest.mark.usefixtures("place")


async def walked(jobs: Jobs, definition: dict[str, Any], params: dict[str, Any] | None = None) -> Walked:
    async with open_engine(jobs) as engine:
        return await walk(engine, definition, params)


async def test_a_function_receives_the_input_and_the_parameters_if_it_takes_them(
    autojump_clock: MockClock,
) -> None:
    calls = Calls()

    @calls.jobs.function("both")
    async def both(input: Any, params: dict[str, Any]) -> Any:
        return {"input": input, "params": params}

    a = local("both", "$params.x", "out", params={"y": 2})
    done = await walked(calls.jobs, flow("", a=a), {"x": 1})
    assert done.result == {"out": {"input": 1, "params": {"x": 1, "y": 2}}}


async def test_an_executor_can_call_a_function(autojump_clock: MockClock) -> None:
    a = node("executor", "$params.x", "out", exec_type="local", func="double")
    done = await walked(Calls().jobs, flow("", a=a), {"x": 4})
    assert done.result == {"out": 8}


async def test_changes_that_a_function_makes_to_its_input_have_no_effect(autojump_clock: MockClock) -> None:
    calls = Calls()

    @calls.jobs.function("spoil")
    async def spoil(input: Any, params: Any) -> Any:
        input["x"].append("spoilt")
        params["y"] = "spoilt"
        return input

    a, b = local("echo", {"x": [1]}, "a"), local("spoil", "a", "b", params={"y": 1})
    done = await walked(calls.jobs, flow("a b, b c", a=a, b=b, c=local("echo", "$params.y", "c")), {"y": 2})
    assert done.result == {"a": {"x": [1]}, "b": {"x": [1, "spoilt"]}, "c": 2}
    assert done.of("b")[0].input == {"input": {"x": [1]}}


async def test_later_changes_to_a_functions_result_have_no_effect(
    autojump_clock: MockClock,
) -> None:
    jobs, kept = Jobs(), []

    @jobs.function("keep")
    async def keep(input: Any) -> Any:
        kept.append(["fresh"])
        return kept[0]

    @jobs.function("spoil")
    async def spoil(input: Any) -> None:
        kept[0].append("spoilt")

    done = await walked(jobs, flow("a b", a=local("keep", out="kept"), b=local("spoil")))
    assert done.result == {"kept": ["fresh"]}


async def test_plain_functions_run_concurrently_in_threads() -> None:
    jobs = Jobs()
    both = threading.Barrier(2, timeout=10)

    @jobs.function("meet")
    def meet(input: Any, params: dict[str, Any]) -> Any:
        both.wait()
        return [input, threading.current_thread() is threading.main_thread()]

    a = node("foreach", "$params.items", "out", exec_type="local", func="meet", parallel_mode="concurrent")
    done = await walked(jobs, flow("", a=a), {"items": [1, 2]})
    assert done.result == {"out": [[1, False], [2, False]]}


@pytest.mark.in_process  # a node waits for an executor that has announced its function
async def test_an_unregistered_function_is_an_error_of_the_node(autojump_clock: MockClock) -> None:
    done = await walked(Jobs(), flow("", a=local("nobody")))
    assert done.error == "node \"a\": service_error: LookupError: function 'nobody' is not registered"


@pytest.mark.in_process  # a node waits for an executor that has announced its function
async def test_a_function_can_be_registered_after_the_engine_was_opened(autojump_clock: MockClock) -> None:
    jobs = Jobs()
    async with open_engine(jobs) as engine:
        jobs.function("late")(Calls().echo)
        assert (await walk(engine, flow("", a=local("late", {"x": 1}, "out")))).result == {"out": {"x": 1}}


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ({1, 2}, "bad_answer: result is a set"),
        (b"bytes", "bad_answer: result is"),
        ({"x": [float("nan")]}, "bad_answer: result.x[0]"),
        ({"x": {5: 1}}, "bad_answer: result.x"),
        (object(), "bad_answer: result is"),
    ],
)
async def test_a_result_that_is_not_json_is_an_error_with_its_path(
    autojump_clock: MockClock, value: Any, complaint: str
) -> None:
    jobs = Jobs()

    @jobs.function("odd")
    async def odd(input: Any) -> Any:
        return value

    done = await walked(jobs, flow("", a=local("odd", out="out")))
    assert done.rows[0].error is not None
    assert done.rows[0].error.startswith("bad_answer: result"), done.rows[0].error
    assert done.error.startswith('node "a": bad_answer: ')


async def test_any_exception_of_a_function_is_a_service_error(autojump_clock: MockClock) -> None:
    jobs = Jobs()

    @jobs.function("group")
    async def group(input: Any) -> None:
        raise ExceptionGroup("several", [ValueError("one"), KeyError("two")])

    @jobs.function("ours")
    async def ours(input: Any) -> None:
        raise Conflict("as raised by an engine")

    @jobs.function("late")
    async def late(input: Any) -> None:
        raise trio.TooSlowError

    async with open_engine(jobs) as engine:
        for name, said in (
            ("group", "ValueError: one; KeyError"),
            ("ours", "as raised by an engine"),
            ("late", "TooSlow"),
        ):
            done = await walk(engine, flow("", a=local(name)))
            assert done.rows[0].status == "error"
            assert (done.rows[0].error or "").startswith("service_error: ")
            assert said in (done.rows[0].error or "")


# Retries.


async def test_a_node_is_retried_up_to_max_retries_after_wait_ms(autojump_clock: MockClock) -> None:
    calls = Calls()
    flaky = local("flaky", "$params.x", "out", params={"failures": 2}, max_retries=2, wait_ms=1500)
    done = await walked(calls.jobs, flow("", a=flaky), {"x": 7})
    assert done.result == {"out": 7}
    assert done.story == ["a error", "a error", "a ok default"]
    assert [(row.attempt, row.last) for row in done.rows] == [(1, False), (2, False), (3, True)]
    starts = [row.started_at for row in done.rows]
    assert [round(after - before, 2) for before, after in pairwise(starts)] == [1.5, 1.5]
    assert all(row.finished_at - row.started_at < 0.1 for row in done.rows)


async def test_a_node_without_remaining_attempts_has_failed(autojump_clock: MockClock) -> None:
    calls = Calls()
    done = await walked(calls.jobs, flow("", a=local("fail", {"x": 1}, max_retries=2)))
    assert done.story == ["a error", "a error", "a error default"]
    assert len(calls.made) == 3


async def test_the_timeout_applies_to_each_attempt(autojump_clock: MockClock) -> None:
    done = await walked(Calls().jobs, flow("", a=local("hang", max_retries=1, timeout_ms=2000)))
    assert done.story == ["a timeout", "a timeout default"]
    assert [round(row.finished_at - row.started_at) for row in done.rows] == [2, 2]


async def test_a_function_without_a_timeout_is_limited_only_by_the_run(autojump_clock: MockClock) -> None:
    done = await walked(Calls().jobs, flow("", a=local("sleep", "$params.x", "out")), {"x": 900})
    assert done.result == {"out": 900}
