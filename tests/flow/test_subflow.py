"""Nodes that walk an embedded graph."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.support import open_engine

from .definitions import Definition
from .walking import Calls, ended, flow, local, node, start, until_waiting, walk

pytestmark = pytest.mark.usefixtures("place")

INNER = flow("a b", a=local("double", "n", "n"), b=local("echo", {"x": "$shared.n"}, "b"))


def sub(inner: Definition, input: Any = None, out: str = "sub", **fields: Any) -> Definition:
    return node("subflow", input, out, subflow=inner, **fields)


@pytest.mark.usefixtures("each_store")
async def test_its_shared_data_begins_as_its_input_and_becomes_its_output(
    autojump_clock: MockClock,
) -> None:
    async with open_engine(Calls().jobs) as engine:
        first = local("echo", {"n": 5}, "given")
        done = await walk(engine, flow("first s, s b", first=first, s=sub(INNER, "given"), b=local("echo")))
        shared = {"n": 10, "b": {"x": 10}}
        assert done.result == {"given": {"n": 5}, "sub": shared}
        assert done.story == [
            "first ok default",
            "s/a ok default",
            "s/b ok default",
            "s ok default",
            "b ok default",
        ]
        assert done.of("s")[0].output == shared
        assert done.of("s")[0].prep == {"n": 5}


@pytest.mark.parametrize("given", [None, [1], "text", 5])
async def test_its_shared_data_begins_empty_if_its_input_is_not_an_object(
    given: Any, autojump_clock: MockClock
) -> None:
    inner = flow("", a=local("echo", {"all": "$shared"}, "seen"))
    async with open_engine(Calls().jobs) as engine:
        done = await walk(engine, flow("", s=sub(inner, "$params.x")), {"x": given})
        assert done.result == {"sub": {"seen": {"all": {}}}}


async def test_its_nodes_see_only_its_shared_data_and_the_parameters_of_run_and_node(
    autojump_clock: MockClock,
) -> None:
    inner = flow("", a=local("echo", {"outer": "$shared.outer", "p": "$params.p", "q": "$params.q"}, "seen"))
    async with open_engine(Calls().jobs) as engine:
        first = local("echo", {"x": 1}, "outer")
        s = sub(inner, params={"p": "of the node", "q": "of the node"})
        done = await walk(engine, flow("first s", first=first, s=s), {"q": "of the run"})
        assert done.result["sub"]["seen"] == {"outer": None, "p": "of the node", "q": "of the run"}


async def test_a_failure_inside_is_the_error_of_the_subflow(autojump_clock: MockClock) -> None:
    inner = flow("a:next b", a=local("fail", "$params.x"), b=local("echo"))
    async with open_engine(Calls().jobs) as engine:
        done = await walk(engine, flow("", s=sub(inner)), {"x": 1})
        why = 'node "s": subflow_failed: node "s/a": service_error: ValueError: no 1'
        assert done.error == why
        assert done.story == ["s/a error default", "s error default"]
        s = sub(inner, on_error="sorry")
        done = await walk(engine, flow("s:sorry b", s=s, b=local("echo", {"x": 1}, "b")), {"x": 1})
        assert done.result == {"b": {"x": 1}}


async def test_nested_subflows_have_their_own_paths(autojump_clock: MockClock) -> None:
    inner = INNER
    for _ in range(5):
        inner = flow("", s=sub(inner, "$shared", "s"))
    async with open_engine(Calls().jobs) as engine:
        done = await walk(engine, flow("", s=sub(inner, "$params.begin", "s")), {"begin": {"n": 1}})
        found = done.result
        for _ in range(6):
            found = found["s"]
        assert found == {"n": 2, "b": {"x": 2}}
        assert done.story[0] == "s/s/s/s/s/s/a ok default"
        assert [row.node.count("/") for row in done.rows] == [6, 6, 5, 4, 3, 2, 1, 0]


async def test_the_input_cannot_set_the_keys_of_the_walk(autojump_clock: MockClock) -> None:
    inner = flow("t s", t=node("timer", params={"delay_ms": 5000}), s=sub(flow("", a=local("echo", {}, "a"))))
    for given in (
        {"_rt.tm:t": {"start": 0}},
        {"_rt.tm:t": "nonsense", "_rt.sf:s": "nonsense"},
        {"_rt.sf:s": {"curr": "nowhere", "shared": {}}},
    ):
        async with open_engine(Calls().jobs) as engine:
            began = trio.current_time()
            done = await walk(engine, flow("", s=sub(inner, "$params.x")), {"x": {**given, "kept": 1}})
            assert trio.current_time() - began == pytest.approx(5, abs=0.1)
            assert done.result == {"sub": {"kept": 1, "sub": {"a": {}}}}


async def test_visits_of_inner_nodes_are_counted_across_visits_of_the_subflow(
    autojump_clock: MockClock,
) -> None:
    again = node("choice", choice_cases=[{"action": "again", "expr": "$shared.sub.n lt 8"}])
    loop = flow("i s, s c, c:again s", i=local("echo", {"n": 1}, "sub"), s=sub(INNER, "sub"), c=again)
    async with open_engine(Calls().jobs) as engine:
        done = await walk(engine, loop)
        assert done.result["sub"]["n"] == 8
        assert [row.visit for row in done.of("s/a")] == [1, 2, 3]
        assert [row.visit for row in done.of("s")] == [1, 2, 3]


async def test_a_wait_inside_suspends_the_run_and_shows_its_path(autojump_clock: MockClock) -> None:
    inner = flow("w a", w=node("timer", params={"delay_ms": 60_000}), a=local("double", "n", "n"))
    async with open_engine(Calls().jobs) as engine:
        ticket = await start(engine, flow("", s=sub(inner, "$params.begin")), {"begin": {"n": 2}})
        run = await until_waiting(engine, ticket)
        assert run.waiting_for == "time"
        task = await engine.flows.task(ticket.id)
        assert task.node == "s"
        kept = task.shared["_rt.sf:s"]
        assert (kept["curr"], kept["last"], kept["shared"]["n"]) == ("w", None, 2)
        assert (await ended(engine, ticket)).result == {"sub": {"n": 4}}


async def test_its_node_run_starts_when_the_walk_enters_it(autojump_clock: MockClock) -> None:
    inner = flow("w a", w=node("timer", params={"delay_ms": 60_000}), a=local("double", "n", "n"))
    async with open_engine(Calls().jobs) as engine:
        ticket = await start(engine, flow("", s=sub(inner, "$params.begin")), {"begin": {"n": 2}})
        await ended(engine, ticket)
        rows = {row.node: row for row in await engine.flows.node_runs(ticket.id)}
        assert rows["s"].started_at <= rows["s/w"].started_at + 0.001  # it is stored in milliseconds
        assert rows["s"].finished_at - rows["s"].started_at >= 60
