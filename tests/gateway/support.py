"""Support of the gateway's tests: an open gateway, and independent clients."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import h11
import msgspec
import trio
import trio.testing
from trio_websocket import ConnectionClosed, WebSocketConnection, open_websocket_url, wrap_client_stream

from greenroom import Engine
from greenroom.gateway import Gateway, GatewayConfig, Limits
from tests.support import Bodies, open_engine, open_gateway

PATIENCE = 60.0
"""Seconds that a test on real sockets waits for what should happen immediately."""

PATIENCE_IN_MOCK_TIME = 10_000.0


class House:
    """An engine with a gateway, and functions to connect to it."""

    def __init__(self, bodies: Bodies, engine: Engine, gateway: Gateway, nursery: trio.Nursery) -> None:
        self.bodies = bodies
        self.engine = engine
        self.gateway = gateway
        self.nursery = nursery

    @asynccontextmanager
    async def socket(
        self, subprotocol: str | None = None, headers: dict[str, str] | None = None, path: str = "/"
    ) -> AsyncIterator[Talk]:
        """A WebSocket client on a real socket."""
        url = self.gateway.url.replace("http", "ws", 1) + path
        async with open_websocket_url(
            url,
            subprotocols=None if subprotocol is None else [subprotocol],
            extra_headers=[(name.encode(), value.encode()) for name, value in (headers or {}).items()],
            max_message_size=1 << 30,
        ) as socket:
            try:
                yield Talk(socket)
            finally:
                if socket.closed is not None:  # trio-websocket leaves the socket open where the server closed
                    await trio.aclose_forcefully(socket._stream)

    async def stream(self) -> trio.testing.MemoryStream:
        """A connection in memory, for mock time."""
        ours, theirs = trio.testing.memory_stream_pair()
        self.nursery.start_soon(self.gateway.serve_stream, theirs)
        return ours

    async def memory_socket(
        self, headers: dict[str, str] | None = None, subprotocol: str | None = None
    ) -> Talk:
        """A WebSocket client in memory."""
        socket = await wrap_client_stream(
            self.nursery,
            await self.stream(),
            "localhost",
            "/",
            subprotocols=None if subprotocol is None else [subprotocol],
            extra_headers=[(name.encode(), value.encode()) for name, value in (headers or {}).items()],
        )
        return Talk(socket, PATIENCE_IN_MOCK_TIME)

    async def raw(self) -> Raw:
        """A plain socket."""
        return Raw(await trio.open_tcp_stream("127.0.0.1", self.gateway.port))

    async def http(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """One request on its own connection."""
        raw = await self.raw()
        try:
            return await raw.http(method, path, body, **headers)
        finally:
            await raw.stream.aclose()


@asynccontextmanager
async def house(
    bodies: Bodies | None = None,
    limits: Limits | None = None,
    listen: bool = True,
    store: Any = "memory:",
    options: Mapping[str, Any] = {},
    **config: Any,
) -> AsyncIterator[House]:
    """An open gateway; without `listen`, only for connections in memory. `options` are the engine's."""
    bodies = bodies or Bodies()
    settings = GatewayConfig(port=0, limits=limits or Limits(), **config)
    async with (
        open_engine(bodies.jobs, store, shutdown_timeout=0, **options) as engine,
        trio.open_nursery() as nursery,
        open_gateway(engine, settings, listeners=None if listen else []) as gateway,
    ):
        yield House(bodies, engine, gateway, nursery)
        nursery.cancel_scope.cancel()


