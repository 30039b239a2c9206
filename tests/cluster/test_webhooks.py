"""Webhooks in a cluster: the node that leads delivers, and the next leader goes on where it ended."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from tests.webhooks.receiving import SECRET, URL, Receiver

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
