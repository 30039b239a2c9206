"""Reads requests from a stream with h11: the head, then the body, each with a size limit and a timeout.

What unauthenticated clients send is counted. For all other clients the rate of chunks is limited, because the
cost of a chunk does not depend on its size.

A malformed request raises `BadRequest` with the status of the response. After that the connection must be
closed, because the start of the next request is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time
from typing import NoReturn
from urllib.parse import parse_qs, unquote

import attrs
import h11
import trio

from ..auth.strangers import Stranger, Strangers
from ..config import Limits
from ..limits import Rate

_RECEIVE = 65_536
_AHEAD = 1 << 16
"""While a client waits for a response, this many bytes of its next requests are read ahead. Beyond that, its
disconnection is not detected."""
_LINGER = 1.0
_AT_ONCE = 64


class BadRequest(Exception):
    """The request is malformed, too large, or timed out."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@attrs.frozen
class Request:
    """The head of a request."""

    method: str
    path: str
    """The path as sent, without the query; `segments` has the decoded parts."""
    query: dict[str, list[str]]
    headers: dict[str, list[str]]
    host: str | None = None
    """The authority of the target if it has one, else `Host`, which is optional in HTTP/1.0."""
    version: str = "1.1"

    def header(self, name: str) -> str | None:
        """The value of a header; several values are joined with commas."""
        values = self.headers.get(name)
        return None if values is None else ", ".join(values)

    def tokens(self, name: str) -> list[str]:
        """The items of a header whose value is a list."""
        return [part.strip() for part in (self.header(name) or "").split(",") if part.strip()]

    @property
    def segments(self) -> tuple[str, ...]:
        """The parts of the path, each decoded separately, so that a name can contain a slash."""
        return tuple(unquote(part, errors="strict") for part in self.path.split("/")[1:])

    @property
    def upgrades(self) -> bool:
        """Whether the request is for a WebSocket. HTTP/1.0 has no Upgrade, so the header is ignored there."""
        if self.version == "1.0":
            return False
        upgrade = [token.lower() for token in self.tokens("upgrade")]
        connection = [token.lower() for token in self.tokens("connection")]
        return "websocket" in upgrade and "upgrade" in connection


class Requests:
    """The requests of one connection, in order. Without a `stranger`, they are not counted."""

    def __init__(
        self, stream: trio.abc.Stream, limits: Callable[[], Limits], stranger: Stranger | None = None
    ) -> None:
        self._stream = stream
        self._limits = limits
        self._stranger = stranger or Strangers(limits, lambda: False).arrive(None)
        self._rate = Rate(int(limits().frame_rate))
        self._counted = True  # whether the next event was counted together with its bytes
        self._turn = 0
        self.machine = h11.Connection(h11.SERVER, max_incomplete_event_size=limits().max_head_bytes)
        self.method = ""
        """The method of the last request, also if it was refused."""
        self._begun = False
        self._first = True

    async def head(self) -> Request | None:
        """The head of the next request; `None` if the client disconnected, or sent nothing in time."""
        self.method = ""
        self._stranger.forget()
        limits = self._limits()
        patience = limits.head_timeout if self._first else limits.keep_alive
        self._begun = bool(self.machine.trailing_data[0])
        scope = trio.CancelScope(deadline=trio.current_time() + patience)
        with scope:
            event = await self._next_event(scope)
            self._first = False
            if isinstance(event, h11.Request):
                self.method = event.method.decode("ascii")
                return _request(event, limits.max_head_bytes)
            return None
        if self._begun:
            raise BadRequest(
                408, f"timed out: no complete request head within {limits.head_timeout:g} seconds"
            )
        return None

    async def body(self) -> bytes:
        """The body of the last request."""
        limits = self._limits()
        parts: list[bytes] = []
        size = 0
        with trio.move_on_after(limits.body_timeout):
            while True:
                event = await self._next_event(None)
                if isinstance(event, h11.Data):
                    self._refuse_excess()
                    size += len(event.data)
                    if size > limits.max_message_bytes:
                        raise BadRequest(413, f"body must have at most {limits.max_message_bytes} bytes")
                    parts.append(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage):
                    return b"".join(parts)
                else:
                    raise BadRequest(400, "connection closed before the end of the body")
        raise BadRequest(408, f"timed out: no complete body within {limits.body_timeout:g} seconds")

    async def until_disconnected(self) -> bool:
        """Wait until the client disconnects, while a request is answered. Data that arrives before is kept as
        the next request; above a limit this stops reading and returns false."""
        while len(self.machine.trailing_data[0]) < _AHEAD:
            try:
                data = await self._stream.receive_some(_RECEIVE)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                data = b""
            if not data:
                return True
            self.machine.receive_data(bytes(data))
        return False

    async def linger(self, most: int) -> None:
        """Read what remains, so that the client receives the last response: closing a socket with unread data
        resets the connection."""
        with trio.move_on_after(_LINGER):
            if isinstance(self._stream, trio.abc.HalfCloseableStream):
                await self._stream.send_eof()
            while most > 0 and (data := await self._stream.receive_some(_RECEIVE)):
                most -= len(data)

    async def _next_event(self, scope: trio.CancelScope | None) -> object:
        while True:
            event = self._parse()
            if event is not h11.NEED_DATA:
                if isinstance(event, h11.Request | h11.Data):
                    await self._count()
                return event
            if self.machine.they_are_waiting_for_100_continue:
                interim = self.machine.send(h11.InformationalResponse(status_code=100, headers=[]))
                await self._stream.send_all(interim or b"")
            self._refuse_excess(alone=True)
            data = await self._stream.receive_some(_RECEIVE)
            self._stranger.use(frames=1, bytes=len(data))
            self._counted = True
            if data and scope is not None and not self._begun:
                self._begun = True
                scope.deadline = min(scope.deadline, trio.current_time() + self._limits().head_timeout)
            try:
                self.machine.receive_data(bytes(data))
            except h11.RemoteProtocolError as error:
                _refuse(error)

    def _parse(self) -> object:
        """The next event of h11; for an unauthenticated client, the processor time is counted."""
        begun = 0.0 if self._stranger.known else thread_time()
        try:
            return self.machine.next_event()
        except h11.RemoteProtocolError as error:
            _refuse(error)
        finally:
            if not self._stranger.known:
                self._stranger.use(seconds=thread_time() - begun)

    async def _count(self) -> None:
        """Count a request or a chunk of a body, and yield to other tasks after every `_AT_ONCE` of them."""
        self._turn = (self._turn + 1) % _AT_ONCE
        if self._turn == 0:
            await trio.lowlevel.checkpoint()
        if not self._counted:
            self._stranger.use(frames=1)
        self._counted = False
        pause = 0.0 if not self._stranger.known else self._rate.spend(self._limits().frame_rate, 1)
        if pause:
            await trio.sleep(pause)

    def _refuse_excess(self, *, alone: bool = False) -> None:
        excess = self._stranger.excess(alone=alone)
        if excess is not None:
            raise BadRequest(429, excess.message)


