"""Webhooks in a cluster: the node that leads delivers, and the next leader goes on where it ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from greenroom.gateway.auth.tokens import Caller
from greenroom.gateway.commands.entries import Context, Entry
from greenroom.gateway.commands.table import BY_TYPE
from greenroom.protocol.webhook_commands import DropWebhook, FailingWebhooks
from tests.webhooks.receiving import SECRET, URL, Receiver

from .scripted import OPERATOR
from .world import World, until, world


async def led(home: World, *names: str) -> list[Any]:
    """Nodes of which the first leads, and the others follow."""
    nodes: list[Any] = []
    for name in names:
        nodes.append(home.node(name))
        await until(nodes[-1].has_state.is_set)
    return nodes


@pytest.mark.parametrize("accepts", [0, 1])
async def test_the_next_leader_delivers_what_is_left(autojump_clock: Any, accepts: int) -> None:
    """The first leader delivers some events, and ends while it delivers the next."""
    receiver = Receiver(lambda url, event: 200 if len(receiver.got) < accepts else 503)
    async with world() as home:
        home.options = {"push": receiver, "webhook_secret": SECRET}
        first, second = await led(home, "a", "b")
        ticket = await first.router.engine.submit("quick", handle="h", notify=URL)
        await first.router.engine.cancel(ticket.id)
        await until(lambda: len(receiver.attempts) == accepts + 1)
        assert len(receiver.got) == accepts
        home.scopes["a"].cancel()
        await until(lambda: second.is_leader)
        receiver.respond = lambda url, event: 200
        await until(lambda: len(receiver.got) == 2)
        await trio.sleep(60)
        assert receiver.states(ticket.id) == ["queued", "cancelled"]
        assert home.memory._webhooks.due(9, [], [], None, None) == []


async def test_only_the_leader_delivers(autojump_clock: Any) -> None:
    receiver = Receiver()
    async with world() as home:
        home.options = {"push": receiver, "webhook_secret": SECRET}
        first, _, _ = await led(home, "a", "b", "c")
        ticket = await first.router.engine.submit("quick", handle="h", notify=URL)
        await first.router.engine.cancel(ticket.id)
        await trio.sleep(60)
        assert receiver.states(ticket.id) == ["queued", "cancelled"]


async def test_a_follower_forwards_the_calls_for_failing_webhooks(autojump_clock: Any) -> None:
    receiver = Receiver(lambda url, event: 503)
    async with world() as home:
        home.options = {"push": receiver, "webhook_secret": SECRET}

        async def call(entry: Entry, caller: Caller, command: Any) -> Any:
            assert entry.call is not None
            return await entry.call(cast(Context, SimpleNamespace(engine=engine, by=caller.name)), command)

        first = home.node("a", gateway=SimpleNamespace(max_frame_bytes=1 << 20, call=call))
        await until(first.has_state.is_set)
        [second] = await led(home, "b")
        engine = first.router.engine
        ticket = await engine.submit("quick", handle="h", notify=URL)
        await engine.cancel(ticket.id)
        await trio.sleep(1)

        async def ask(command: Any) -> Any:
            return await second.router.execute(not_here, BY_TYPE[type(command)], OPERATOR, command)

        async def not_here(command: Any) -> Any:
            raise AssertionError("a follower has no webhooks")

        [failing] = (await ask(FailingWebhooks(id=0)))["webhooks"]
        assert (failing.run, failing.attempts) == (ticket.id, 1)
        await ask(DropWebhook(id=0, webhook_id=failing.id))
        assert await engine.webhooks.failing() == []
