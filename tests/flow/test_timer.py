"""Nodes that wait for a time."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.support import open_engine

from .restarts import Lives
from .walking import Calls, ended, flow, local, node, start, until_waiting, walk

TIMER = node("timer", "$params.x", "waited", params={"delay_ms": 60_000})
WAIT = flow("t b", t=TIMER, b=local("echo", {"x": 1}, "b"))


@pytest.mark.usefixtures("each_store")
async def test_a_timer_waits_and_its_output_is_its_input(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        began = trio.current_time()
        ticket = await start(engine, WAIT, {"x": [1, 2]})
        run = await until_waiting(engine, ticket)
        assert run.waiting_for == "time"
        assert (await engine.snapshot()).engine.executing == 0
        assert (await engine.flows.task(ticket.id)).node == "t"
        done = await ended(engine, ticket)
        assert trio.current_time() - began == pytest.approx(60, abs=0.1)
        assert done.result == {"waited": [1, 2], "b": {"x": 1}}
        row = done.of("t")[0]
        assert (row.status, row.output) == ("ok", [1, 2])
        assert row.finished_at - row.started_at == pytest.approx(60, abs=0.1)


async def test_the_parameters_of_a_run_can_set_the_delay(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        began = trio.current_time()
        await walk(engine, WAIT, {"delay_ms": 2500.5})
        assert trio.current_time() - began == pytest.approx(2.5, abs=0.1)
        began = trio.current_time()
        await walk(engine, WAIT, {"delay_ms": 0})
        assert trio.current_time() - began == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize("delay", ["5", -1, True, [1], 1e18])
async def test_an_invalid_delay_is_an_error_of_the_node(delay: Any, autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        done = await walk(engine, flow("", t=TIMER), {"delay_ms": delay})
        assert (done.rows[0].error or "").startswith("bad_params: params.delay_ms must be a number of milli")


async def test_signals_do_not_end_a_timer_and_are_kept(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        began = trio.current_time()
        ticket = await start(engine, WAIT)
        await until_waiting(engine, ticket)
        await engine.signal(ticket.id, "waited", "no")
        await engine.signal(ticket.id, "t", 1)
        done = await ended(engine, ticket)
        assert trio.current_time() - began == pytest.approx(60, abs=0.1)
        assert done.result == {"waited": None, "t": 1, "b": {"x": 1}}


@pytest.mark.parametrize("how", ["clean", "crash"])
@pytest.mark.parametrize("away", [5, 500])
async def test_a_timer_continues_while_no_engine_runs(
    how: str, away: float, autojump_clock: MockClock
) -> None:
    lives = Lives(Calls().jobs)
    async with getattr(lives, how)() as engine:
        began = trio.current_time()
        ticket = await start(engine, WAIT)
        await until_waiting(engine, ticket)
        await trio.sleep(10)
    await trio.sleep(away)
    async with lives.clean() as engine:
        done = await ended(engine, ticket.id)
        assert done.result["b"] == {"x": 1}
        assert done.story == ["t ok default", "b ok default"]
        assert trio.current_time() - began == pytest.approx(max(60, 10 + away), abs=0.5)


async def test_many_timers_use_no_slot(autojump_clock: MockClock) -> None:
    calls = Calls()
    async with open_engine(calls.jobs, max_concurrent=1) as engine:
        await engine.flows.publish("flow", WAIT)
        tickets = [await engine.flows.start("flow") for _ in range(50)]
        began = trio.current_time()
        await trio.sleep(30)
        executing = await engine.flows.publish("quick", flow("", a=local("echo", {"x": 1}, "a")))
        assert executing.status == "published"
        assert await (await engine.flows.start("quick")).result() == {"a": {"x": 1}}
        for ticket in tickets:
            await ended(engine, ticket)
        assert trio.current_time() - began == pytest.approx(60, abs=0.5)
