"""Nodes that wait for a decision: an answer to the open interrupt, or a signal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from greenroom import Engine, Ticket
from greenroom.protocol.events import InterruptClosed
from greenroom.protocol.records import InterruptState
from tests.support import open_engine

from .restarts import Lives
from .walking import Calls, ended, flow, local, node, start, until_waiting, walk

pytestmark = pytest.mark.usefixtures("each_store")

ASK = node("approval", {"amount": "$params.amount"}, "decision", params={"approval_key": "$shared.approval"})
ENDS = {name: local("echo", {"x": 1}, name) for name in ("approved", "rejected", "later")}
DECIDE = flow("ask:approved approved, ask:rejected rejected, ask later", ask=ASK, **ENDS)


@asynccontextmanager
async def asking(
    definition: dict[str, Any] = DECIDE, params: dict[str, Any] | None = None
) -> AsyncIterator[tuple[Engine, Ticket]]:
    """A run that waits at its approval."""
    async with open_engine(Calls().jobs) as engine:
        ticket = await start(engine, definition, {"amount": 5} if params is None else params)
        await until_waiting(engine, ticket)
        yield engine, ticket


async def interrupt(engine: Engine) -> tuple[str, InterruptState]:
    [(id, record)] = (await engine.snapshot()).interrupts.items()
    return id, record


async def test_an_approval_is_shown_as_an_open_interrupt_and_uses_no_slot(autojump_clock: MockClock) -> None:
    async with asking() as (engine, ticket):
        _, record = await interrupt(engine)
        assert record.run == ticket.id
        assert record.data == {
            "node": "ask",
            "approval_key": "$shared.approval",
            "input": {"amount": 5},
            "params": {"approval_key": "$shared.approval", "amount": 5},
        }
        assert record.deadline is None
        run = await engine.get_run(ticket.id)
        assert (run.status, run.waiting_for) == ("suspended", "answer")
        assert (await engine.snapshot()).engine.executing == 0


@pytest.mark.parametrize(
    ("said", "end", "decision"),
    [
        (True, "approved", True),
        (False, "rejected", False),
        ("approved", "approved", "approved"),
        ("something else", "later", "something else"),
        ({"approved": True, "why": "cheap"}, "approved", {"approved": True, "why": "cheap"}),
        ({"approved": False}, "rejected", {"approved": False}),
        ({"why": "cheap"}, "later", {"why": "cheap"}),
        (7, "later", 7),
        (0, "later", 0),
        ("", "later", ""),
    ],
)
@pytest.mark.parametrize("by", ["answer", "signal"])
async def test_a_decision_is_the_output_and_names_the_action(
    autojump_clock: MockClock, said: Any, end: str, decision: Any, by: str
) -> None:
    async with asking() as (engine, ticket):
        id, _ = await interrupt(engine)
        if by == "answer":
            assert await engine.answer(id, said) == "resolved"
        else:
            await engine.signal(ticket.id, "approval", said)
        done = await ended(engine, ticket)
        assert done.result["decision"] == done.result["approval"] == decision
        assert end in done.result
        assert done.rows[0].output == decision
        assert done.story[1:] == [f"{end} ok default"]
        assert (await engine.snapshot()).interrupts == {}
        assert await engine.answer(id, True) == "already_resolved"


async def test_an_answer_of_null_rejects(autojump_clock: MockClock) -> None:
    async with asking() as (engine, ticket):
        id, _ = await interrupt(engine)
        assert await engine.answer(id, None) == "resolved"
        done = await ended(engine, ticket)
        assert done.story == ["ask ok rejected", "rejected ok default"]
        assert done.result["decision"] is False


async def test_a_signal_of_null_decides_nothing_and_the_same_interrupt_stays_open(
    autojump_clock: MockClock,
) -> None:
    async with asking() as (engine, ticket):
        before = await interrupt(engine)
        await engine.signal(ticket.id, "approval", None)
        await trio.sleep(10)
        assert (await engine.get_run(ticket.id)).status == "suspended"
        assert await interrupt(engine) == before
        await engine.signal(ticket.id, "approval", True)
        assert "approved" in (await ended(engine, ticket)).result


async def test_an_existing_decision_opens_no_interrupt(autojump_clock: MockClock) -> None:
    given = local("echo", {"ok": True}, "approval")
    ask = {**ASK, "params": {"approval_key": "$shared.approval.ok"}}
    async with open_engine(Calls().jobs) as engine:
        done = await walk(engine, flow("given ask, ask:approved approved", given=given, ask=ask, **ENDS))
        assert done.story[1:] == ["ask ok approved", "approved ok default"]
        ask = {**ASK, "params": {"approval_key": "$params.approval"}}
        done = await walk(engine, flow("ask:rejected rejected", ask=ask, **ENDS), {"approval": False})
        assert done.story == ["ask ok rejected", "rejected ok default"]
        history = await engine.history(done.run.id)
        assert not [event for event in history if type(event).__name__ == "InterruptOpened"]


async def test_an_approval_whose_path_no_signal_can_set_can_be_answered(
    autojump_clock: MockClock,
) -> None:
    ask = {**ASK, "params": {"approval_key": "$params.approval"}}
    async with asking(flow("ask:approved approved", ask=ask, **ENDS)) as (engine, ticket):
        id, _ = await interrupt(engine)
        await engine.answer(id, True)
        done = await ended(engine, ticket)
        assert done.result == {"decision": True, "approved": {"x": 1}}


async def test_an_action_key_and_a_static_action_take_precedence_over_the_decision(
    autojump_clock: MockClock,
) -> None:
    for fields, end in (({"action_key": "way"}, "later"), ({"action": "rejected"}, "rejected")):
        ask = node("approval", out="d", params={"approval_key": "approval"}, **fields)
        edges = "ask:approved approved, ask:rejected rejected, ask:afterwards later"
        async with asking(flow(edges, ask=ask, **ENDS)) as (engine, ticket):
            await engine.signal(ticket.id, "approval", {"approved": True, "way": "afterwards"})
            assert end in (await ended(engine, ticket)).result


async def test_an_approval_times_out(autojump_clock: MockClock) -> None:
    late = {**ASK, "timeout_ms": 60_000, "on_timeout": "rejected"}
    async with asking(flow("ask:rejected rejected", ask=late, **ENDS)) as (engine, ticket):
        began = trio.current_time()
        id, _ = await interrupt(engine)
        done = await ended(engine, ticket)
        assert round(trio.current_time() - began) == 60
        assert done.story == ["ask timeout rejected", "rejected ok default"]
        assert done.rows[0].error == "timeout: no decision within 60 s"
        assert round(done.rows[0].finished_at - done.rows[0].started_at) == 60
        assert (await engine.snapshot()).interrupts == {}
        assert await engine.answer(id, True) == "already_resolved"


@pytest.mark.parametrize("decided", [True, False])
async def test_an_interrupt_is_closed_when_the_walk_continues_without_an_answer(
    autojump_clock: MockClock, decided: bool
) -> None:
    ask = {**ASK, "timeout_ms": 5000}
    timer = node("timer", params={"delay_ms": 60_000})
    async with asking(flow("ask:error t, ask:approved t", ask=ask, t=timer)) as (engine, ticket):
        id, _ = await interrupt(engine)
        if decided:
            await engine.signal(ticket.id, "approval", True)
        await trio.sleep(10)
        assert (await engine.get_run(ticket.id)).waiting_for == "time"
        assert (await engine.snapshot()).interrupts == {}
        assert await engine.answer(id, True) == "already_resolved"
        closed = [event for event in await engine.history(ticket.id) if isinstance(event, InterruptClosed)]
        assert [event.outcome for event in closed] == ["withdrawn"]


async def test_each_visit_opens_a_new_interrupt(autojump_clock: MockClock) -> None:
    again = flow("ask:again clear, clear ask", ask=ASK, clear=local("echo", "$params.nothing", "approval"))
    async with asking(again) as (engine, ticket):
        first, _ = await interrupt(engine)
        await engine.answer(first, "again")
        await trio.sleep(1)
        second, record = await interrupt(engine)
        assert first != second
        assert record.run == ticket.id
        await engine.answer(second, True)
        done = await ended(engine, ticket)
        assert done.story == ["ask ok again", "clear ok default", "ask ok approved"]
        assert [row.visit for row in done.of("ask")] == [1, 2]


async def test_an_approval_within_a_subflow_is_decided_there(autojump_clock: MockClock) -> None:
    inner = flow("ask:approved approved", ask=ASK, **ENDS)
    for by in ("answer", "signal"):
        async with asking(flow("", sub=node("subflow", out="sub", subflow=inner))) as (engine, ticket):
            id, record = await interrupt(engine)
            assert record.data["node"] == "sub/ask"
            if by == "answer":
                await engine.answer(id, True)
            else:
                await engine.signal(ticket.id, "approval", True)
            done = await ended(engine, ticket)
            assert done.result["sub"] == {"approval": True, "decision": True, "approved": {"x": 1}}


async def test_an_answer_that_cannot_be_stored_is_an_error_of_the_node(autojump_clock: MockClock) -> None:
    taken = local("echo", "$params.amount", "taken")
    ask = node("approval", params={"approval_key": "taken.deeper"}, on_error="later")
    async with asking(flow("taken ask, ask:later later", taken=taken, ask=ask, **ENDS)) as (engine, ticket):
        id, _ = await interrupt(engine)
        assert await engine.answer(id, True) == "resolved"
        done = await ended(engine, ticket)
        assert done.story == ["taken ok default", "ask error later", "later ok default"]


@pytest.mark.parametrize("key", ['$shared["_rt.tm:x"]', "_rt.ap:ask.x", "$shared._rt.x"])
async def test_an_answer_cannot_overwrite_the_keys_of_the_walk(autojump_clock: MockClock, key: str) -> None:
    ask = node("approval", params={})
    async with asking(flow("", ask=ask), {"approval_key": key}) as (engine, ticket):
        id, _ = await interrupt(engine)
        await engine.answer(id, {"start": 0})
        done = await ended(engine, ticket)
        assert (done.rows[0].error or "").startswith("bad_params:")


@pytest.mark.parametrize("key", [None, 5, "", "$nowhere.x", "a..b"])
async def test_an_approval_with_an_invalid_path_is_an_error_of_the_node(
    autojump_clock: MockClock, key: Any
) -> None:
    async with open_engine(Calls().jobs) as engine:
        done = await walk(engine, flow("", ask=node("approval")), {"approval_key": key})
        assert (done.rows[0].error or "").startswith("bad_params:")


@pytest.mark.parametrize("how", ["clean", "crash"])
@pytest.mark.parametrize("by", ["answer", "signal"])
async def test_the_same_interrupt_is_open_after_a_restart(
    autojump_clock: MockClock, how: str, by: str
) -> None:
    lives = Lives(Calls().jobs)
    async with getattr(lives, how)() as engine:
        ticket = await start(engine, DECIDE, {"amount": 5})
        await until_waiting(engine, ticket)
        id, record = await interrupt(engine)
    async with lives.clean() as engine:
        assert await interrupt(engine) == (id, record)
        await engine.signal(ticket.id, "unrelated", 1)
        await trio.sleep(10)
        assert await interrupt(engine) == (id, record)
        if by == "answer":
            assert await engine.answer(id, True) == "resolved"
        else:
            await engine.signal(ticket.id, "approval", True)
        done = await ended(engine, ticket.id)
        assert done.story == ["ask ok approved", "approved ok default"]
        assert (await engine.snapshot()).interrupts == {}


async def test_an_approval_times_out_after_a_restart(autojump_clock: MockClock) -> None:
    late = {**ASK, "timeout_ms": 60_000, "on_timeout": "rejected"}
    lives = Lives(Calls().jobs)
    async with lives.crash() as engine:
        ticket = await start(engine, flow("ask:rejected rejected", ask=late, **ENDS))
        await until_waiting(engine, ticket)
        await trio.sleep(30)
    async with lives.clean() as engine:
        began = trio.current_time()
        done = await ended(engine, ticket.id)
        assert trio.current_time() - began == pytest.approx(30, abs=1)
        assert done.story == ["ask timeout rejected", "rejected ok default"]
