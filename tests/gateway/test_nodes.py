"""The gateway of a cluster's node: connections of other nodes, its own address, and readiness."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import trio

from greenroom.cluster.reachability import watch_address
from greenroom.protocol import cluster as wire

from .clustered import SECRET, cluster
from .support import House
from .test_access import upgrade


async def status_of(home: House, path: str, protocol: str, secret: str) -> int:
    """The status of a handshake under a host name that the gateway does not know."""
    raw = await home.raw()
    async with raw.stream:
        request = upgrade(
            Host="node-1.internal:8440",
            Authorization=f"Bearer {secret}",
            Sec_WebSocket_Protocol=protocol,
        )
        await raw.send(request.replace(b"GET /", b"GET " + path.encode(), 1))
        return int((await raw.stream.receive_some(12)).split()[1])


async def test_nodes_connect_under_any_name_of_the_node_and_others_do_not(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as [node]:
        for path, protocol in (("/node", "greenroom.node.v1"), ("/executor", "greenroom.executor.v1")):
            assert await status_of(node, path, protocol, SECRET) == 101
            assert await status_of(node, path, protocol, "another secret") == 403
        assert (await node.http("GET", "/healthz", host="node-1.internal:8440")).status == 403


@pytest.mark.parametrize("index", [0, 1], ids=["leader", "follower"])
async def test_a_node_that_reaches_itself_logs_no_error(
    tmp_path: Path, index: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as nodes:
        node = nodes[index]
        reports: list[bool] = []
        await watch_address(node.gateway.url, node.node.router.start, node.dialer.node, reports.append)
    assert reports == []
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_an_address_of_another_node_or_of_none_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    closed = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
    await listeners[0].aclose()
    async with cluster(tmp_path) as [first, second]:
        for url in (first.gateway.url, closed):
            send, receive = trio.open_memory_channel[bool](1)
            watch = (url, second.node.router.start, second.dialer.node, send.send_nowait)
            second.node._tasks.start_soon(watch_address, *watch)
            assert await receive.receive() is False
    found = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert found[0] == (
        f"this node cannot be reached at its address {first.node.identity.address}: another node answers; "
        "it cannot lead the other nodes: set cluster.advertise to the URL at which they reach it"
    )
    assert found[1].startswith(f"this node cannot be reached at its address {closed}: ")


async def test_the_first_message_of_a_node_is_join_or_identify(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        for node in nodes:
            connection = await node.dialer.node(node.gateway.url)
            await connection.send(wire.encoded(wire.Identify()))
            answer = wire.from_leader(await connection.receive())
            assert answer == wire.Identified(start=f"start of {node.node.identity.id}")
            with pytest.raises((trio.BrokenResourceError, trio.ClosedResourceError)):
                await connection.receive()
            await connection.aclose()


async def test_a_node_is_ready_while_its_state_is_up_to_date(tmp_path: Path) -> None:
    async with cluster(tmp_path) as [first, second]:
        assert (await first.http("GET", "/readyz")).status == 200
        assert (await second.http("GET", "/readyz")).status == 200
        second.node.replica.confirmed = lambda sent: None  # type: ignore[method-assign]
        second.node.replica.confirmed_at = -math.inf
        answer = await second.http("GET", "/readyz")
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert answer.json["code"] == "unavailable"
        assert answer.json["message"].startswith("the state of this node is not up to date with a leader")
        assert (await second.http("GET", "/healthz")).status == 200
        await first.engine.drain()
        answer = await first.http("GET", "/readyz")
        assert (answer.status, answer.json["code"]) == (503, "draining")


async def test_a_leader_whose_lease_has_expired_is_not_ready(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as [node]:
        good = False
        assert node.node.router.engine is not None
        node.node.router.engine._leasing.is_good = lambda: good  # type: ignore[method-assign]
        answer = await node.http("GET", "/readyz")
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert answer.json["message"].startswith("this node could not renew its lease")
        assert (await node.http("GET", "/healthz")).status == 200
        good = True
        assert (await node.http("GET", "/readyz")).status == 200


async def test_a_node_with_another_secret_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path, 1) as [node]:
        for _ in range(3):
            assert await status_of(node, "/node", "greenroom.node.v1", "another secret") == 403
        assert await status_of(node, "/node", "greenroom.node.v1", SECRET) == 101
    refused = [record for record in caplog.records if "is refused" in record.getMessage()]
    assert [(record.levelname, record.getMessage()) for record in refused] == [
        (
            "WARNING",
            "a node at 127.0.0.1 is refused, because the secret of the cluster is missing or differs: use "
            "the same secret_file on each node",
        )
    ]
