"""Nodes that wait for a value."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.support import open_engine

from .restarts import Lives
from .walking import Calls, ended, flow, local, node, start, until_waiting, walk

WAIT = node("wait_event", out="came", params={"signal_key": "$shared.order.paid"}, on_timeout="late")
LATE = {"late": local("echo", {"x": 1}, "late")}
ENDS = {"b": local("echo", {"x": 1}, "b"), **LATE}
FLOW = flow("w b, w:late late", w=WAIT, **ENDS)


@pytest.mark.usefixtures("each_store")
@pytest.mark.parametrize("value", [1, "yes", {"amount": 5}, [], False, 0, ""])
async def test_a_signal_wakes_the_node_and_its_value_is_the_output(
    value: Any, autojump_clock: MockClock
) -> None:
    async with open_engine(Calls().jobs) as engine:
        ticket = await start(engine, FLOW)
        run = await until_waiting(engine, ticket)
        assert run.waiting_for == "signal"
        assert (await engine.snapshot()).engine.executing == 0
        await trio.sleep(7)
        await engine.signal(ticket.id, "order.paid", value)
        done = await ended(engine, ticket)
        assert done.result == {"order": {"paid": value}, "came": value, "b": {"x": 1}}
        row = done.of("w")[0]
        assert (row.status, row.output) == ("ok", value)
        assert row.finished_at - row.started_at == pytest.approx(7, abs=0.1)


async def test_an_existing_value_is_not_waited_for(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        for key, params in (("$params.x", {"x": 5}), ("first.x", {})):
            first = local("echo", {"x": 5}, "first")
            wait = node("wait_event", out="came", params={"signal_key": key})
            began = trio.current_time()
            done = await walk(engine, flow("first w", first=first, w=wait), params)
            assert done.result["came"] == 5
            assert trio.current_time() == began
        wait = node("wait_event", {"y": 3}, "came", params={"signal_key": "$input.y"})
        assert (await walk(engine, flow("", w=wait))).result == {"came": 3}


async def test_the_node_times_out_by_its_parameter_or_its_field(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        for wait, params, seconds in (
            (WAIT, {"timeout_ms": 5000}, 5),
            ({**WAIT, "timeout_ms": 3000}, {}, 3),
            ({**WAIT, "timeout_ms": 3000}, {"timeout_ms": 5000}, 5),
            (WAIT, {"timeout_ms": 0}, 0),
        ):
            began = trio.current_time()
            done = await walk(engine, flow("w b, w:late late", w=wait, **ENDS), params)
            assert trio.current_time() - began == pytest.approx(seconds, abs=0.1)
            assert done.result == {"late": {"x": 1}}
            assert done.story[0] == "w timeout late"
            assert (
                done.rows[0].error == f'timeout: signal "$shared.order.paid" not received within {seconds} s'
            )


async def test_other_signals_do_not_restart_the_wait(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        began = trio.current_time()
        ticket = await start(engine, FLOW, {"timeout_ms": 10_000})
        for key in ("order.other", "order", "order.paid"):
            await trio.sleep(3)
            await engine.signal(ticket.id, key, None)
        done = await ended(engine, ticket)
        assert trio.current_time() - began == pytest.approx(10, abs=0.1)
        assert done.story[0] == "w timeout late"


async def test_a_value_above_or_below_the_awaited_path_wakes_the_node_too(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        for key, value, came in (
            ("order", {"paid": 1}, 1),
            ("order.paid.amount", 2, {"amount": 2}),
            ("$shared.order.paid", 3, 3),
            ('$shared["order"]["paid"]', 4, 4),
        ):
            ticket = await start(engine, FLOW)
            await until_waiting(engine, ticket)
            await engine.signal(ticket.id, key, value)
            assert (await ended(engine, ticket)).result["came"] == came


async def test_a_value_that_its_input_is_derived_from_wakes_the_node_too(autojump_clock: MockClock) -> None:
    wait = node("wait_event", "$shared.order", "came", params={"signal_key": "$input.paid"})
    async with open_engine(Calls().jobs) as engine:
        ticket = await start(engine, flow("", w=wait))
        await until_waiting(engine, ticket)
        await engine.signal(ticket.id, "order.paid", 5)
        assert (await ended(engine, ticket)).result == {"order": {"paid": 5}, "came": 5}


async def test_a_loop_can_wait_again_for_a_value_that_was_removed(autojump_clock: MockClock) -> None:
    clear = local("echo", "$params.nothing", "order.paid")
    async with open_engine(Calls().jobs) as engine:
        ticket = await start(engine, flow("w clear, clear w, w:late late", w=WAIT, clear=clear, **LATE))
        for number in (1, 2, 3):
            await until_waiting(engine, ticket)
            await engine.signal(ticket.id, "order.paid", number)
            await trio.sleep(1)
        rows = await engine.flows.node_runs(ticket.id)
        assert [(row.visit, row.output) for row in rows if row.node == "w"] == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize("how", ["clean", "crash"])
@pytest.mark.parametrize("signalled", ["by the next engine", "before its time is up", "not"])
async def test_the_wait_continues_over_a_restart(how: str, signalled: str, autojump_clock: MockClock) -> None:
    lives = Lives(Calls().jobs)
    async with getattr(lives, how)() as engine:
        began = trio.current_time()
        ticket = await start(engine, FLOW, {"timeout_ms": 60_000})
        await until_waiting(engine, ticket)
        await trio.sleep(10)
    await trio.sleep(10)
    async with lives.clean() as engine:
        assert (await engine.get_run(ticket.id)).waiting_for == "signal"
        if signalled == "not":
            done = await ended(engine, ticket.id)
            assert done.story[0] == "w timeout late"
            assert trio.current_time() - began == pytest.approx(60, abs=0.5)
            return
        await trio.sleep(0 if signalled == "by the next engine" else 30)
        await engine.signal(ticket.id, "unrelated", 1)
        await trio.sleep(1)
        assert (await engine.get_run(ticket.id)).status == "suspended"
        await engine.signal(ticket.id, "order.paid", 1)
        done = await ended(engine, ticket.id)
        assert done.story == ["w ok default", "b ok default"]


@pytest.mark.parametrize(
    "params",
    [{"signal_key": key} for key in (None, 5, "$no.x")] + [{"timeout_ms": late} for late in ("5", -1, True)],
)
async def test_invalid_parameters_are_an_error_of_the_node(
    params: dict[str, Any], autojump_clock: MockClock
) -> None:
    async with open_engine(Calls().jobs) as engine:
        done = await walk(engine, flow("", w=WAIT), params)
        assert (done.rows[0].error or "").startswith("bad_params:")
