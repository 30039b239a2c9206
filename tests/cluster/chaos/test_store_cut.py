"""The database is reachable for one node only."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom import connect
from tests.executors.chaos.world import until
from tests.servers import Server

from .world import world


@pytest.mark.parametrize("how", ["close", "silence"])
async def test_the_only_node_that_reaches_the_database_leads_and_the_others_follow_it(
    tmp_path: Path, postgresql: Server, how: str
):
    async with world(tmp_path, postgresql) as made, connect(made.nodes[0].url, patience=60) as client:
        old = await made.leader()
        only, other = made.others(old)
        ticket = await client.submit("walk", handle="a", params={"count": 40})
        getattr(made.network, how)(made.to_store(old, other))
        assert await made.leader(but=old) is only  # according to all three nodes
        assert await ticket.result() == 40
        for node in made.nodes:
            async with connect(node.url) as there:
                ticket = await there.submit("walk", handle=node.name, params={"count": 3})
                assert await ticket.result() == 3
        await until(lambda: old.program.logged.count(b"this node no longer leads") == 1, "it says so")
        made.network.heal()
        await made.ready()
        assert await made.leader() is only
        assert made.leases() == (2, only.address)
