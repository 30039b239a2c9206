"""Nodes that call several services with one input."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.support import open_engine

from .definitions import Definition
from .walking import Calls, Walked, ended, flow, local, node, start, walk

pytestmark = pytest.mark.usefixtures("place")

AT_ONCE = {"parallel_mode": "concurrent"}
MODES = [{}, AT_ONCE, {**AT_ONCE, "max_parallel": 2}]
END = local("echo", "$params.nothing", "end")


def several(*names: str, **fields: Any) -> Definition:
    return node("parallel", "$params.n", "out", exec_type="local", parallel_services=list(names), **fields)


async def walked(parallel: Definition, edges: str = "p end, p:error end", **params: Any) -> Walked:
    async with open_engine(Calls().jobs) as engine:
        return await walk(engine, flow(edges, p=parallel, end=END), params)


@pytest.mark.usefixtures("each_store")
@pytest.mark.parametrize("mode", MODES)
async def test_each_service_receives_the_input_and_the_results_are_in_their_order(
    mode: Definition, autojump_clock: MockClock
) -> None:
    done = await walked(several("even", "double", "echo", "sleep", **mode), n=4)
    assert done.result["out"] == [4, 8, 4, 4]
    branches = {row.branch: (row.status, row.output) for row in done.rows if row.branch is not None}
    assert branches == {"0": ("ok", 4), "1": ("ok", 8), "2": ("ok", 4), "3": ("ok", 4)}
    assert done.of("p")[0].output == [4, 8, 4, 4]
    assert done.of("p")[0].prep == 4


@pytest.mark.parametrize(("mode", "seconds"), list(zip(MODES, [12, 4, 8], strict=True)))
async def test_the_mode_determines_how_many_services_are_called_concurrently(
    mode: Definition, seconds: float, autojump_clock: MockClock
) -> None:
    began = trio.current_time()
    await walked(several("sleep", "even", "sleep", **mode), n=4)
    assert trio.current_time() - began == pytest.approx(seconds, abs=0.1)


async def test_the_same_service_can_be_called_twice(autojump_clock: MockClock) -> None:
    assert (await walked(several("double", "double"), n=4)).result["out"] == [8, 8]


async def test_the_parameters_of_a_run_can_set_the_services(autojump_clock: MockClock) -> None:
    parallel = several()
    assert (await walked(parallel, n=4, services=["double", "echo"])).result["out"] == [8, 4]
    assert (await walked(parallel, n=4, services=[])).result["out"] == []
    given = {**parallel, "params": {"services": ["echo"]}}
    assert (await walked(given, n=4)).result["out"] == [4]
    assert (await walked(several("echo"), n=4, services=["double"])).result["out"] == [4]


@pytest.mark.parametrize("services", [None, "echo", [1], {"echo": 1}])
async def test_invalid_service_names_are_an_error_of_the_node(
    services: Any, autojump_clock: MockClock
) -> None:
    done = await walked(several(), edges="p:sorry end", n=4, services=services)
    assert (done.rows[0].error or "").startswith("bad_params: params.services must be a list of names")


@pytest.mark.parametrize(
    ("strategy", "sequential", "concurrent"),
    [
        ("fail_fast", [3], [3, 6]),
        ("collect_errors", [3, "error", "error", 6], [3, "error", "error", 6]),
        ("ignore_errors", [3, 6], [3, 6]),
    ],
)
async def test_the_strategy_determines_the_effect_of_failures(
    strategy: str, sequential: list[Any], concurrent: list[Any], autojump_clock: MockClock
) -> None:
    """`fail` fails immediately; `even` fails after three seconds."""
    for mode in MODES:
        names = ["echo", "even", "fail", "double"] if mode else ["echo", "fail", "even", "double"]
        done = await walked(several(*names, failure_strategy=strategy, **mode), n=3)
        out = ["error" if isinstance(one, dict) else one for one in done.result["out"]]
        if strategy == "fail_fast" and mode:
            ok = sorted(row.output for row in done.rows if row.branch is not None and row.status == "ok")
            assert sorted(out) == ok
            assert done.of("p", "1")[0].status == "cancelled"
        else:
            assert out == (concurrent if mode else sequential)
        assert done.of("p")[0].status == ("error" if strategy == "fail_fast" else "ok")


@pytest.mark.in_process  # a node waits for an executor that has announced its function
async def test_an_unknown_service_is_a_failure_of_its_branch(autojump_clock: MockClock) -> None:
    done = await walked(several("echo", "nobody", failure_strategy="ignore_errors"), n=3)
    assert done.result["out"] == [3]
    assert "nobody" in (done.of("p", "1")[0].error or "")


async def test_the_state_shows_the_finished_branches(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        parallel = several("echo", "fail", "sleep", failure_strategy="ignore_errors")
        first = local("echo", {"x": 1}, "first")
        inner = flow("first p, p end", first=first, p=parallel, end=END)
        ticket = await start(engine, flow("", s=node("subflow", out="s", subflow=inner)), {"n": 9})
        await trio.sleep(5)
        task = await engine.flows.task(ticket.id)
        assert (task.node, task.steps) == ("s", 1)
        assert task.shared["_rt.sf:s"]["curr"] == "p"
        assert task.shared["_rt.sf:s"]["shared"] == {
            "first": {"x": 1},
            "_rt.pl:p": {
                "done": {"0": 9},
                "errs": {"1": "service_error: ValueError: no 9"},
                "mode": "sequential",
                "max": 1,
                "strategy": "ignore_errors",
            },
        }
        assert (await ended(engine, ticket)).result["s"]["out"] == [9, 9]
