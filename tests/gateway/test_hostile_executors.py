"""Hostile executors over real WebSockets: the engine stays responsive, and the runs of others succeed."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, open_websocket_url

from greenroom.gateway import GatewayConfig
from tests.executors.scripted import ScriptedExecutor, ended
from tests.executors.worlds import World, world
from tests.support import open_gateway

PATIENCE = 60.0


class Frames:
    """The `Connection` of a WebSocket client."""

    def __init__(self, socket: WebSocketConnection) -> None:
        self.socket = socket

    async def send(self, frame: bytes) -> None:
        try:
            await self.socket.send_message(frame.decode())
        except ConnectionClosed:
            raise trio.BrokenResourceError from None

    async def receive(self) -> bytes:
        try:
            message = await self.socket.get_message()
        except ConnectionClosed:
            raise trio.EndOfChannel from None
        assert isinstance(message, str)
        return message.encode()

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self.socket._stream)


class RemoteExecutor(ScriptedExecutor):
    """A scripted executor over a WebSocket."""

    url = ""

    async def connect(self, nursery: trio.Nursery) -> Any:
        return Frames(await nursery.start(open_socket, self.url))


async def open_socket(url: str, task_status: trio.TaskStatus[WebSocketConnection]) -> None:
    with suppress(ConnectionClosed, trio.BrokenResourceError, OSError):
        async with open_websocket_url(url, max_message_size=1 << 30) as socket:
            task_status.started(socket)
            try:
                await trio.sleep_forever()
            finally:
                await trio.aclose_forcefully(socket._stream)


class Place:
    """An engine with a gateway and an honest executor, which alone has the label gpu."""

    def __init__(self, home: World, url: str) -> None:
        self.home = home
        self.url = url
        self.honest: RemoteExecutor

    async def executor(self, name: str, **fields: Any) -> RemoteExecutor:
        executor = RemoteExecutor(self.home.engine, name)
        executor.url = self.url
        answer = await executor.attach(self.home.nursery, "gpu", "none", **fields)
        assert answer["type"] == "attached", answer
        return executor

    async def connection(self) -> Frames:
        return Frames(await self.home.nursery.start(open_socket, self.url))

    async def others_succeed(self) -> None:
        """A run of the honest executor succeeds, soon."""
        with trio.fail_after(PATIENCE):
            ticket = await self.home.engine.submit("gpu", handle="honest", params={})
            await self.honest.end(await self.honest.receive("execute"), value="honest")
            assert await ticket.result() == "honest"


@asynccontextmanager
async def place() -> AsyncIterator[Place]:
    async with (
        world(max_value_bytes=100_000) as home,
        open_gateway(home.engine, GatewayConfig(port=0)) as gateway,
    ):
        there = Place(home, gateway.url.replace("http", "ws", 1) + "/executor")
        there.honest = await there.executor("honest", labels=["gpu"])
        yield there
        home.nursery.cancel_scope.cancel()


@pytest.fixture(autouse=True)
def no_errors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    for record in caplog.records:
        assert record.levelno < logging.CRITICAL, record.getMessage()
        assert record.exc_info is None, record.getMessage()


@pytest.mark.parametrize(
    "frame", ["", "{", "[" * 500_000, '{"type":"frame","first":9,"ack":0}', '{"a":' * 100_000, "\0"]
)
async def test_garbage_is_refused_and_the_connection_closed(frame: str) -> None:
    async with place() as there:
        hostile = await there.executor("hostile")
        await hostile.raw(frame.encode())
        with trio.fail_after(PATIENCE):
            refused = await hostile.closed()
        assert refused["code"] == "invalid"
        await there.others_succeed()


async def test_a_frame_that_is_too_large_closes_the_connection() -> None:
    async with place() as there:
        hostile = await there.executor("hostile")
        with suppress(trio.BrokenResourceError):
            await hostile.raw(b" " * (2 << 20))
        with trio.fail_after(PATIENCE):
            await hostile.closed()
        await there.others_succeed()


async def test_a_flood_from_an_executor_that_reads_nothing_does_not_stop_others() -> None:
    async with place() as there:
        connection = await there.connection()
        attach = {"type": "attach", "executor": "deaf", "start": "s", "jobs": []}
        await connection.send(json.dumps(attach).encode())

        async def flood() -> None:
            first = 1
            with suppress(trio.BrokenResourceError, trio.EndOfChannel):
                while True:
                    frame = [ended({"run": "x" * 50, "fence": first}) for _ in range(500)]
                    message = {"type": "frame", "first": first, "ack": 0, "messages": frame}
                    await connection.send(json.dumps(message).encode())
                    first += 500

        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood)
            for _ in range(5):
                await there.others_succeed()
            nursery.cancel_scope.cancel()


async def test_many_connections_that_attach_and_leave_do_not_stop_others() -> None:
    async with place() as there:
        for number in range(100):
            connection = await there.connection()
            attach = {"type": "attach", "executor": f"x{number}", "start": "s", "jobs": []}
            await connection.send(json.dumps(attach).encode())
            if number % 2:
                await connection.receive()
            await connection.aclose()
        await there.others_succeed()
        assert there.home.executors()["honest"] == "attached"