def _refuse(error: h11.RemoteProtocolError) -> NoReturn:
    what = str(error).partition(": bytearray(")[0]
    raise BadRequest(error.error_status_hint, what) from None


def _request(event: h11.Request, most: int) -> Request:
    headers: dict[str, list[str]] = {}
    size = len(event.target)
    for name, value in event.headers:
        size += len(name) + len(value) + len(": \r\n")
        headers.setdefault(name.decode("ascii"), []).append(value.decode("latin-1"))
    if size > most:  # h11 checks the size only while the head is incomplete
        raise BadRequest(431, f"request head must have at most {most} bytes (got {size})")
    if event.http_version not in (b"1.0", b"1.1"):
        raise BadRequest(505, f"HTTP version must be 1.1 or 1.0 (got {event.http_version.decode('ascii')})")
    version = event.http_version.decode("ascii")
    hosts = headers.get("host", [])
    if len(hosts) > 1 or (not hosts and version == "1.1"):
        raise BadRequest(400, f"a request must have exactly one Host header (got {len(hosts)})")
    if "content-length" in headers and "transfer-encoding" in headers:
        raise BadRequest(400, "a request must not have both Content-Length and Transfer-Encoding")
    if "transfer-encoding" in headers and event.http_version < b"1.1":
        raise BadRequest(400, "Transfer-Encoding requires HTTP/1.1")
    authority, target = _split_target(event.target.decode("ascii"), event.method)
    path, _, query = target.partition("#")[0].partition("?")
    try:
        parsed = parse_qs(query, keep_blank_values=True, errors="strict", max_num_fields=2000)
        unquote(path, errors="strict")
    except ValueError:
        raise BadRequest(400, "request target must be UTF-8 with at most 2,000 parameters") from None
    host = authority if authority is not None else next(iter(hosts), None)
    return Request(event.method.decode("ascii"), path, parsed, headers, host, version)


def _split_target(target: str, method: bytes) -> tuple[str | None, str]:
    """The authority of a target in absolute form, which replaces `Host` (RFC 9112, 3.2.2), and the rest: a
    path with its query, or an asterisk."""
    if target.startswith("/") or target == "*":
        return None, target
    scheme, separator, rest = target.partition("://")
    end = next((index for index, sign in enumerate(rest) if sign in "/?#"), len(rest))
    authority, path = rest[:end], rest[end:]
    if not separator or scheme.lower() not in ("http", "https") or not authority or "@" in authority:
        raise BadRequest(400, "request target must be a path that starts with a slash, or an http URL")
    if not path and method == b"OPTIONS":
        return authority, "*"
    return authority, path if path.startswith("/") else f"/{path}"
