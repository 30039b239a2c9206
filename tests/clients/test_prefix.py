"""Gateways behind a proxy that forwards only one path: its trailing slash can be omitted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from greenroom import Jobs, connect, open_engine
from greenroom.errors import Invalid
from greenroom.gateway import GatewayConfig, open_gateway

from .javascript import needs_node, run_node

REFUSALS = {
    "nginx": b"HTTP/1.1 301 Moved Permanently\r\nLocation: /green/room/\r\nContent-Length: 0\r\n\r\n",
    "HAProxy": b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
}
PREFIX = b"/green/room"


@asynccontextmanager
async def behind_proxy(
    refusal: bytes, passed: bytes = PREFIX + b"/"
) -> AsyncIterator[tuple[str, list[bytes]]]:
    """The address of a proxy without a path, and the requested paths."""
    asked: list[bytes] = []

    async def pass_on(source: trio.SocketStream, to: trio.SocketStream, scope: trio.CancelScope) -> None:
        try:
            while data := await source.receive_some():
                await to.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        scope.cancel()

    async def serve(client: trio.SocketStream) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += await client.receive_some() or b"\r\n\r\n"
        path = head.split(b" ")[1] if b" " in head else b""
        asked.append(path)
        if not path.startswith(passed):
            await client.send_all(refusal)
            return
        server = await trio.open_tcp_stream("127.0.0.1", gateway.port)
        head = head.replace(path, b"/" + path.removeprefix(passed), 1)
        head = head.replace(
            b"Connection: keep-alive", b"Connection: close"
        )  # it reads one head per connection
        async with server, trio.open_nursery() as nursery:
            await server.send_all(head)
            nursery.start_soon(pass_on, client, server, nursery.cancel_scope)
            nursery.start_soon(pass_on, server, client, nursery.cancel_scope)

    async with (
        open_engine(Jobs(), "memory:") as engine,
        open_gateway(engine, GatewayConfig(port=0)) as gateway,
        trio.open_nursery() as nursery,
    ):
        listeners = await nursery.start(
            trio.serve_listeners, serve, await trio.open_tcp_listeners(0, host="127.0.0.1")
        )
        yield f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}", asked
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_client_finds_the_gateway_behind_a_prefix(name):
    async with behind_proxy(REFUSALS[name]) as (url, asked):
        for path in ("/green/room", "/green/room/", "/green/room?x=1"):
            async with connect(url + path) as client:
                await client.set_max_concurrent(4)
                assert client.state.snapshot().engine.max_concurrent == 4
        assert asked == [
            *(b"/green/room", b"/green/room/"),
            b"/green/room/",
            *(b"/green/room?x=1", b"/green/room/?x=1"),
        ]


async def test_a_proxy_that_forwards_the_path_without_a_slash_receives_only_that():
    async with behind_proxy(REFUSALS["HAProxy"], PREFIX) as (url, asked):
        async with connect(f"{url}/green/room") as client:
            await client.set_max_concurrent(4)
        assert asked == [b"/green/room"]


async def test_an_error_names_a_path_without_a_gateway():
    async with behind_proxy(REFUSALS["HAProxy"]) as (url, asked):
        with pytest.raises(Invalid, match="404"):
            async with connect(f"{url}/elsewhere"):
                pass
        assert asked == [b"/elsewhere", b"/elsewhere/"]


@needs_node
@pytest.mark.parametrize("name", REFUSALS)
async def test_so_does_the_javascript_client(name):
    program = """
        const told = [];
        for (const path of ["/green/room", "/green/room/", "/green/room?x=1"]) {
          const client = await connect(argument + path);
          await client.setMaxConcurrent(4);
          told.push(client.state.maxConcurrent);
          client.close();
        }
        try {
          await connect(argument + "/elsewhere");
        } catch (error) {
          told.push(error.code);
        }
        answer(told);
    """
    async with behind_proxy(REFUSALS[name]) as (url, asked):
        assert await run_node(program, url) == [4, 4, 4, "unavailable"]
        assert asked == [
            *(b"/green/room", b"/green/room/"),
            b"/green/room/",
            *(b"/green/room?x=1", b"/green/room/?x=1"),
            *(b"/elsewhere", b"/elsewhere/"),
        ]
