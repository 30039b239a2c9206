"""Nodes that choose an action by expressions."""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import MockClock

from tests.support import open_engine

from .walking import Calls, Walked, flow, local, node, walk

ENDS = {name: local("echo", {"x": 1}, name) for name in ("cheap", "dear", "other")}
METALS = ["gold", "silver"]
CASES = [
    {"action": "cheap", "expr": {"lt": ["$params.price", 10]}},
    {"action": "dear", "expr": "$params.price ge 100"},
    {"action": "dear", "expr": {"and": [{"exists": "$params.price"}, {"in": ["$input", METALS]}]}},
]
EDGES = "c:cheap cheap, c:dear dear, c:else other, c other"


async def chosen(params: dict[str, Any], **fields: Any) -> Walked:
    choice = node("choice", "$params.metal", "metal", choice_cases=CASES, **fields)
    async with open_engine(Calls().jobs) as engine:
        return await walk(engine, flow(EDGES, c=choice, **ENDS), params)


@pytest.mark.parametrize(
    ("params", "end"),
    [
        ({"price": 5}, "cheap"),
        ({"price": 5, "metal": "gold"}, "cheap"),
        ({"price": 200}, "dear"),
        ({"price": 50, "metal": "gold"}, "dear"),
        ({"price": 50, "metal": "lead"}, "other"),
        ({"metal": "gold"}, "other"),
        ({"price": "5"}, "other"),
    ],
)
async def test_the_first_true_case_determines_the_action(
    params: dict[str, Any], end: str, autojump_clock: MockClock
) -> None:
    done = await chosen(params)
    assert set(done.result) == {"metal", end}


async def test_its_output_is_its_input(autojump_clock: MockClock) -> None:
    done = await chosen({"price": 50, "metal": "gold"})
    assert done.result["metal"] == "gold"
    [row] = done.of("c")
    assert (row.status, row.prep, row.output, row.action, row.worker) == ("ok", "gold", "gold", "dear", None)


async def test_without_a_true_case_the_usual_rule_determines_the_action(autojump_clock: MockClock) -> None:
    assert (await chosen({"price": 50})).of("c")[0].action == "default"
    assert (await chosen({"price": 50}, default_action="else")).of("c")[0].action == "else"
    assert (await chosen({"price": 50}, action="else")).of("c")[0].action == "else"
    assert (await chosen({"price": 5}, action="else")).of("c")[0].action == "cheap"


async def test_an_action_without_an_edge_ends_the_flow_successfully(autojump_clock: MockClock) -> None:
    choice = node("choice", choice_cases=[{"action": "nowhere", "expr": True}])
    async with open_engine(Calls().jobs) as engine:
        done = await walk(engine, flow("c:cheap cheap", c=choice, cheap=ENDS["cheap"]))
    assert done.result == {}


async def test_two_runs_take_the_two_branches_of_one_flow(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        definition = flow(EDGES, c=node("choice", choice_cases=CASES), **ENDS)
        await engine.flows.publish("flow", definition)
        tickets = [await engine.flows.start("flow", params={"price": price}) for price in (1, 1000)]
        assert [list(await ticket.result()) for ticket in tickets] == [["cheap"], ["dear"]]


async def test_shared_data_that_is_nested_too_deeply_fails_the_flow(
    autojump_clock: MockClock,
) -> None:
    deep = node("choice", "$shared.d", "$shared.d" + ".a" * 98)
    wait = node("timer", params={"delay_ms": 1})
    async with open_engine(Calls().jobs) as engine:
        done = await walk(engine, flow("again wait, wait again", again=deep, wait=wait))
    assert done.run.error == 'node "again": too_deep: the flow\'s shared data is nested too deeply'