class Refused(Exception):
    """An error reply of the server."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["code"], error["message"])
        self.code = error["code"]
        self.message = error["message"]
        self.details = error["details"]


class Talk:
    """A WebSocket connection on which every message is kept in `received`, as plain data."""

    def __init__(self, socket: WebSocketConnection, patience: float = PATIENCE) -> None:
        self.socket = socket
        self._patience = patience
        self.received: list[dict[str, Any]] = []
        self._ids = 0

    @property
    def binary(self) -> bool:
        return self.socket.subprotocol == "greenroom.v1.msgpack"

    async def send(self, **message: Any) -> None:
        if self.binary:
            await self.socket.send_message(msgspec.msgpack.encode(message))
        else:
            await self.socket.send_message(json.dumps(message))

    async def receive(self) -> dict[str, Any]:
        with trio.fail_after(self._patience):
            data = await self.socket.get_message()
        message: dict[str, Any] = msgspec.msgpack.decode(data) if self.binary else json.loads(data)
        self.received.append(message)
        return message

    async def receive_type(self, type: str) -> dict[str, Any]:
        while True:
            message = await self.receive()
            if message["type"] == type:
                return message

    async def post(self, type: str, **fields: Any) -> int:
        """Send a command; returns its id."""
        self._ids += 1
        await self.send(type=type, id=self._ids, **fields)
        return self._ids

    async def reply(self, id: int) -> dict[str, Any]:
        """The answer to a command; raises `Refused`."""
        received = 0
        while True:
            for message in self.received[received:]:
                if message["type"] in ("ok", "error") and message["id"] == id:
                    if message["type"] == "error":
                        raise Refused(message)
                    return message
            received = len(self.received)
            await self.receive()

    async def call(self, type: str, **fields: Any) -> dict[str, Any]:
        return await self.reply(await self.post(type, **fields))

    async def close_code(self) -> int:
        """The code with which the server closes; earlier messages are kept in `received`."""
        while True:
            try:
                await self.receive()
            except ConnectionClosed as closed:
                return 0 if closed.reason is None else int(closed.reason.code)

    def events(self) -> list[dict[str, Any]]:
        """All events of all received batches."""
        return [
            event for message in self.received if message["type"] == "events" for event in message["events"]
        ]


class Answer(msgspec.Struct):
    """A response over HTTP."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Raw:
    """A stream to which bytes are written as they are; a little HTTP and WebSocket on top."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._patience = PATIENCE if isinstance(stream, trio.SocketStream) else PATIENCE_IN_MOCK_TIME
        self.buffer = b""

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def until_closed(self) -> bytes:
        """All data until the server closes."""
        data, self.buffer = self.buffer, b""
        with trio.fail_after(self._patience):
            while more := await self.stream.receive_some(65_536):
                data += more
        return data

    async def http(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        machine = h11.Connection(h11.CLIENT)
        given = {"host": "localhost"} | {name.replace("_", "-"): value for name, value in headers.items()}
        data = b""
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            given = {"content-type": "application/json", "content-length": str(len(data))} | given
        request = h11.Request(method=method, target=path, headers=list(given.items()))
        await self.send(machine.send(request) + (machine.send(h11.Data(data=data)) if data else b""))
        return await self.answer(machine)

    async def answer(self, machine: h11.Connection | None = None) -> Answer:
        """The next response, to a request that was sent with `machine` or as bytes."""
        if machine is None:
            machine = h11.Connection(h11.CLIENT)
            machine.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
        if machine.our_state is h11.SEND_BODY:
            machine.send(h11.EndOfMessage())
        if self.buffer:
            machine.receive_data(self.buffer)
        answer = None
        body = b""
        with trio.fail_after(self._patience):
            while True:
                event = machine.next_event()
                if event is h11.NEED_DATA:
                    machine.receive_data(await self.stream.receive_some(65_536))
                elif isinstance(event, h11.Response):
                    answer = event
                elif isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    break
                elif isinstance(event, h11.ConnectionClosed):
                    raise trio.EndOfChannel
        assert answer is not None
        self.buffer = machine.trailing_data[0]
        headers = {name.decode(): value.decode() for name, value in answer.headers}
        return Answer(answer.status_code, headers, body)

    async def upgrade(self, path: str = "/", **headers: str) -> None:
        """Upgrade to a WebSocket."""
        head = {
            "Host": "localhost",
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": base64.b64encode(bytes(16)).decode(),
        } | {name.replace("_", "-"): value for name, value in headers.items()}
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        await self.send(f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode())
        with trio.fail_after(self._patience):
            while b"\r\n\r\n" not in self.buffer:
                self.buffer += await self.stream.receive_some(65_536)
        _, _, self.buffer = self.buffer.partition(b"\r\n\r\n")

    async def frame(self) -> tuple[int, bytes]:
        """The next frame: its opcode and its payload."""
        with trio.fail_after(self._patience):
            while True:
                parsed = parse_frame(self.buffer)
                if parsed is not None:
                    opcode, payload, self.buffer = parsed
                    return opcode, payload
                more = await self.stream.receive_some(65_536)
                if not more:
                    raise trio.EndOfChannel
                self.buffer += more

    async def message(self) -> dict[str, Any]:
        """The next message, as data."""
        while True:
            opcode, payload = await self.frame()
            if opcode == TEXT:
                message: dict[str, Any] = json.loads(payload)
                return message


TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


def parse_frame(data: bytes) -> tuple[int, bytes, bytes] | None:
    """A server's frame at the start of the data, and the rest of the data."""
    if len(data) < 2:
        return None
    size, start = data[1], 2
    if size == 126:
        if len(data) < 4:
            return None
        size, start = struct.unpack("!H", data[2:4])[0], 4
    elif size == 127:
        if len(data) < 10:
            return None
        size, start = struct.unpack("!Q", data[2:10])[0], 10
    if len(data) < start + size:
        return None
    return data[0] & 15, data[start : start + size], data[start + size :]


def client_frame(
    payload: bytes, opcode: int = TEXT, *, fin: bool = True, reserved: int = 0, masked: bool = True
) -> bytes:
    """A client's frame, also a malformed one."""
    first = (0x80 if fin else 0) | reserved << 4 | opcode
    size = len(payload)
    bit = 0x80 if masked else 0
    if size < 126:
        head = bytes((first, bit | size))
    elif size < 65_536:
        head = struct.pack("!BBH", first, bit | 126, size)
    else:
        head = struct.pack("!BBQ", first, bit | 127, size)
    if not masked:
        return head + payload
    mask = b"\x5a\xa5\x3c\xc3"
    return head + mask + bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
