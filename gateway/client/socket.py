"""A WebSocket to a gateway on any trio stream; it sends and receives whole messages.

wsproto implements the protocol. Sending never waits: messages are queued, and one task writes all queued
messages together. Another task receives, and answers pings. After 20 seconds without data it sends a ping,
and after another 20 seconds the connection counts as lost.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Sequence
from urllib.parse import SplitResult

import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from ...actors.channel import Channel
from .errors import ConnectionLost, NotAGateway, NotHere, Refused

MAX_MESSAGE = 64 << 20
"""The maximum size of a message from a gateway, in bytes."""
_MAX_REFUSAL = 1 << 16
_QUIET = 20.0
_CLOSE_WITHIN = 2.0
_UNAUTHORIZED = 4401
_CODES = {401: "unauthorized", 403: "forbidden"}
"""HTTP statuses of a gateway that does not admit this client."""
_ELSEWHERE = (301, 302, 307, 308, 404)
"""HTTP statuses of a proxy for a path that it does not forward; a gateway accepts every path."""


async def open_socket(
    stream: trio.abc.Stream, url: SplitResult, subprotocol: str, token: str | None, *, text: bool = False
) -> Socket:
    """Perform the handshake on a stream. Raises `Refused` and `ConnectionLost`. With `text`, messages are
    text messages."""
    headers = [] if token is None else [(b"Authorization", b"Bearer " + token.encode())]
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    machine = WSConnection(ConnectionType.CLIENT)
    request = Request(host=url.netloc, target=target, subprotocols=[subprotocol], extra_headers=headers)
    try:
        await stream.send_all(machine.send(request))
        await _accepted(stream, machine, subprotocol)
    except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
        raise ConnectionLost(reason_of(error)) from None
    except (RemoteProtocolError, LocalProtocolError) as error:
        raise NotAGateway("invalid", f"{url.geturl()} is not a gateway: {error}") from None
    return Socket(stream, machine, text)


async def _accepted(stream: trio.abc.Stream, machine: WSConnection, subprotocol: str) -> None:
    """Wait for the response to the handshake."""
    status = None
    body = b""
    while True:
        data = await stream.receive_some()
        if not data:
            raise _refusal(status, body) if status is not None else ConnectionLost("closed by the gateway")
        machine.receive_data(bytes(data))
        for event in machine.events():
            if isinstance(event, AcceptConnection):
                if event.subprotocol != subprotocol:
                    text = f"the server does not support the subprotocol {subprotocol}"
                    raise NotAGateway("invalid", f"{text} (got {event.subprotocol})")
                return  # data after the response stays in the machine
            if isinstance(event, RejectConnection):
                status = event.status_code
                if not event.has_body:
                    raise _refusal(status, b"")
            elif isinstance(event, RejectData) and status is not None:
                body += event.data
                if event.body_finished or len(body) > _MAX_REFUSAL:
                    raise _refusal(status, body)


def _refusal(status: int, body: bytes) -> Exception:
    try:
        error = json.loads(body)
        code, message = str(error["code"]), str(error["message"])
    except (ValueError, TypeError, KeyError):
        code, message = "invalid", f"the server is not a gateway: it answered with HTTP status {status}"
    if status in _ELSEWHERE:
        return NotHere("invalid", message)
    if status == 400:
        return NotAGateway("invalid", message)
    if status in _CODES:
        return Refused(_CODES[status], message)
    return ConnectionLost(message if code != "invalid" else f"HTTP status {status}")


class Socket:
    """A WebSocket connection. `write` and `receive` need one task each."""

    def __init__(self, stream: trio.abc.Stream, machine: WSConnection, text: bool) -> None:
        self.received_at = trio.current_time()
        """The time of the last data, which can be a part of a message."""
        self._stream = stream
        self._machine = machine
        self._text = text
        self._outbox = Channel()
        self._fragments: list[bytes] = []
        self._size = 0
        self._events = machine.events()
        self._closed = False
        self._writing = False
        self._broken = False
        self._written = trio.lowlevel.ParkingLot()

    def put(self, payload: bytes) -> None:
        """Queue a message for `write`."""
        self._put(self._message(payload))

    async def send(self, payload: bytes) -> None:
        """Send a message, and wait until it is written. Only for use before `write` runs."""
        try:
            await self._write([self._machine.send(self._message(payload))])
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ConnectionLost(reason_of(error)) from None

    async def write(self) -> None:
        """Send queued messages until cancelled. Returns if the stream is broken; `receive` then raises."""
        try:
            while True:
                messages = await self._outbox.receive_all()
                self._writing = True
                await self._write(messages)
                self._writing = False
                self._written.unpark_all()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await trio.aclose_forcefully(self._stream)
        finally:
            self._broken = True
            self._written.unpark_all()

    async def receive(self) -> bytes:
        """The next message. Raises `ConnectionLost`; and `Refused` if the gateway closed the connection
        because of the token."""
        while True:
            for event in self._events:
                message = self._handle(event)
                if message is not None:
                    return message
            await self._read()

    async def aclose(self) -> None:
        """Send a closing frame, wait briefly for the other side's, and close the stream. If cancelled, only
        close the stream."""
        try:
            with trio.move_on_after(_CLOSE_WITHIN):
                self._put(CloseConnection(code=1000))
                await self._write(self._outbox.receive_all_nowait())
                while not self._closed:
                    await self.receive()
        except (ConnectionLost, Refused, trio.BrokenResourceError, trio.ClosedResourceError):
            self._closed = True
        finally:
            await trio.aclose_forcefully(self._stream)

    async def written(self) -> None:
        """Wait until `write` has sent all queued messages, or has returned."""
        while not self._broken and (self._writing or self._outbox.has_news):
            await self._written.park()

    def _message(self, payload: bytes) -> BytesMessage | TextMessage:
        return TextMessage(data=payload.decode()) if self._text else BytesMessage(data=payload)

    def _put(self, event: BytesMessage | TextMessage | Ping | Pong | CloseConnection) -> None:
        try:
            self._outbox.send_nowait(self._machine.send(event))
        except LocalProtocolError:
            self._closed = True  # the other side has closed it; `receive` then raises

    async def _write(self, pieces: Sequence[bytes]) -> None:
        await self._stream.send_all(b"".join(pieces))

    async def _read(self) -> None:
        if self._closed:
            raise ConnectionLost("closed")
        for patience in ("ping", "lost"):
            with trio.move_on_after(_QUIET):
                try:
                    data = bytes(await self._stream.receive_some())
                except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                    raise ConnectionLost(reason_of(error)) from None
                if not data:
                    raise ConnectionLost("closed by the gateway without a closing frame")
                self.received_at = trio.current_time()
                self._machine.receive_data(data)
                self._events = self._machine.events()
                return
            if patience == "ping":
                self._put(Ping())
        raise ConnectionLost(f"timed out: no data received for {2 * _QUIET:g} seconds")

    def _handle(self, event: object) -> bytes | None:
        if isinstance(event, BytesMessage | TextMessage):
            if isinstance(event, TextMessage) is not self._text:
                kind = "binary" if self._text else "text"
                raise ConnectionLost(f"unexpected {kind} message from the gateway")
            data = event.data.encode() if isinstance(event, TextMessage) else bytes(event.data)
            self._fragments.append(data)
            self._size += len(data)
            if self._size > MAX_MESSAGE:
                raise ConnectionLost(f"message from the gateway must have at most {MAX_MESSAGE} bytes")
            if event.message_finished:
                message = b"".join(self._fragments)
                self._fragments.clear()
                self._size = 0
                return message
        elif isinstance(event, Ping):
            self._put(event.response())
        elif isinstance(event, CloseConnection):
            self._put(event.response())
            self._closed = True
            if event.code == _UNAUTHORIZED:
                raise Refused("unauthorized", event.reason or "invalid or revoked token")
            raise ConnectionLost(f"closed by the gateway: {event.reason or event.code}")
        return None


def reason_of(error: BaseException) -> str:
    """The reason why a stream broke or could not be opened, as text."""
    cause = error.__cause__
    while isinstance(cause, BaseExceptionGroup):  # one for each address of the host
        cause = cause.exceptions[0]
    if isinstance(cause, ssl.SSLError):
        return f"TLS: {cause}"
    return str(cause or error) or "connection lost"
