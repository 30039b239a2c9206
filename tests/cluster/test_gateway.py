"""The gateway of a node: who can connect as a node, and what clients get while there is no leader."""

from __future__ import annotations

import base64

import pytest
import trio
from trio_websocket import WebSocketConnection, wrap_client_stream

from greenroom.errors import Unavailable
from greenroom.gateway import GatewayConfig, Role, add_token
from greenroom.gateway.auth.refused_nodes import RefusedNodes
from greenroom.gateway.cluster.router import PATIENCE
from greenroom.gateway.http.responses import header_list, refusal
from greenroom.protocol import cluster as wire
from greenroom.protocol.errors import Conflict, RateLimited
from tests.following import SECRET, join_of
from tests.gateway.support import Answer, House, Raw, Refused, client_frame, house

from .support import Pair, pair
from .test_resuming import gateway_of


def at_leader(here: Pair) -> House:
    assert here.leader._gateway is not None
    return House(here.bodies, here.engine, here.leader._gateway, here.nursery)


async def node_socket(home: House) -> WebSocketConnection:
    return await wrap_client_stream(
        home.nursery,
        await home.stream(),
        "localhost",
        wire.PATH,
        subprotocols=[wire.SUBPROTOCOL],
        extra_headers=[(b"authorization", f"Bearer {SECRET}".encode())],
    )


async def rejected(home: House, authorization: str | None) -> Answer:
    """The response to the handshake of a node, which is not accepted."""
    headers = {} if authorization is None else {"authorization": authorization}
    return await Raw(await home.stream()).http(
        "GET",
        wire.PATH,
        upgrade="websocket",
        connection="Upgrade",
        sec_websocket_version="13",
        sec_websocket_key=base64.b64encode(bytes(16)).decode(),
        sec_websocket_protocol=wire.SUBPROTOCOL,
        **headers,
    )


# Nodes.


async def test_a_node_with_the_secret_joins_over_a_websocket(autojump_clock):
    async with pair() as here:
        socket = await node_socket(at_leader(here))
        await socket.send_message(wire.encoded(join_of("n2")).decode())
        joined = wire.from_leader((await socket.get_message()).encode())
        assert isinstance(joined, wire.Joined)
        await socket.aclose()


@pytest.mark.parametrize(
    "authorization", [None, "Bearer wrong", f"Basic {SECRET}", f"Bearer {SECRET}x", "Bearer"]
)
async def test_a_node_without_the_secret_is_refused(autojump_clock, authorization):
    async with pair() as here:
        answer = await rejected(at_leader(here), authorization)
        assert answer.status == 401
        assert "use the same secret_file" in answer.json["message"]


async def test_a_refused_node_is_logged_at_most_once_per_minute_and_address(autojump_clock, caplog):
    refused = RefusedNodes()
    for address in ("10.0.0.1", "10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::2", None):
        refused.add(address)
    await trio.sleep(59)
    refused.add("10.0.0.1")
    await trio.sleep(1)
    refused.add("10.0.0.1")
    named = [record.getMessage().partition(" is refused")[0] for record in caplog.records]
    assert named == [
        "a node at 10.0.0.1",
        "a node at 10.0.0.2",
        "a node at 2001:db8::1",
        "a node at an unknown address",
        "a node at 10.0.0.1",
    ]


async def test_refused_nodes_with_many_addresses_do_not_fill_the_log(autojump_clock, caplog):
    refused = RefusedNodes()
    for number in range(1000):
        refused.add(f"10.0.{number // 256}.{number % 256}")
    assert len(caplog.records) == 100


async def test_the_token_of_an_admin_is_no_secret(tmp_path, autojump_clock):
    token = add_token(tmp_path / "tokens", "root", Role.ADMIN)
    async with (
        pair() as here,
        gateway_of(here, GatewayConfig(token_file=str(tmp_path / "tokens"))) as gateway,
    ):
        home = House(here.bodies, here.engine, gateway, here.nursery)
        assert (await rejected(home, f"Bearer {token}")).status == 401


