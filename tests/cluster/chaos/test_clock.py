"""The clock of a leader is set back, and forward, by an hour."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from greenroom import Client
from greenroom.gateway.background import background
from tests.executors.chaos.marks import read
from tests.executors.chaos.world import until
from tests.servers import Server

from .told import Told, follow
from .world import World, world


@pytest.mark.parametrize("seconds", [-3600, 3600])
async def test_runs_continue_when_the_leaders_clock_is_set(tmp_path: Path, postgresql: Server, seconds: int):
    clock = tmp_path / "clock"
    clock.write_text("0")
    told = Told()
    async with (
        world(tmp_path, postgresql, start=False) as made,
        background() as nursery,
    ):
        first, *others = made.nodes
        made.start(first, CHAOS_CLOCK=str(clock))
        await made.ready(first)
        for node in others:
            made.start(node)
        await made.ready()
        assert await made.leader() is first
        clients: list[Client] = [
            await nursery.start(follow, node.url, node.name, told) for node in made.nodes
        ]
        tickets = [
            await client.submit("walk", handle=f"h{number}", params={"count": 60})
            for number, client in enumerate(clients)
        ]
        await until(lambda: len(list(made.marks.iterdir())) == 3, "all bodies have begun")
        clock.write_text(str(seconds))
        for client in clients:
            tickets.append(
                await client.submit("walk", handle="after", params={"count": 5}, on_conflict="queue")
            )
        await trio.sleep(2 * made.lease_ttl)  # a lease that counted by this clock would expire
        assert await made.leader() is first, "neither the lease nor an executor depends on the clock"
        assert made.leases()[0] == 1
        for ticket in tickets:
            run = await clients[0].wait(ticket.id, timeout=60)
            assert (run.status, run.attempt) == ("succeeded", 1)
        times = [event.at for event in told.events.values()]
        assert max(times) - min(times) > 3500, "the leader dates events by its clock"
        await made.kill(first)
        await made.leader(*others, but=first)
        ticket = await clients[1].submit("walk", handle="next", params={"count": 3})
        assert await ticket.result() == 3
        await _check(made, told, clients[1:])


async def _check(made: World, told: Told, clients: list[Client]) -> None:
    for marks in read(made.marks):
        fences = [mark.fence for mark in marks]
        assert fences == sorted(fences), "the bodies of a handle overlap"
    seq = (await clients[0].snapshot()).seq
    await until(lambda: all(client.state.seq >= seq for client in clients), "all clients follow")
    async with made.reading() as store:
        await told.compare(store, seq)
