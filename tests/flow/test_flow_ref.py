"""Nodes that walk another published flow."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from greenroom import Engine
from tests.support import open_engine

from .definitions import Definition
from .restarts import Lives
from .walking import Calls, ended, flow, local, node, start, until_waiting, walk


def ref(name: str = "other", **fields: object) -> Definition:
    return node("flow_ref", {"n": "$params.n"}, "out", flow=name, **fields)


def doubles(times: int) -> Definition:
    """A flow whose versions have different results: version n doubles a number n times."""
    keys = [f"d{number}" for number in range(times)]
    edges = ", ".join(f"{a} {b}" for a, b in pairwise(keys))
    return flow(edges, **{key: local("double", "n", "n") for key in keys})


async def publish(engine: Engine, *definitions: Definition, name: str = "other") -> None:
    for definition in definitions:
        await engine.flows.publish(name, definition)


async def test_the_shared_data_of_the_other_flow_is_the_output(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        await publish(engine, doubles(2))
        done = await walk(engine, flow("", r=ref()), {"n": 1})
        assert done.result == {"out": {"n": 4}}
        assert done.story == ["r/d0 ok default", "r/d1 ok default", "r ok default"]


async def test_a_reference_without_a_version_walks_the_latest_published_one(
    autojump_clock: MockClock,
) -> None:
    async with open_engine(Calls().jobs) as engine:
        await publish(engine, doubles(1), doubles(2), doubles(3))
        await engine.flows.publish("other", doubles(4), status="draft")
        for version, n in ((1, 2), (2, 4), (0, 8)):
            assert (await walk(engine, flow("", r=ref(version=version)), {"n": 1})).result == {
                "out": {"n": n}
            }
        by_id = (await engine.flows.list())[0][0].id
        assert (await walk(engine, flow("", r=ref(by_id)), {"n": 1})).result == {"out": {"n": 8}}


@pytest.mark.parametrize(
    ("reference", "complaint"),
    [
        (ref("nobody"), 'flow "nobody" not found'),
        (ref(version=7), "has no version 7"),
        (ref(version=2), "is a draft"),
        (ref("empty"), "has no published version"),
    ],
)
async def test_an_unknown_flow_is_an_error_of_the_node(
    reference: Definition, complaint: str, autojump_clock: MockClock
) -> None:
    async with open_engine(Calls().jobs) as engine:
        await publish(engine, doubles(1))
        await engine.flows.publish("other", doubles(2), status="draft")
        await engine.flows.create("empty")
        done = await walk(engine, flow("", r=reference), {"n": 1})
        assert (done.rows[0].error or "").startswith("unknown_flow: ")
        assert complaint in (done.rows[0].error or "")


async def test_the_version_is_resolved_when_the_walk_arrives_and_stays(
    autojump_clock: MockClock,
) -> None:
    wait = flow("t d0", t=node("timer", params={"delay_ms": 10_000}), d0=local("double", "n", "n"))
    lives = Lives(Calls().jobs)
    async with lives.clean() as engine:
        await publish(engine, doubles(1))
        before = node("timer", params={"delay_ms": 1000})
        ticket = await start(engine, flow("b r", b=before, r=ref()), {"n": 1})
        await until_waiting(engine, ticket)
        await publish(engine, wait)
        await trio.sleep(5)
        await publish(engine, doubles(5))
    async with lives.clean() as engine:
        done = await ended(engine, ticket.id)
        assert done.result == {"out": {"n": 2}}
        assert done.story == ["b ok default", "r/t ok default", "r/d0 ok default", "r ok default"]


async def test_after_a_crash_in_its_first_node_the_version_is_the_same(autojump_clock: MockClock) -> None:
    """Finished items belong to the version that was walked."""
    each = node("foreach", "$params.items", "out", exec_type="local", func="sleep")
    calls = Calls()
    lives = Lives(calls.jobs)
    async with lives.crash() as engine:
        await publish(engine, flow("", d0=each))
        ticket = await start(engine, flow("", r=ref()), {"items": [1, 2, 50]})
        await trio.sleep(10)
        await publish(engine, flow("", d0={**each, "func": "double"}))
    assert calls.of("sleep") == [1, 2, 50]
    async with lives.clean() as engine:
        done = await ended(engine, ticket.id)
        assert done.result["out"]["out"] == [1, 2, 50]
        assert calls.of("double") == []
        assert calls.of("sleep") == [1, 2, 50, 50]


async def test_each_visit_resolves_the_version_again(autojump_clock: MockClock) -> None:
    again = node("choice", choice_cases=[{"action": "again", "expr": "not(exists($shared.stop))"}])
    loop = flow("r t, t c, c:again r", r=ref(), t=node("timer", params={"delay_ms": 1000}), c=again)
    async with open_engine(Calls().jobs) as engine:
        await publish(engine, doubles(1))
        ticket = await start(engine, loop, {"n": 1})
        await until_waiting(engine, ticket)
        await publish(engine, doubles(3))
        await trio.sleep(1.5)
        await engine.signal(ticket.id, "stop", True)
        done = await ended(engine, ticket)
        assert [row.output for row in done.of("r")] == [{"n": 2}, {"n": 8}]


async def test_a_flow_that_refers_to_itself_fails(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        await publish(engine, flow("", r=ref("other")))
        ticket = await engine.flows.start("other", params={"n": 1})
        done = await ended(engine, ticket)
        assert "too_deep: flows can be nested at most 20 deep" in done.error
        assert done.story[-1] == "r error default"
        assert len(done.rows) == 21


async def test_the_state_contains_the_version_of_the_inner_flow(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        await publish(engine, flow("", t=node("timer", params={"delay_ms": 1000})))
        ticket = await start(engine, flow("", r=ref()), {"n": 1})
        await until_waiting(engine, ticket)
        kept = (await engine.flows.task(ticket.id)).shared["_rt.sf:r"]
        [version] = await engine.flows.versions("other")
        assert (kept["curr"], kept["version"]) == ("t", version.id)
