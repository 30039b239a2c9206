"""The WebSocket connection of an executor to a gateway."""

from __future__ import annotations

from urllib.parse import SplitResult

import trio

from ..gateway.client.connecting import opener
from ..gateway.client.socket import Socket, open_socket
from ..protocol.executors import PATH, SUBPROTOCOL


def executor_url(url: SplitResult) -> SplitResult:
    """The URL of executors' connections at a gateway with this URL."""
    return url._replace(path=url.path.rstrip("/") + PATH)


class Dialer:
    """Opens connections; call it for each. `url` is that of executors' connections. The tasks that write are
    in the nursery."""

    def __init__(self, url: SplitResult, token: str | None, nursery: trio.Nursery) -> None:
        self._url = url
        self._token = token
        self._nursery = nursery
        self._open_stream = opener(url, None)

    async def __call__(self) -> WebSocketConnection:
        stream = await self._open_stream()
        try:
            socket = await open_socket(stream, self._url, SUBPROTOCOL, self._token, text=True)
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        connection = WebSocketConnection(socket)
        self._nursery.start_soon(connection.write)
        return connection


class WebSocketConnection:
    """Implements `Connection`. Its errors are those of the gateway's client."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self._writing = trio.CancelScope()
        self._written = trio.Event()

    @property
    def received_at(self) -> float:
        """The time of the last data, which can be a part of a frame."""
        return self._socket.received_at

    async def write(self) -> None:
        """Write what `send` has queued, until the connection is closed."""
        try:
            with self._writing:
                await self._socket.write()
        finally:
            self._written.set()

    async def send(self, frame: bytes) -> None:
        self._socket.put(frame)
        await self._socket.written()

    async def receive(self) -> bytes:
        return await self._socket.receive()

    async def aclose(self) -> None:
        self._writing.cancel()
        with trio.CancelScope(shield=True):
            await self._written.wait()
        await self._socket.aclose()