async def test_a_server_that_is_no_node_has_no_path_for_nodes(autojump_clock):
    async with house(listen=False) as home:
        assert (await rejected(home, f"Bearer {SECRET}")).status == 400


async def test_a_malformed_frame_of_a_node_disturbs_no_client(autojump_clock):
    async with pair() as here:
        home = at_leader(here)
        talk = await home.memory_socket()
        await talk.call("subscribe")
        socket = await node_socket(home)
        await socket.send_message("{")
        refused = wire.from_leader((await socket.get_message()).encode())
        assert isinstance(refused, wire.NodeRefused)
        await talk.call("set_params", handle="h", params=1)
        assert [event["seq"] for event in talk.events()] == [1]


async def test_a_node_is_alive_as_long_as_a_part_of_a_frame_arrives(autojump_clock):
    async with pair() as here:
        raw = Raw(await at_leader(here).stream())
        await raw.upgrade(
            wire.PATH, authorization=f"Bearer {SECRET}", sec_websocket_protocol=wire.SUBPROTOCOL
        )
        await raw.send(client_frame(wire.encoded(join_of("n2"))))
        beat = client_frame(wire.encoded(wire.NodeBeat(sent=7, seq=0)))
        for byte in beat:
            await raw.send(bytes([byte]))
            await trio.sleep(1)
        while b'"beaten","sent":7.0' not in raw.buffer:
            raw.buffer += await raw.stream.receive_some(65_536)
        await raw.send(beat[:-1])
        began = trio.current_time()
        while await raw.stream.receive_some(65_536):
            pass
        assert 5 <= trio.current_time() - began < 15


# Clients, while there is no leader.


async def test_without_a_leader_clients_are_told_when_to_repeat_a_command(autojump_clock):
    async with pair() as here, gateway_of(here) as gateway:
        home = House(here.bodies, here.engine, gateway, here.nursery)
        here.follower.stop()
        talk = await home.memory_socket()
        with pytest.raises(Refused) as refused:
            await talk.call("set_params", handle="h", params=1)
        assert (refused.value.code, refused.value.details) == ("unavailable", {"retry_after": 1})
        raw = Raw(await home.stream())
        answer = await raw.http("PUT", "/api/handles/h/params", {"params": 1})
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert answer.json["details"] == {"retry_after": 1}
        answer = await Raw(await home.stream()).http("GET", "/readyz")
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")


async def test_without_a_leader_reads_and_streams_go_on(autojump_clock):
    async with pair() as here, gateway_of(here) as gateway:
        home = House(here.bodies, here.engine, gateway, here.nursery)
        run = (await here.engine.submit("wait", handle="h", params={})).id
        await trio.testing.wait_all_tasks_blocked()
        here.follower.stop()
        await trio.sleep(2 * PATIENCE)
        talk = await home.memory_socket()
        assert (await talk.call("get_run", run_id=run))["run"]["status"] == "running"
        assert run in (await talk.call("snapshot"))["snapshot"]["runs"]
        assert [event["run"] for event in (await talk.call("history", run_id="h"))["events"]]
        await talk.call("subscribe", after=0)
        await here.nursery.start(here.follower.follow, here.leader)
        await talk.call("set_params", handle="h2", params=1)
        assert [event["seq"] for event in talk.events()] == list(range(1, here.engine.stream.last_seq + 1))


@pytest.mark.parametrize(
    ("error", "headers"),
    [
        (Unavailable("x", retry_after=1), ["1"]),
        (Unavailable("x", retry_after=2.1), ["3"]),
        (RateLimited("x", retry_after=0.01), ["1"]),
        (RateLimited("x"), ["1"]),
        (Unavailable("x"), ["5"]),
        (Conflict("x"), []),
    ],
)
def test_the_header_is_the_time_in_the_details_in_whole_seconds(error, headers):
    assert [value for name, value in header_list(refusal(error)) if name == "Retry-After"] == headers
