"""The connections of executors: who can open them, what they carry, and how they end."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio
from trio_websocket import (
    ConnectionClosed,
    WebSocketConnection,
    open_websocket_url,
    wrap_client_stream,
)

from greenroom import Jobs
from greenroom.actors.executors.connection import Connection
from greenroom.errors import Invalid
from greenroom.gateway import Gateway, GatewayConfig, Limits, Role, add_token, remove_token
from greenroom.protocol.records import ExecutorInfo
from tests.support import open_engine, open_gateway

from .executing import echo, script
from .support import PATIENCE, Answer, House, Raw, Refused, house

NAMES = {"follower": "cluster"}
"""The name of an executor's token as the engine logs it. A follower connects with the cluster's secret."""

TEXT_TOO_LARGE = 4 << 20
"""Larger than the limit of an engine with the default size of values."""


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    """A token of each role, and their file under `file`."""
    file = tmp_path / "tokens"
    return {"file": str(file)} | {str(role): add_token(file, f"the-{role}", role) for role in Role}


@asynccontextmanager
async def attached(gateway: Gateway, token: str | None = None) -> AsyncIterator[WebSocketConnection]:
    """A connection of an executor on a real socket."""
    async with open_websocket_url(
        gateway.url.replace("http", "ws", 1) + "/executor",
        extra_headers=[] if token is None else [(b"authorization", f"Bearer {token}".encode())],
        max_message_size=1 << 30,
    ) as socket:
        try:
            yield socket
        finally:
            if socket.closed is not None:  # trio-websocket leaves the socket open where the server closed
                await trio.aclose_forcefully(socket._stream)


async def in_memory(home: House) -> WebSocketConnection:
    """A connection of an executor in memory, for mock time."""
    return await wrap_client_stream(home.nursery, await home.stream(), "localhost", "/executor")


async def handshake(home: House, token: str | None = None, path: str = "/executor", **given: str) -> Answer:
    """The response to a handshake that the gateway rejects."""
    if token is not None:
        given["authorization"] = f"Bearer {token}"
    key = base64.b64encode(bytes(16)).decode()
    upgrade = {"upgrade": "websocket", "connection": "Upgrade", "sec_websocket_version": "13"}
    return await home.http("GET", path, **upgrade, sec_websocket_key=key, **given)


async def rejected(home: House, token: str | None = None, path: str = "/executor", **given: str) -> int:
    """The status with which the gateway rejects a handshake."""
    return (await handshake(home, token, path, **given)).status


async def receive(socket: WebSocketConnection) -> str:
    with trio.fail_after(PATIENCE):
        message = await socket.get_message()
    assert isinstance(message, str)
    return message


async def closing(socket: WebSocketConnection) -> tuple[int, str]:
    """The code and the reason with which the gateway closes the connection."""

    async def read() -> None:
        while True:
            await receive(socket)

    with pytest.raises(ConnectionClosed) as closed:
        await read()
    assert closed.value.reason is not None
    return int(closed.value.reason.code), closed.value.reason.reason or ""


# Access.


async def test_an_executor_needs_a_token_of_its_role(tokens, node):
    async with house(token_file=tokens["file"]) as home:
        script(home.engine)
        async with attached(home.gateway, tokens["executor"]) as socket:
            await socket.send_message("hello")
            assert await receive(socket) == f"{NAMES.get(node, 'the-executor')} hello"
        assert await rejected(home) == 401
        assert await rejected(home, "gr_wrong") == 401
        for role in Role:
            if role is not Role.EXECUTOR:
                assert await rejected(home, tokens[role]) == 403, role


async def test_without_a_token_file_an_executor_needs_no_token(node):
    async with house() as home:
        script(home.engine)
        async with attached(home.gateway) as socket:
            await socket.send_message("hello")
            assert await receive(socket) == f"{NAMES.get(node, 'local')} hello"


async def test_a_token_of_an_executor_opens_no_other_connection(tokens):
    async with house(token_file=tokens["file"]) as home:
        assert await rejected(home, tokens["executor"], path="/") == 403
        async with home.socket() as talk:
            await talk.send(type="auth", token=tokens["executor"])
            error = await talk.receive()
            assert (error["code"], await talk.close_code()) == ("forbidden", 4401)
            assert "can only attach an executor, at the path /executor" in error["message"]


async def test_a_token_of_an_executor_permits_no_request(tokens):
    async with house(token_file=tokens["file"]) as home:
        mark = {"authorization": f"Bearer {tokens['executor']}"}
        for method, path in (
            ("GET", "/api/state"),
            ("GET", "/api/events"),
            ("GET", "/api/executors"),
            ("POST", "/api/executors/x/drain"),
            ("GET", "/metrics"),
            ("POST", "/api/tickets"),
            ("POST", "/queue/poll"),
            ("POST", "/api/workers/register"),
        ):
            assert (await home.http(method, path, **mark)).status == 403, path
        assert (await home.http("GET", "/healthz", **mark)).status == 200


def test_a_token_of_an_executor_cannot_be_limited(tmp_path):
    with pytest.raises(Invalid, match="a token of role executor cannot be limited"):
        add_token(tmp_path / "tokens", "gpu", Role.EXECUTOR, handles=["alice/*"])


async def test_pages_of_other_origins_are_refused():
    async with house() as home:
        script(home.engine)
        assert await rejected(home, origin="http://example.org") == 403


async def test_an_unknown_subprotocol_is_refused():
    async with house() as home:
        script(home.engine)
        answer = await handshake(home, sec_websocket_protocol="greenroom.v1.json")
        assert answer.status == 400
        assert "greenroom.executor.v1" in answer.json["message"]


async def test_an_executor_at_another_path_learns_where_to_attach():
    async with house() as home:
        script(home.engine)
        answer = await handshake(home, path="/here", sec_websocket_protocol="greenroom.executor.v1")
        assert answer.status == 400
        assert answer.json["message"] == 'executors attach at the path /executor (got "/here")'


# Frames and their limits.


async def test_frames_arrive_as_text_or_bytes_up_to_twice_the_largest_value(node):
    async with house() as home:
        script(home.engine)
        async with attached(home.gateway) as socket:
            for frame in ("é", "x" * (3 << 20)):
                await socket.send_message(frame)
                assert await receive(socket) == f"{NAMES.get(node, 'local')} {frame}"
            await socket.send_message(b"bytes")
            assert await receive(socket) == f"{NAMES.get(node, 'local')} bytes"


async def test_a_frame_that_is_too_large_closes_the_connection():
    async with house() as home:
        script(home.engine)
        async with attached(home.gateway) as socket:
            with trio.fail_after(PATIENCE), suppress(ConnectionClosed):
                await socket.send_message("x" * TEXT_TOO_LARGE)
            assert (await closing(socket))[0] == 1009


async def test_the_rate_of_clients_does_not_limit_executors(node):
    async with house(limits=Limits(rate=1, burst=1)) as home:
        script(home.engine)
        async with attached(home.gateway) as socket:
            for number in range(50):
                await socket.send_message(str(number))
            for number in range(50):
                assert await receive(socket) == f"{NAMES.get(node, 'local')} {number}"


@pytest.mark.at_engine  # the relay of a follower takes a few frames more
async def test_sending_waits_for_an_executor_that_does_not_read(autojump_clock):
    sent = 0

    async def flood(connection: Connection, name: str) -> None:
        nonlocal sent
        while True:
            await connection.send(b"x" * 65_536)
            sent += 1

    async with house(listen=False) as home:
        script(home.engine, flood)
        ours, theirs = trio.testing.lockstep_stream_pair()
        home.nursery.start_soon(home.gateway.serve_stream, theirs)
        raw = Raw(ours)
        await raw.upgrade(path="/executor")
        await trio.testing.wait_all_tasks_blocked()
        assert sent == 0
        for expected in range(3):
            await raw.frame()
            await trio.testing.wait_all_tasks_blocked()
            assert sent == expected + 1
        await ours.aclose()


@pytest.mark.parametrize("frame", ["{", "[]", '{"type":"frame","first":1,"ack":0}', '{"type":"steal"}'])
async def test_the_engine_refuses_a_malformed_message_and_closes_the_connection(frame):
    async with house() as home, attached(home.gateway) as socket:
        await socket.send_message(frame)
        refused = json.loads(await receive(socket))
        assert (refused["type"], refused["code"]) == ("refused", "invalid")
        assert await closing(socket) == (1000, "")


async def test_closing_a_connection_ends_its_other_calls():
    raised = []

    async def close(connection: Connection, name: str) -> None:
        async def wait() -> None:
            with pytest.raises(trio.ClosedResourceError) as error:
                await connection.receive()
            raised.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            await connection.aclose()
        for call in (connection.receive, lambda: connection.send(b"late")):
            with pytest.raises(trio.ClosedResourceError):
                await call()
        raised.append(None)

    async with house() as home:
        script(home.engine, close)
        async with attached(home.gateway) as socket:
            assert await closing(socket) == (1000, "")
        assert len(raised) == 2


# The end of a connection.


@pytest.mark.parametrize("politely", [True, False])
async def test_the_engine_learns_that_the_executor_has_disconnected(politely, node):
    ended: list[BaseException] = []
    over = trio.Event()

    async def note(connection: Connection, name: str) -> None:
        try:
            await echo(connection, name)
        except (trio.EndOfChannel, trio.BrokenResourceError) as error:
            ended.append(error)
            over.set()

    async with house() as home:
        script(home.engine, note)
        async with attached(home.gateway) as socket:
            await socket.send_message("hello")
            await receive(socket)
            if not politely:
                await trio.aclose_forcefully(socket._stream)
        with trio.fail_after(PATIENCE):
            await over.wait()
        closed = politely or node == "follower"  # a follower closes its connection to the leader
        assert type(ended[0]) is (trio.EndOfChannel if closed else trio.BrokenResourceError)


async def test_a_revoked_token_closes_the_connection(tokens):
    async with house(token_file=tokens["file"]) as home:
        script(home.engine)
        async with attached(home.gateway, tokens["executor"]) as socket:
            await socket.send_message("hello")
            await receive(socket)
            remove_token(tokens["file"], "the-executor")
            home.gateway.reconfigure(GatewayConfig(token_file=tokens["file"]))
            assert await closing(socket) == (4401, "token has been revoked")


async def test_the_gateway_closes_the_connection_when_it_shuts_down():
    codes = []

    async def follow(gateway: Gateway, task_status: trio.TaskStatus[None]) -> None:
        async with attached(gateway) as socket:
            await socket.send_message("hello")
            await receive(socket)
            task_status.started()
            codes.append(await closing(socket))

    async with (
        open_engine(Jobs(), "memory:") as engine,
        trio.open_nursery() as nursery,
        open_gateway(engine, GatewayConfig(port=0)) as gateway,
    ):
        script(engine)
        await nursery.start(follow, gateway)
    assert codes == [(1001, "gateway is shutting down")]


async def test_a_connection_without_a_message_is_closed(autojump_clock):
    async with house(listen=False) as home:
        socket = await in_memory(home)
        with trio.fail_after(11):
            refused = json.loads(await socket.get_message())
            assert refused["message"] == "no attach or beat received within 10 s"
            assert (await closing(socket))[0] == 1000


async def test_a_silent_executor_stays_connected_for_as_long_as_the_engine_permits(autojump_clock, node):
    async with house(listen=False) as home:
        script(home.engine)
        socket = await in_memory(home)
        await socket.send_message("first")
        await socket.get_message()
        await trio.sleep(10_000)
        await socket.send_message("second")
        assert await socket.get_message() == f"{NAMES.get(node, 'local')} second"


# Commands and metrics.

GPU = ExecutorInfo("gpu-1", "attached", 4, 2, ("gpu",), ("mirror",), "p1")
GONE = ExecutorInfo("cpu-1", "disconnected", None, 0, (), ())


async def test_a_client_lists_and_drains_executors():
    async with house() as home, home.socket() as talk:
        executors = script(home.engine)
        executors.listed = [GPU, GONE]
        [first, second] = (await talk.call("list_executors"))["executors"]
        assert first == {
            "id": "gpu-1",
            "status": "attached",
            "slots": 4,
            "bodies": 2,
            "labels": ["gpu"],
            "jobs": ["mirror"],
            "start": "p1",
        }
        assert (second["id"], second["slots"]) == ("cpu-1", None)
        await talk.call("drain_executor", executor_id="gpu-1")
        assert executors.drained == [("gpu-1", "local")]
        with pytest.raises(Refused) as refused:
            await talk.call("drain_executor", executor_id="gpu-7")
        assert refused.value.code == "not_found"


async def test_executors_over_http():
    async with house() as home:
        executors = script(home.engine)
        executors.listed = [GPU]
        answer = await home.http("GET", "/api/executors")
        assert [executor["id"] for executor in answer.json["executors"]] == ["gpu-1"]
        assert (await home.http("POST", "/api/executors/gpu-1/drain")).status == 200
        assert (await home.http("POST", "/api/executors/gpu-7/drain")).status == 404
        assert executors.drained == [("gpu-1", "local")]
