"""Flows with crashes, restarts and cancels at unfavourable moments."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import trio

from greenroom import Jobs
from greenroom.errors import Conflict, RunFailed
from greenroom.simulation import World, simulate
from greenroom.simulation.determinism import seeded_run
from greenroom.worker.services import Services

services = Services()


@services.service("echo")
async def echo(input: Any) -> Any:
    return input


ASK = {
    "start": "ask",
    "nodes": {"ask": {"kind": "executor", "service": "echo", "post": {"output_key": "said"}}},
}
WAIT = {
    "start": "first",
    "nodes": {
        "first": {"kind": "wait_event", "params": {"signal_key": "one"}},
        "second": {"kind": "wait_event", "params": {"signal_key": "two"}},
    },
    "edges": [{"from": "first", "to": "second"}],
}


def test_a_node_waits_for_the_workers_that_were_registered_before_a_restart():
    """It failed immediately with `no_worker`: they were offline until their next heartbeats."""

    async def scenario(world: World) -> None:
        server = await world.serve(Jobs())
        world.worker("w", services)
        await trio.sleep(1)
        ann = world.client("ann")
        await ann.flows.publish("ask", ASK)
        await server.crash()
        await server.start()
        ticket = await ann.flows.start("ask")
        began = trio.current_time()
        assert await ticket.result() == {"said": None}
        assert trio.current_time() - began <= 5  # its next heartbeat

    simulate(1, scenario)


def test_a_node_waits_no_longer_than_the_time_limit_for_heartbeats():
    async def scenario(world: World) -> None:
        server = await world.serve(Jobs())
        worker = world.worker("w", services)
        await trio.sleep(1)
        ann = world.client("ann")
        await ann.flows.publish("ask", ASK)
        await server.crash()
        worker.die()
        await server.start()
        began = trio.current_time()
        ticket = await ann.flows.start("ask")
        with pytest.raises(RunFailed, match="no_worker"):
            await ticket.result()
        assert trio.current_time() - began == 15

    simulate(1, scenario)


def test_after_a_restart_the_same_worker_is_retried_and_then_others():
    """The node did not wait for the worker of the first attempt, and did not know any other worker."""

    async def scenario(world: World) -> None:
        server = await world.serve(Jobs())
        first, second = world.worker("first", services), world.worker("second", services)
        for worker in (first, second):
            worker.trouble = lambda call: "status" if len(calls) < 2 and not calls.append(call) else None
        calls: list[Any] = []
        ask = {**ASK["nodes"]["ask"], "max_retries": 1, "wait_ms": 2000}
        await trio.sleep(1)
        ann = world.client("ann")
        await ann.flows.publish("ask", {**ASK, "nodes": {"ask": ask}})
        ticket = await ann.flows.start("ask")
        await trio.sleep(0.5)
        await server.crash()
        await server.start()
        await trio.sleep(30)
        rows = await ann.flows.node_runs(ticket.id)
        assert [row.status for row in rows] == ["error", "error", "ok"]
        assert rows[0].worker == rows[1].worker != rows[2].worker

    for seed in range(20):
        simulate(seed, scenario)


def test_the_registry_sleeps_after_a_worker_has_timed_out_at_any_time(monkeypatch):
    """It looped without sleeping if a time plus 15 seconds was rounded down in floating point."""
    monkeypatch.setattr(seeded_run, "_MOST_LOOKS", 400_000)

    async def scenario(world: World) -> None:
        await world.serve(Jobs())
        for number in range(60):
            worker = world.worker(f"w{number}", services)
            await trio.sleep(world.random.random())
            worker.die()
        await trio.sleep(30)

    simulate(1, scenario)


def test_a_cancel_just_as_a_run_starts_to_wait_is_recorded():
    """Its body had ended already, and no node run recorded the cancel."""

    async def scenario(world: World) -> None:
        await world.serve(Jobs())
        ann = world.client("ann")
        await ann.flows.publish("wait", WAIT)
        ticket = await ann.flows.start("wait")
        await trio.sleep(1)
        await ann.signal(ticket.id, "one", 1)
        for _ in range(world.random.randint(0, 30)):
            await trio.lowlevel.checkpoint()
        await ann.cancel(ticket.id)
        await trio.sleep(1)
        rows = await ann.flows.node_runs(ticket.id)
        assert [row.status for row in rows].count("cancelled") == 1

    for seed in range(200):
        simulate(seed, scenario)


def test_a_node_run_keeps_its_input_and_output_although_they_change_afterwards():
    """The output of a choice was a part of `shared`, and changed with it before it was stored."""
    pass_on = {"kind": "choice", "prep": {"input_key": "a"}, "post": {"output_key": "a.x"}}

    async def scenario(world: World) -> None:
        await world.serve(Jobs())
        ann = world.client("ann")
        first = {"kind": "wait_event", "params": {"signal_key": "a"}}
        edges = [{"from": "first", "to": "pass"}]
        await ann.flows.publish(
            "pass", {"start": "first", "nodes": {"first": first, "pass": pass_on}, "edges": edges}
        )
        ticket = await ann.flows.start("pass")
        await ann.signal(ticket.id, "a", {"n": 1})
        assert await ticket.result() == {"a": {"n": 1, "x": {"n": 1}}}
        row = (await ann.flows.node_runs(ticket.id))[-1]
        assert row.prep == row.output == {"n": 1}

    simulate(1, scenario)


def test_a_body_that_starts_while_the_store_is_down_does_not_block_shutdown():
    """It waited to read the state of its walk, and nothing could cancel that."""

    async def scenario(world: World) -> None:
        server = await world.serve(Jobs(), shutdown_timeout=3)
        ann = world.client("ann")
        await ann.flows.publish("wait", WAIT)
        ticket = await ann.flows.start("wait")
        await trio.sleep(1)
        await ann.signal(ticket.id, "one", 1)
        for _ in range(world.random.randint(0, 20)):
            await trio.lowlevel.checkpoint()
        server.disk.down = True
        with trio.fail_after(60):
            await server.stop()
        server.disk.repair()

    for seed in range(100):
        simulate(seed, scenario)


def test_a_worker_that_replaces_another_has_all_of_its_own_attempts():
    """Its first failure counted as a retry of the worker that had died."""

    async def scenario(world: World) -> None:
        await world.serve(Jobs())
        first = world.worker("first", services)
        ask = {**ASK["nodes"]["ask"], "max_retries": 1, "wait_ms": 20_000}
        await trio.sleep(1)
        ann = world.client("ann")
        await ann.flows.publish("ask", {**ASK, "nodes": {"ask": ask}})
        first.rates = {"status": 1.0}
        ticket = await ann.flows.start("ask")
        await trio.sleep(1)
        first.die()
        second = world.worker("second", services)
        fails = [True]
        second.trouble = lambda call: "status" if fails and fails.pop() else None
        assert await ticket.result() == {"said": None}
        rows = await ann.flows.node_runs(ticket.id)
        assert [row.worker for row in rows] == ["first", "second", "second"]

    simulate(1, scenario)


def test_a_cancel_between_two_attempts_is_the_next_attempt():
    """The cancelled node run had the number of the first attempt."""

    async def scenario(world: World) -> None:
        await world.serve(Jobs())
        world.worker("w", services).rates = {"status": 1.0}
        ask = {**ASK["nodes"]["ask"], "max_retries": 5}
        await trio.sleep(1)
        ann = world.client("ann")
        await ann.flows.publish("ask", {**ASK, "nodes": {"ask": ask}})
        ticket = await ann.flows.start("ask")
        for _ in range(world.random.randint(0, 40)):
            await trio.lowlevel.checkpoint()
        with suppress(Conflict):  # the flow has failed already
            await ann.cancel(ticket.id)
        await trio.sleep(1)
        rows = await ann.flows.node_runs(ticket.id)
        assert [row.attempt for row in rows] == list(range(1, len(rows) + 1))

    for seed in range(200):
        simulate(seed, scenario)


def test_executing_runs_are_listed_in_the_same_order_before_and_after_a_restart():
    """Runs were listed in the order of their starts, and after a restart in that of their creation."""

    async def scenario(world: World) -> None:
        server = await world.serve(Jobs())
        ann = world.client("ann")
        nap = {"kind": "timer", "params": {"delay_ms": 1000}}
        ask = {"kind": "executor", "service": "echo", "exec_type": "queue"}
        edges = [{"from": "nap", "to": "ask"}]
        await ann.flows.publish("late", {"start": "nap", "nodes": {"nap": nap, "ask": ask}, "edges": edges})
        await ann.flows.publish("early", {"start": "ask", "nodes": {"ask": ask}})
        await ann.flows.start("late")
        await ann.flows.start("early")
        await trio.sleep(5)
        before = await ann.snapshot()
        await server.crash()
        await server.start()
        after = await ann.snapshot()
        if after.seq == before.seq:
            assert after == before
        assert len(before.lanes["main"].executing) == 2

    for seed in range(100):
        simulate(seed, scenario)
