"""The command `cluster`, at the nodes of a cluster and at another server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
from click.testing import Result

from greenroom.cli import main
from greenroom.gateway import Role, add_token
from tests.cli.runner import runner
from tests.gateway.clustered import cluster
from tests.gateway.support import house


async def greenroom(*arguments: str, code: int = 0) -> Result:
    result = await trio.to_thread.run_sync(runner().invoke, main, arguments)
    assert result.exit_code == code, result.output
    return result


@pytest.mark.parametrize("asked", [0, 1], ids=["leader", "follower"])
async def test_the_status_shows_each_node_with_its_role(tmp_path: Path, asked: int):
    async with cluster(tmp_path) as nodes:
        seq = nodes[0].engine.stream.last_seq
        shown = (await greenroom("cluster", "status", "--url", nodes[asked].gateway.url)).stdout
        header, leader, follower = shown.splitlines()
        assert header.split() == ["node", "address", "version", "role", "term", "seq", "lag"]
        assert leader.split() == ["n1", nodes[0].gateway.url, "1.0", "leader", "1", str(seq)]
        assert follower.split()[:4] == ["n2", nodes[1].gateway.url, "1.0", "follower"]
        assert follower.split()[-1] == "s"


@pytest.mark.parametrize("asked", [0, 1], ids=["leader", "follower"])
async def test_the_status_as_json_has_the_address_of_the_leader(tmp_path: Path, asked: int):
    async with cluster(tmp_path) as nodes:
        result = await greenroom("cluster", "status", "--json", "--url", nodes[asked].gateway.url)
        status = json.loads(result.stdout)
        assert list(status) == ["node", "role", "leader", "nodes", "executors"]
        assert (status["node"], status["role"]) == [("n1", "leader"), ("n2", "follower")][asked]
        assert status["leader"] == {"id": "n1", "address": nodes[0].gateway.url, "term": 1}
        assert [(node["id"], node["role"]) for node in status["nodes"]] == [
            ("n1", "leader"),
            ("n2", "follower"),
        ]
        assert set(status["nodes"][1]) == {"id", "address", "role", "version", "seq", "lag"}
        assert status["executors"] == []


async def test_the_leader_steps_down_at_the_request_of_a_follower(tmp_path: Path):
    async with cluster(tmp_path) as nodes:
        told = await greenroom("cluster", "step-down", "--url", nodes[1].gateway.url)
        assert told.stdout == "The leader has stepped down.\n"
        for node in nodes:
            await node.finds_leader("n2")
            status = json.loads(
                (await greenroom("cluster", "status", "--json", "--url", node.gateway.url)).stdout
            )
            assert status["leader"] == {"id": "n2", "address": nodes[1].gateway.url, "term": 2}


async def test_a_leader_without_a_follower_does_not_step_down(tmp_path: Path):
    async with cluster(tmp_path, 1) as [only]:
        refused = await greenroom("cluster", "step-down", "--url", only.gateway.url, code=1)
        assert "no other node can lead: start another node, or one that is not draining" in refused.stderr
        assert only.node.is_leader


async def test_a_node_without_a_leader_shows_the_nodes_that_it_knows(tmp_path: Path):
    async with cluster(tmp_path) as nodes:
        follower = nodes[1]
        follower.node.router.follow(None)
        shown = (await greenroom("cluster", "status", "--url", follower.gateway.url)).stdout.splitlines()
        assert [line.split() for line in shown[1:3]] == [
            ["n1", nodes[0].gateway.url, "1.0", "unknown"],
            ["n2", follower.gateway.url, "1.0", "looking"],
        ]
        assert shown[-1] == "Node n2 knows no leader."
        result = await greenroom("cluster", "status", "--json", "--url", follower.gateway.url)
        status = json.loads(result.stdout)
        assert (status["role"], status["leader"], status["executors"]) == ("looking", None, None)


async def test_another_server_says_that_it_is_not_a_node():
    async with house() as home:
        for command in ("status", "step-down"):
            refused = await greenroom("cluster", command, "--json", "--url", home.gateway.url, code=1)
            error = json.loads(refused.stderr)
            assert error["code"] == "conflict"
            assert error["message"] == "this server is not a node of a cluster: start it with --cluster"


async def test_a_viewer_sees_the_status_but_cannot_let_the_leader_step_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "tokens"
    monkeypatch.setenv("GREENROOM_TOKEN", add_token(file, "me", Role.VIEWER))
    async with cluster(tmp_path, token_file=str(file)) as nodes:
        url = nodes[1].gateway.url
        assert "leader" in (await greenroom("cluster", "status", "--url", url)).stdout
        refused = await greenroom("cluster", "step-down", "--url", url, code=4)
        assert "requires the role admin" in refused.stderr
