"""A worker and its server, on real sockets: flows whose nodes the worker executes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from greenroom import Engine, Jobs, Services
from greenroom.errors import RunFailed
from greenroom.gateway import GatewayConfig, Role, add_token, open_gateway
from greenroom.worker.calls import Calls
from greenroom.worker.examples import services as examples
from greenroom.worker.life import Front
from greenroom.worker.listening import listen
from greenroom.worker.presence import Presence
from greenroom.worker.pull import Pull
from greenroom.worker.push import Push
from greenroom.worker.registry import open_registry
from tests.gateway.support import House, house
from tests.support import open_engine

PATIENCE = 30.0
"""Seconds for what should happen immediately."""

both_ways = pytest.mark.parametrize("exec_type", ["http", "queue"])


async def work(
    url: str,
    exec_type: str,
    services: Services = examples,
    token: str | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a worker; started when it is registered."""
    calls = Calls(10)
    async with open_registry(url, "w1", token) as registry, trio.open_nursery() as nursery:
        front: Front
        if exec_type == "queue":
            presence = Presence(registry, calls, services.names, "queue")
            front = Pull(registry, calls, services, presence)
        else:
            listeners, own = await listen("http://127.0.0.1:0")
            presence = Presence(registry, calls, services.names, "http", own)
            front = Push(listeners, calls, services)
        nursery.start_soon(front.run)
        nursery.start_soon(presence.run)
        await presence.registered.wait()
        task_status.started()


@asynccontextmanager
async def at_work(house: House, exec_type: str, *more: Any) -> AsyncIterator[None]:
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            await nursery.start(work, house.gateway.url, exec_type, *more)
            yield
            nursery.cancel_scope.cancel()


def node(exec_type: str, service: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "executor", "exec_type": exec_type, "service": service, **fields}


async def publish(engine: Engine, nodes: dict[str, Any], *edges: tuple[str, str, str]) -> None:
    """Publish the flow `f`, which starts at its first node."""
    definition = {
        "start": next(iter(nodes)),
        "nodes": nodes,
        "edges": [{"from": start, "action": action, "to": end} for start, action, end in edges],
    }
    await engine.flows.publish("f", definition)


@both_ways
async def test_a_flow_calls_the_examples(exec_type: str):
    nodes = {
        "loud": node(
            exec_type,
            "transform",
            params={"op": "upper"},
            prep={"input_key": "$params.text"},
            post={"output_key": "loud"},
        ),
        "which": node(exec_type, "route", post={"action_key": "action"}),
        "b": node(exec_type, "sum", prep={"input_key": "$params.numbers"}, post={"output_key": "b"}),
        "c": node(exec_type, "sum", prep={"input_key": "$params.numbers"}, post={"output_key": "c"}),
    }
    async with house() as one, at_work(one, exec_type):
        await publish(
            one.engine, nodes, ("loud", "default", "which"), ("which", "goB", "b"), ("which", "goC", "c")
        )
        params = {"text": "hey", "numbers": [1, 2, 3], "action": "goC"}
        ticket = await one.engine.flows.start("f", params=params)
        assert await ticket.result() == {"loud": "HEY", "c": 6}
        runs = await one.engine.flows.node_runs(ticket.id)
        assert [(run.node, run.status, run.worker) for run in runs] == [
            ("loud", "ok", "w1"),
            ("which", "ok", "w1"),
            ("c", "ok", "w1"),
        ]


@both_ways
async def test_the_error_of_a_service_is_the_error_of_its_node(exec_type: str):
    async with house() as one, at_work(one, exec_type):
        await publish(one.engine, {"a": node(exec_type, "sum", prep={"input_key": "$params.numbers"})})
        ticket = await one.engine.flows.start("f", params={"numbers": 3})
        with pytest.raises(RunFailed, match=r"the input must be an array of numbers \(got 3\)"):
            await ticket.result()


@both_ways
async def test_a_service_receives_the_same_key_for_repeated_work(exec_type: str):
    services = Services()
    services.service("key")(lambda input, params, key: key)
    async with house() as one, at_work(one, exec_type, services):
        await publish(one.engine, {"a b": node(exec_type, "key", post={"output_key": "key"})})
        ticket = await one.engine.flows.start("f")
        assert await ticket.result() == {"key": f"{ticket.id}:a b:1:"}


@both_ways
async def test_a_flow_that_is_cancelled_cancels_the_service(exec_type: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("greenroom.worker.pull.EXTEND_EVERY", 0.05)
    services = Services()
    begun, cancelled = trio.Event(), trio.Event()

    @services.service("endless")
    async def endless(input: Any) -> None:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    async with house() as one, at_work(one, exec_type, services):
        await publish(one.engine, {"a": node(exec_type, "endless")})
        ticket = await one.engine.flows.start("f")
        await begun.wait()
        await one.engine.cancel(ticket.id)
        await cancelled.wait()
        await ticket.wait()
        assert (await one.engine.get_run(ticket.id)).status == "cancelled"


@both_ways
async def test_many_concurrent_calls(exec_type: str):
    services = Services()
    together = 0
    all_there = trio.Event()

    @services.service("meet")
    async def meet(input: Any) -> Any:
        nonlocal together
        together += 1
        if together == 5:
            all_there.set()
        await all_there.wait()
        return input

    each = {
        "kind": "foreach",
        "exec_type": exec_type,
        "service": "meet",
        "prep": {"input_key": "$params.items"},
        "post": {"output_key": "met"},
        "parallel_mode": "concurrent",
        "max_parallel": 5,
    }
    async with house() as one, at_work(one, exec_type, services):
        await publish(one.engine, {"a": each})
        ticket = await one.engine.flows.start("f", params={"items": [1, 2, 3, 4, 5]})
        assert await ticket.result() == {"met": [1, 2, 3, 4, 5]}


async def test_a_worker_is_accepted_with_a_token_of_its_role(tmp_path: Path):
    token = add_token(tmp_path / "tokens", "w", Role.WORKER)
    async with (
        house(token_file=str(tmp_path / "tokens")) as one,
        at_work(one, "queue", examples, token),
    ):
        await publish(one.engine, {"a": node("queue", "route", post={"output_key": "to"})})
        ticket = await one.engine.flows.start("f")
        assert await ticket.result() == {"to": {"action": "goB"}}


async def test_a_worker_registers_again_after_a_restart_of_the_server(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("greenroom.worker.presence.HEARTBEAT", 0.05)
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            async with house() as one:
                await nursery.start(work, one.gateway.url, "http")
                assert await known(one.engine) == [("w1", "online")]
                port = one.gateway.port
            async with open_engine(Jobs()) as engine, open_gateway(engine, GatewayConfig(port=port)):
                events = engine.events()
                while not await known(engine):
                    await anext(events)
                assert await known(engine) == [("w1", "online")]
            nursery.cancel_scope.cancel()


async def known(engine: Engine) -> list[tuple[str, str]]:
    return [(worker.id, worker.status) for worker in await engine.workers.list("sum")]
