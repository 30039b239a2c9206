"""Flows in the simulation: they end as their graphs define, despite faults of workers and crashes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greenroom import Jobs
from greenroom.errors import Conflict, RunFailed
from greenroom.simulation import SimulationFailed, World, simulate
from greenroom.simulation.scenarios.flows.graphs import draw_graph
from greenroom.simulation.scenarios.flows.scenario import FlowPlay, flows
from greenroom.simulation.world.disk_backend import Trouble
from greenroom.worker.services import Services

long = pytest.mark.long("GREENROOM_FLOWS")


@pytest.fixture(autouse=True)
def _silent(caplog: pytest.LogCaptureFixture) -> None:
    """Silence the log: thousands of flows fail here on purpose."""
    caplog.set_level(logging.CRITICAL + 1, logger="greenroom")


# Random graphs, compared with a plain interpretation.


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_flows_end_as_their_graphs_define_despite_faults(first: int):
    for seed in range(first, first + 20):
        simulate(seed, flows)


@pytest.mark.parametrize("first", range(0, 20, 10))
def test_flows_end_as_their_graphs_define_on_sqlite(first: int):
    for seed in range(first, first + 10):
        simulate(seed, flows, store="sqlite")


@long
@pytest.mark.parametrize("first", range(1_000, 9_000, 500))
def test_flows_end_as_their_graphs_define_for_many_seeds(first: int):
    for seed in range(first, first + 500):
        simulate(seed, flows)


class OneFlow(FlowPlay):
    """A server that walks one flow, with trouble at some of its commits."""

    def __init__(self, world: World, graph: dict[str, Any], troubles: Sequence[tuple[int, Trouble]]) -> None:
        super().__init__(world)
        self.graph = graph
        self.troubles = troubles

    def draw(self, random: Random, number: int) -> dict[str, Any]:
        return self.graph if number == 2 else draw_graph(random, depth=2)

    async def play(self) -> None:
        client = self.world.client("ann")
        ticket = await client.flows.start("third", params={"items": [1, 2, 3], "p": 7})
        for commits, trouble in self.troubles:
            await self.start()
            self.server.disk.fail_commit(trouble, after=commits)
            await trio.sleep(20)
        assert ticket.id in self.server.rules.flows.walks


graphs = st.randoms(use_true_random=False, note_method_calls=False).map(
    lambda random: draw_graph(random, ("first", "second"))  # type: ignore[arg-type]  # it is one
)
crashes = st.sampled_from(("crash_before", "crash_within", "crash_after", "lost_reply"))


@settings(max_examples=max(200, settings().max_examples), suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 1000), graphs, st.lists(st.tuples(st.integers(0, 8), crashes), max_size=4))
def test_a_flow_has_the_same_result_wherever_a_crash_interrupts_it(seed, graph, troubles):
    async def scenario(world: World) -> None:
        play = OneFlow(world, graph, troubles)
        async with play.staged():
            await play.play()

    simulate(seed, scenario)


# Simulated workers in users' scenarios.

services = Services()


@services.service("double")
async def double(number: int) -> int:
    return 2 * number


@services.service("greet")
async def greet(name: str, params: dict[str, Any]) -> str:
    return f"{params['with']}, {name}"


@services.service("fail")
async def fail(_: Any, params: dict[str, Any], key: str) -> None:
    raise ValueError(f"{key.partition(':')[2]} fails on purpose")


def call(service: str, exec_type: str = "http", **node: Any) -> dict[str, Any]:
    """A flow of one node, which calls a service."""
    prep, post = {"input_key": "$params.it"}, {"output_key": "out"}
    node = {"kind": "executor", "exec_type": exec_type, "service": service, "prep": prep, "post": post} | node
    return {"start": "call", "nodes": {"call": node}}


async def run_flow(world: World, graph: dict[str, Any], **params: Any) -> Any:
    client = world.client("ann")
    await trio.sleep(1)
    await client.flows.publish("flow", graph)
    ticket = await client.flows.start("flow", params=params)
    with trio.fail_after(600):
        result = await ticket.result()
    return result, await client.flows.node_runs(ticket.id)


@pytest.mark.parametrize(("kind", "exec_type"), [("http", "http"), ("queue", "queue")])
def test_a_worker_executes_its_services(kind, exec_type):
    async def scenario(world: World) -> None:
        await world.serve(Jobs())
        world.worker("w", services, kind=kind)
        result, [row] = await run_flow(world, call("double", exec_type), it=21)
        assert result == {"out": 42}
        assert row.worker == "w"
        graph = call("greet", exec_type, params={"with": "hello"})
        assert (await run_flow(world, graph, it="ann"))[0] == {"out": "hello, ann"}
        with pytest.raises(RunFailed, match=r"service_error: .*ValueError: call:1: fails on purpose"):
            await run_flow(world, call("fail", exec_type))

    simulate(1, scenario)


@pytest.mark.parametrize(
    ("trouble", "code"),
    [
        ("unreachable", "unreachable"),
        ("reset", "reset"),
        ("lost", "reset"),
        ("status", "bad_status"),
        ("garbage", "bad_json"),
        ("shape", "bad_answer"),
        ("late", "timeout"),
        ("never", "timeout"),
        ("dies", "reset"),
    ],
)
def test_a_call_with_trouble_is_retried_at_another_worker(trouble, code):
    async def scenario(world: World) -> None:
        await world.serve(Jobs())
        world.worker("bad", services).rates = {trouble: 1.0}
        await trio.sleep(1)
        world.worker("good", services)
        result, rows = await run_flow(world, call("double"), it=1)
        assert result == {"out": 2}
        assert rows[-1].worker == "good"
        assert [row.error.partition(":")[0] for row in rows[:-1]] in ([], [code])

    for seed in range(4):
        simulate(seed, scenario)


def test_the_work_of_a_worker_that_dies_is_given_to_another():
    async def scenario(world: World) -> None:
        await world.serve(Jobs())
        world.worker("bad", services, kind="queue").rates = {"dies": 1.0}
        client = world.client("ann")
        await client.flows.publish("flow", call("double", "queue"))
        ticket = await client.flows.start("flow", params={"it": 1})
        await trio.sleep(1)
        world.worker("good", services, kind="queue")
        with trio.fail_after(90):
            assert await ticket.result() == {"out": 2}
        rows = await client.flows.node_runs(ticket.id)
        assert [(row.worker, row.status) for row in rows] == [("bad", "error"), ("good", "ok")]
        assert "expired" in rows[0].error

    simulate(1, scenario)


def test_a_worker_without_heartbeats_is_offline_and_a_restarted_one_is_called_at_its_new_url():
    async def scenario(world: World) -> None:
        await world.serve(Jobs())
        worker = world.worker("w", services)
        await trio.sleep(1)
        worker.silent = True
        await trio.sleep(20)
        with pytest.raises(RunFailed, match="no_worker"):
            await run_flow(world, call("double"), it=1)
        worker.die()
        worker.start(elsewhere=True)
        _, [row] = await run_flow(world, call("double"), it=1)
        assert row.worker_url == worker.url == "http://w:8001"

    simulate(1, scenario)


def test_a_running_worker_cannot_be_started_again():
    async def scenario(world: World) -> None:
        await world.serve(Jobs())
        worker = world.worker("w", services)
        with pytest.raises(RuntimeError, match="worker w is running"):
            worker.start()

    simulate(1, scenario)


def test_a_client_signals_flows_and_manages_them():
    wait = {"start": "w", "nodes": {"w": {"kind": "wait_event", "params": {"signal_key": "go"}}}}

    async def scenario(world: World) -> None:
        await world.serve(Jobs())
        ann = world.client("ann")
        row = await ann.flows.create("mine", "of ann")
        await ann.flows.add_version("mine", wait, version=2, status="draft")
        await ann.flows.add_version(row.id, wait)
        with pytest.raises(Conflict):
            await ann.flows.create("mine")
        assert [version.version for version in await ann.flows.versions("mine")] == [2, 3]
        ticket = await ann.flows.start("mine", handle="h")
        await trio.sleep(1)
        task = await ann.flows.task(ticket.id)
        assert (task.node, task.run.status) == ("w", "suspended")
        assert (await ann.flows.tasks(status="suspended"))[1] == 1
        await ann.signal(ticket.id, "go", 1)
        assert await ticket.result() == {"go": 1}

    simulate(1, scenario)


def test_the_story_shows_flows_and_workers():
    async def scenario(world: World) -> None:
        await world.serve(Jobs())
        world.worker("w", services).rates = {"slow": 1.0}
        await run_flow(world, call("double"), it=1)

    story = simulate(1, scenario).trace.story()
    for line in (
        "worker w is online at http://w:8000",
        "flow flow has version 1, published",
        "node call has started, visit 1",
        "node call has run at w: ok, action default",
        "!!!! worker w: slow at call run 3:call:1:",
    ):
        assert line in story


def test_the_same_seed_gives_the_same_trace_of_flows():
    def play() -> tuple[str, str]:
        try:
            trace = simulate(7, flows).trace
        except SimulationFailed as failed:
            trace = failed.trace
        return trace.text(messages=True), trace.story()

    assert play() == play()
