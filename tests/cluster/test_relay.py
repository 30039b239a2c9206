"""The connections of executors that a follower relays to the leader."""

from __future__ import annotations

import pytest
import trio

from greenroom.actors.executors.connection import Connection, connection_pair
from greenroom.gateway.cluster.relay import relay
from greenroom.protocol.records import LeaderInfo


async def test_a_relayed_connection_ends_when_another_node_leads(autojump_clock):
    ours, executors = connection_pair()
    theirs, silent = connection_pair()
    replaced = trio.Event()

    async def dial(leader: LeaderInfo) -> Connection:
        await trio.lowlevel.checkpoint()
        return theirs

    leader = LeaderInfo(id="n1", address="http://n1", term=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(relay, ours, dial, leader, replaced.wait)
        await executors.send(b"attach")
        assert await silent.receive() == b"attach"
        replaced.set()
        with trio.fail_after(5), pytest.raises(trio.EndOfChannel):
            await executors.receive()
        with pytest.raises(trio.EndOfChannel):
            await silent.receive()
