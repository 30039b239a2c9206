"""Nodes that join a node which is taking over."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import trio

from greenroom.actors.executors.connection import Connection, connection_pair
from greenroom.actors.journal.stream import Stream
from greenroom.gateway.cluster.replica import Replica
from greenroom.gateway.cluster.router import Router
from greenroom.persistence.memory import MemoryStore
from greenroom.protocol.cluster import VERSION, Join, NotLeader, encoded, from_leader

JOIN = encoded(Join(node="n2", address="http://n2", version="1", protocol=VERSION))


def router() -> Router:
    unused: Any = None
    return Router(Replica(Stream(), MemoryStore(), 1 << 20), unused, unused, random.Random(1))


class _Leading:
    """The leader's side of connections, which only records them."""

    def __init__(self) -> None:
        self.engine = SimpleNamespace(has_lease=True)
        self.served: list[float] = []


async def serve(leading: _Leading, connection: Connection, gateway: object) -> None:
    await trio.lowlevel.checkpoint()
    leading.served.append(trio.current_time())


async def test_a_node_that_joins_during_the_takeover_is_served_when_it_is_complete(
    autojump_clock, monkeypatch
):
    monkeypatch.setattr("greenroom.gateway.cluster.router.serve", serve)
    unused: Any = None
    node, leading = router(), _Leading()
    node.taking_over = True
    ours, _ = connection_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.serve_node, ours, unused)
        await trio.sleep(2)
        began = trio.current_time()
        node.lead(unused, leading, unused)  # type: ignore[arg-type]
    assert leading.served == [began]


async def test_a_node_that_joins_during_a_takeover_that_fails_is_refused(autojump_clock):
    unused: Any = None
    node = router()
    node.taking_over = True
    ours, theirs = connection_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.serve_node, ours, unused)
        await theirs.send(JOIN)
        await trio.sleep(1)
        node.taking_over = False
        node.changed()
        assert from_leader(await theirs.receive()) == NotLeader(leader=None)


async def test_a_node_that_joins_during_a_long_takeover_is_refused_before_it_gives_up(autojump_clock):
    unused: Any = None
    node = router()
    node.taking_over = True
    ours, theirs = connection_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.serve_node, ours, unused)
        await theirs.send(JOIN)
        with trio.fail_after(5):
            assert from_leader(await theirs.receive()) == NotLeader(leader=None)
