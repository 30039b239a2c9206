"""A leader that is paused for longer than its lease, with commits in flight, and then continued."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio

from greenroom import Client, connect
from greenroom.errors import Unavailable
from greenroom.gateway.background import background
from greenroom.protocol.events import LeaderChanged
from tests.executors.chaos.world import until
from tests.servers import Server

from .told import Told, follow, stored_events
from .world import Node, World, world

_CLIENTS = 20


class Submitting:
    """Clients that submit all the time. `acknowledged` are the runs by request id."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, str] = {}
        self._numbers = itertools.count()

    async def submit_for_ever(self, client: Client) -> None:
        while True:
            request = f"r{next(self._numbers)}"
            submit = partial(client.submit, "walk", params={"count": 0}, request_id=request)
            while True:
                try:
                    ticket = await submit(handle=request)
                except Unavailable:
                    await trio.sleep(0.05)
                else:
                    self.acknowledged[request] = ticket.id
                    break


@asynccontextmanager
async def locked(made: World) -> AsyncIterator[None]:
    """Keep commits waiting in the server: each updates the locked row."""
    connection = import_module("psycopg").connect(
        host=str(made.server.folder),
        port=made.server.port,
        user=made.server.user,
        dbname=urlsplit(made.store).path[1:],
    )
    with connection:
        # In a thread: a transaction in progress continues through the proxies of this event loop.
        await trio.to_thread.run_sync(connection.execute, "SELECT * FROM meta FOR UPDATE")
        yield
        connection.rollback()


def waiting_commits(made: World) -> list[Any]:
    return made.server.execute(
        "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE meta%'"
    )


@pytest.mark.parametrize("in_flight", ["in the server", "anywhere"])
async def test_it_commits_nothing_more_and_follows_the_next_leader(
    tmp_path: Path, postgresql: Server, in_flight: str
):
    told, submitting = Told(), Submitting()
    async with world(tmp_path, postgresql, max_concurrent=4) as made, background() as nursery:
        old = await made.leader()
        followers = [await nursery.start(follow, node.url, node.name, told) for node in made.nodes]
        for number in range(_CLIENTS):
            client = await nursery.start(_connected, made.nodes[number % 3].url)
            nursery.start_soon(submitting.submit_for_ever, client)
        await until(lambda: len(submitting.acknowledged) > 200, "runs are submitted")
        if in_flight == "in the server":
            async with locked(made):
                await until(lambda: bool(waiting_commits(made)), "a commit waits for the lock")
                made.pause(old)
        else:
            made.pause(old)
        paused = time.monotonic()
        logged = len(old.program.logged)
        new = await made.leader(*made.others(old), but=old)
        # The bound is for a transaction that the old leader has left open: the server must end it.
        assert time.monotonic() - paused < 5 * made.lease_ttl
        before = len(submitting.acknowledged)
        await until(lambda: len(submitting.acknowledged) > before + 100, "the new leader accepts runs")
        made.resume(old)
        assert await made.leader(*made.nodes, but=old) is new
        await made.ready()
        await trio.sleep(1)

        said = old.program.logged[logged:].decode()
        assert said.count("this node no longer leads") == 1, said
        acknowledged = list(submitting.acknowledged.values())
        seq = (await followers[0].snapshot()).seq
        await until(lambda: all(each.state.seq >= seq for each in followers), "all clients follow")
        async with made.reading() as store:
            stored = await stored_events(store, 0, seq)
            await told.compare(store, seq)
        leaders = [event for event in stored if isinstance(event, LeaderChanged)]
        assert [event.node for event in leaders] == [old.name, new.name]
        assert leaders[0].term < leaders[1].term == made.leases()[0]
        runs = {event.run for event in stored if getattr(event, "from_", "") is None}
        assert set(acknowledged) <= runs
        assert len(set(acknowledged)) == len(acknowledged)


async def _connected(url: str, *, task_status: trio.TaskStatus[Client]) -> None:
    async with connect(url, patience=60, follow=False) as client:
        task_status.started(client)
        await trio.sleep_forever()


async def test_a_leader_that_was_paused_for_less_than_its_lease_goes_on(tmp_path: Path, postgresql: Server):
    async with world(tmp_path, postgresql, lease_ttl=9) as made, connect(made.nodes[0].url) as client:
        leader: Node = await made.leader()
        await made.stop(leader, 1)
        ticket = await client.submit("walk", handle="a", params={"count": 3})
        assert await ticket.result() == 3
        assert await made.leader() is leader
        assert made.leases()[0] == 1
