"""The JavaScript client at the nodes of a cluster."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.clustered import cluster
from tests.gateway.support import house

from .javascript import needs_node, run_node

pytestmark = needs_node


async def test_it_shows_the_cluster_and_lets_the_leader_step_down(tmp_path: Path):
    program = """
        const client = await connect(argument);
        const before = await client.cluster.status();
        await client.cluster.stepDown();
        answer(before);
        client.close();
    """
    async with cluster(tmp_path) as nodes:
        status = await run_node(program, nodes[1].gateway.url)
        assert (status["node"], status["role"]) == ("n2", "follower")
        assert status["leader"] == {"id": "n1", "address": nodes[0].gateway.url, "term": 1}
        assert [node["role"] for node in status["nodes"]] == ["leader", "follower"]
        await nodes[0].finds_leader("n2")


async def test_a_server_that_is_not_a_node_refuses_with_conflict():
    program = """
        const client = await connect(argument);
        await client.cluster.status().catch((error) => answer(error.code));
        client.close();
    """
    async with house() as home:
        assert await run_node(program, home.gateway.url) == "conflict"
