"""Branches, items and inner nodes with their own execution settings; scripts as objects."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from greenroom import Engine, Jobs
from greenroom.protocol.flow.mermaid import mermaid
from greenroom.protocol.flow.reading import read_graph
from tests.support import open_engine

from .definitions import Definition, flow
from .restarts import Lives
from .walking import Calls, Walked, ended, local, node, start, walk

pytestmark = pytest.mark.usefixtures("place")

MODES: list[Definition] = [{}, {"parallel_mode": "concurrent"}]
each_mode = pytest.mark.parametrize("mode", MODES, ids=["in turn", "at once"])


def jobs() -> Jobs:
    jobs = Jobs()

    @jobs.function("mul")
    async def mul(input: float, params: dict[str, Any]) -> float:
        return input * params.get("mul", 1)

    @jobs.function("add")
    async def add(input: float, params: dict[str, Any]) -> float:
        return input + params.get("add", 1)

    @jobs.function("fail")
    async def fail(input: Any) -> None:
        raise ValueError("no")

    return jobs


async def serve(engine: Engine, *services: str, most: int = 1) -> None:
    """Run a polling worker that returns its input."""
    for _ in range(most):
        item = await engine.workers.poll("puller", services)
        assert item is not None
        result = {"service": item.service, "input": item.input, "params": item.params}
        await engine.workers.complete(item.id, result, worker_id="puller")


async def walked(definition: Definition, params: dict[str, Any], *services: str, most: int = 0) -> Walked:
    async with open_engine(jobs()) as engine, trio.open_nursery() as nursery:
        if services:
            nursery.start_soon(lambda: serve(engine, *services, most=most))
        done = await walk(engine, definition, params)
        nursery.cancel_scope.cancel()
    return done


# Branches.


def parallel(*execs: Definition, **fields: Any) -> Definition:
    return node("parallel", "$params.val", "agg", parallel_execs=list(execs), **fields)


@each_mode
async def test_branches_have_their_own_services_functions_and_parameters(
    mode: Definition, autojump_clock: MockClock
) -> None:
    execs = [
        {"service": "transform", "exec_type": "queue", "params": {"mul": 2}},
        {"service": "localMul", "exec_type": "local_func", "func": "mul", "params": {"mul": 5}},
        {"func": "mul"},
    ]
    fields = {"params": {"mul": 3, "other": 1}, **mode}
    done = await walked(flow("", p=parallel(*execs, **fields)), {"val": 7}, "transform", most=1)
    params = {"mul": 2, "other": 1, "val": 7}
    assert done.result["agg"] == [{"service": "transform", "input": 7, "params": params}, 35, 21]
    assert [row.branch for row in done.rows[:-1]] == ["0", "1", "2"] or mode
    # they override those of the run, too
    done = await walked(flow("", p=parallel(*execs[1:], **fields)), {"val": 7, "mul": 100})
    assert done.result["agg"] == [35, 700]


@each_mode
async def test_branches_have_their_own_inputs_and_outputs(
    mode: Definition, autojump_clock: MockClock
) -> None:
    execs = [
        {
            "func": "add",
            "params": {"add": 10},
            "prep": {"input_key": "$params.other"},
            "post": {"output_key": "first"},
        },
        {"func": "mul", "params": {"mul": 2}, "post": {"output_key": "$shared.second.here"}},
        {"func": "add", "prep": {"input_key": "$input"}},
    ]
    done = await walked(flow("", p=parallel(*execs, **mode)), {"val": 7, "other": 1})
    assert done.result == {"agg": [11, 14, 8], "first": 11, "second": {"here": 14}}


async def test_failed_branches_write_nothing_and_successful_ones_do(
    autojump_clock: MockClock,
) -> None:
    execs = [
        {"func": "mul", "post": {"output_key": "good"}},
        {"func": "fail", "post": {"output_key": "bad"}},
        {"func": "mul", "post": {"output_key": "late"}},
    ]
    for strategy, result in (
        ("ignore_errors", {"agg": [7, 7], "good": 7, "late": 7}),
        ("fail_fast", {"agg": [7], "good": 7}),
    ):
        failing = parallel(*execs, failure_strategy=strategy)
        done = await walked(flow("p:error -", p=failing), {"val": 7})
        assert done.result == result


async def test_execs_can_be_combined_with_services(autojump_clock: MockClock) -> None:
    """An exec with the name of a service replaces it; other ones are appended."""
    execs = [
        {"service": "add", "exec_type": "local", "params": {"add": 5}},
        {"service": "label", "func": "mul", "params": {"mul": 3}},
    ]
    beside = parallel(*execs, exec_type="local", parallel_services=["mul", "add"])
    done = await walked(flow("", p=beside), {"val": 7})
    assert done.result["agg"] == [7, 12, 21]
    same = parallel(*execs, exec_type="local", parallel_services=["label", "add"])
    assert (await walked(flow("", p=same), {"val": 7})).result["agg"] == [21, 12]


async def test_several_branches_can_call_one_service(autojump_clock: MockClock) -> None:
    execs = [{"service": "mul", "exec_type": "local", "params": {"mul": by}} for by in (2, 3)]
    assert (await walked(flow("", p=parallel(*execs)), {"val": 7})).result["agg"] == [14, 21]


async def test_finished_branches_are_kept_over_a_restart(autojump_clock: MockClock) -> None:
    calls = Calls()
    execs = [
        {"func": "echo", "post": {"output_key": "first"}},
        {"func": "sleep", "prep": {"input_key": "$params.long"}, "post": {"output_key": "second"}},
    ]
    lives = Lives(calls.jobs)
    async with lives.crash() as engine:
        ticket = await start(engine, flow("", p=parallel(*execs)), {"val": 7, "long": 60})
        await trio.sleep(1)
    async with lives.clean() as engine:
        done = await ended(engine, ticket)
        assert done.result == {"agg": [7, 60], "first": 7, "second": 60}
    assert calls.made == [("echo", 7), ("sleep", 60), ("sleep", 60)]


# Items.


@each_mode
async def test_items_have_their_own_parameters_and_functions(
    mode: Definition, autojump_clock: MockClock
) -> None:
    each = node(
        "foreach",
        "$params.items",
        "mapped",
        exec_type="local_func",
        func="mul",
        params={"mul": 2},
        foreach_execs=[
            {"index": 1, "params": {"mul": 4}},
            {"index": 2, "func": "add", "params": {"add": 50}},
            {"index": 3, "exec_type": "queue", "service": "slow"},
            {"index": 9, "params": {"mul": 0}},
        ],
        **mode,
    )
    done = await walked(flow("", f=each), {"items": [1, 2, 3, 4]}, "slow", most=1)
    params = {"mul": 2, "items": [1, 2, 3, 4]}
    assert done.result["mapped"] == [2, 8, 53, {"service": "slow", "input": 4, "params": params}]


# Inner nodes.


async def test_execs_override_nodes_of_a_subflow(autojump_clock: MockClock) -> None:
    inner = flow(
        "a:go b, b c",
        a=node("executor", "$params.val", "m", service="transform", params={"mul": 2}, action="go"),
        b=local("add", "m", "n", params={"add": 1}),
        c=node("timer", params={"delay_ms": 60_000}),
    )
    execs = [
        {"node": "a", "exec_type": "local_func", "func": "mul", "params": {"mul": 7}},
        {"node": "b", "params": {"add": 100}},
        {"node": "c", "params": {"delay_ms": 0}},
    ]
    sub = node("subflow", out="sub", subflow=inner, subflow_execs=execs)
    began = trio.current_time()
    done = await walked(flow("", s=sub), {"val": 3, "mul": 1})
    assert done.result == {"sub": {"m": 21, "n": 121}}
    assert trio.current_time() - began < 1
    sub["subflow_execs"] = [{"node": "a", "exec_type": "queue", "service": "other"}, execs[2]]
    sub["subflow"] = {**inner, "edges": []}
    done = await walked(flow("", s=sub), {"val": 3}, "other", most=1)
    params = {"mul": 2, "val": 3}
    assert done.result["sub"]["m"] == {"service": "other", "input": 3, "params": params}


async def test_execs_override_only_nodes_of_that_graph(autojump_clock: MockClock) -> None:
    deep = flow("", a=local("mul", "$params.val", "out", params={"mul": 2}))
    inner = flow("", s=node("subflow", out="deep", subflow=deep))
    execs = [{"node": "s", "params": {"val": 10}}]
    sub = node("subflow", out="out", subflow=inner, subflow_execs=execs)
    assert (await walked(flow("", s=sub), {"val": 1})).result == {"out": {"deep": {"out": 20}}}


# Scripts.


def script(code: str, **fields: Any) -> Definition:
    written = {"cmd": sys.executable, "args": ["-c", code], **fields}
    return node("executor", "$params.x", "out", exec_type="local_script", script=written)


async def printed(definition: Definition) -> Walked:
    with trio.fail_after(60):
        async with open_engine(Calls().jobs, allow_scripts=True) as engine:
            return await walk(engine, flow("", a=definition), {"x": 5})


@pytest.mark.parametrize(
    ("fields", "code", "out"),
    [
        ({"output_mode": "json"}, "print('{\"v\": 42}')", {"v": 42}),
        ({"output_mode": "json"}, "print('no json')", "no json"),
        ({"output_mode": "text"}, "print('[1]')", "[1]"),
        ({}, "print('[1]')", "[1]"),
        ({"stdin_mode": "none"}, "import sys; print(repr(sys.stdin.read()))", "''"),
        ({}, "import sys; print(repr(sys.stdin.read()))", "''"),
        (
            {"stdin_mode": "json", "output_mode": "json"},
            "import sys; print(sys.stdin.read())",
            {"input": 5, "params": {"x": 5}},
        ),
    ],
)
async def test_a_script_declares_its_input_and_output_modes(fields: Definition, code: str, out: Any) -> None:
    assert (await printed(script(code, **fields))).result == {"out": out}


async def test_a_script_has_its_own_timeout() -> None:
    slow = script("import time; time.sleep(60)", timeout_ms=200)
    for fields in ({}, {"timeout_ms": 50_000}):
        assert (await printed({**slow, **fields})).error == 'node "a": timeout: not finished within 0.2 s'
    assert (
        await printed({**slow, "timeout_ms": 100})
    ).error == 'node "a": timeout: not finished within 0.1 s'


async def test_a_script_must_be_allowed_by_the_operator(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        [mistake] = (await engine.flows.check(flow("", a=script("")))).errors
        assert mistake == "nodes.a.exec_type: scripts are not allowed: allow_scripts is off"


# Definitions.


@pytest.mark.parametrize(
    ("wrong", "mistake"),
    [
        (parallel({}), 'parallel_execs[0].service: is missing: exec_type "http" calls a service'),
        (
            parallel({"exec_type": "local_func"}),
            'parallel_execs[0].func: is missing: exec_type "local" calls a function',
        ),
        (
            parallel({"service": "s", "exec_type": "http", "func": "f"}),
            'parallel_execs[0].func: has no effect: exec_type "http" calls a service',
        ),
        (
            parallel({"service": "s", "exec_type": "local_script"}),
            'parallel_execs[0].exec_type: unknown value "local_script"',
        ),
        (parallel({"service": "s", "odd": 1}), "parallel_execs[0].odd: unknown field"),
        (parallel({"service": "s", "index": 1}), "parallel_execs[0].index: has no effect here"),
        (
            parallel({"service": "s", "post": {"action_static": "x"}}),
            "parallel_execs[0].post.action_static: has no effect here: a branch takes no edge",
        ),
        (
            node("foreach", "a", func="f", foreach_execs=[{"index": 1}, {"index": 1}]),
            "foreach_execs[1].index: duplicate index 1 (first: foreach_execs[0])",
        ),
        (
            node("foreach", "a", func="f", foreach_execs=[{"index": -1}]),
            "foreach_execs[0].index: must be an integer, 0 or more (got -1)",
        ),
        (
            node("foreach", "a", func="f", foreach_execs=[{"index": 1, "exec_type": "http"}]),
            'foreach_execs[0].service: is missing: exec_type "http" calls a service',
        ),
        (
            node("subflow", subflow=flow("", alpha=local("f")), subflow_execs=[{"node": "alpa"}]),
            'subflow_execs[0].node: node "alpa" not found: did you mean "alpha"?',
        ),
        (
            node(
                "subflow",
                subflow=flow("", t=node("timer", params={"delay_ms": 0})),
                subflow_execs=[{"node": "t", "func": "f"}],
            ),
            'subflow_execs[0].node: "t" is of kind "timer": only its params can be changed',
        ),
        (
            node(
                "subflow",
                subflow=flow("", a=local("f")),
                subflow_execs=[{"node": "a", "exec_type": "http", "service": "s"}],
            ),
            "subflow_execs[0].node: \"a\" is of kind 'local', which calls no service",
        ),
        (
            node("executor", exec_type="local_script", script={"args": ["x"]}),
            "script.cmd: is missing",
        ),
        (
            node("executor", exec_type="local_script", script={"cmd": "sh", "code": "echo"}),
            "script.code: has no effect here",
        ),
        (
            node("executor", exec_type="local_script", script={"cmd": "sh", "output_mode": "xml"}),
            'script.output_mode: unknown value "xml"',
        ),
        (
            node("executor", service="s", script={"cmd": "sh"}),
            'script: has no effect without exec_type "local_script"',
        ),
        (node("choice", choice_key="x"), 'choice_key: has no effect in a node of kind "choice": remove it'),
        (
            local("f", foreach_execs=[{"index": 1}]),
            'foreach_execs: has no effect in a node of kind "local": remove it',
        ),
    ],
)
async def test_each_error_is_reported_with_its_path(
    wrong: Definition, mistake: str, autojump_clock: MockClock
) -> None:
    async with open_engine(Calls().jobs, allow_scripts=True) as engine:
        [found] = (await engine.flows.check(flow("", a=wrong))).errors
        assert found.startswith(f"nodes.a.{mistake}")


async def test_a_definition_can_contain_all_fields_if_they_are_empty(autojump_clock: MockClock) -> None:
    """Some clients serialize every field of a structure."""
    empty_script = {"cmd": "", "args": None, "code": "", "env": None, "timeout_ms": 0, "stdin_mode": ""}
    exec = {"service": "s", "exec_type": "", "func": "", "params": None, "node": "", "index": 0}
    written = {
        "kind": "parallel",
        "script": empty_script,
        "parallel_execs": [{**exec, "script": empty_script}],
        "foreach_execs": None,
        "subflow_execs": [],
        "choice_cases": None,
        "choice_key": "",
        "subflow": None,
    }
    async with open_engine(Calls().jobs) as engine:
        assert (await engine.flows.check(flow("", a=written)))[1:] == ([], [])
        written = {"kind": "executor", "service": "s", "script": empty_script, "parallel_execs": None}
        assert (await engine.flows.check(flow("", a=written)))[1:] == ([], [])


def test_a_chart_names_branches_and_programs() -> None:
    drawn = mermaid(
        read_graph(
            flow(
                "",
                a=parallel({"service": "one"}, {"func": "two"}, parallel_services=["three"]),
                b=script("", cmd="python3", timeout_ms=1),
            )
        )
    )
    assert "parallel: three, one, two" in drawn
    assert "executor: python3" in drawn
