"""Reading requests from a raw stream with h11: the head, then the body, each with its limit and its time-out.

Of strangers it counts what they send, and of all others how many chunks come in a second: a chunk costs the
same with one byte in it as with thousands.

Whatever is wrong with what a client sends comes out as `BadRequest` with the status to answer; after that the
connection can only be closed, because nobody knows where the next request begins.
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
"""So much of its next requests may a client send while it waits; one that sends more isn't watched."""
_LINGER = 1.0
_AT_ONCE = 64


class BadRequest(Exception):
    """What came is no acceptable request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@attrs.frozen
class Request:
    """The head of a request."""

    method: str
    path: str
    """As it was sent, without the query; `segments` has it decoded."""
    query: dict[str, list[str]]
    headers: dict[str, list[str]]
    host: str | None = None
    """The authority that it is for: of its target where that names one, else of `Host`, which HTTP/1.0 may
    leave out."""
    version: str = "1.1"

    def header(self, name: str) -> str | None:
        """The value of a header; of one that came several times, with commas between."""
        values = self.headers.get(name)
        return None if values is None else ", ".join(values)

    def tokens(self, name: str) -> list[str]:
        """The parts of a header whose value is a list."""
        return [part.strip() for part in (self.header(name) or "").split(",") if part.strip()]

    @property
    def segments(self) -> tuple[str, ...]:
        """The parts of the path, each decoded by itself, so that a name may contain a slash."""
        return tuple(unquote(part, errors="strict") for part in self.path.split("/")[1:])

    @property
    def upgrades(self) -> bool:
        """Whether it asks to become a WebSocket. HTTP/1.0 has no Upgrade, so there it says nothing."""
        if self.version == "1.0":
            return False
        upgrade = [token.lower() for token in self.tokens("upgrade")]
        connection = [token.lower() for token in self.tokens("connection")]
        return "websocket" in upgrade and "upgrade" in connection


class Requests:
    """The requests of one connection, one after the other. Without a `stranger`, they are not counted."""

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
        """Of the request whose head was read last, also if that was refused."""
        self._begun = False
        self._first = True

    async def head(self) -> Request | None:
        """The next head; `None` when the client wants nothing more."""
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
            raise BadRequest(408, "the head of the request did not come in time")
        return None

    async def body(self) -> bytes:
        """The body of the request whose head was read last."""
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
                        raise BadRequest(413, f"the body has more than {limits.max_message_bytes} bytes")
                    parts.append(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage):
                    return b"".join(parts)
                else:
                    raise BadRequest(400, "the body of the request is not whole")
        raise BadRequest(408, "the body of the request did not come in time")

    async def until_gone(self) -> bool:
        """Read on while a request is answered, until the client is gone. What it sends before is its next
        request; if that is much, this gives up and returns false."""
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
        """Let the last words arrive: a stream that is closed with something unread takes them back."""
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
                go_on = self.machine.send(h11.InformationalResponse(status_code=100, headers=[]))
                await self._stream.send_all(go_on or b"")
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
        """What h11 makes of what has come, and how long that took."""
        begun = 0.0 if self._stranger.known else thread_time()
        try:
            return self.machine.next_event()
        except h11.RemoteProtocolError as error:
            _refuse(error)
        finally:
            if not self._stranger.known:
                self._stranger.use(seconds=thread_time() - begun)

    async def _count(self) -> None:
        """Count a request, or a chunk of a body. Of those that have come at once, some are read in a turn."""
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
    if size > most:  # h11 looks at the size only while the head is not whole
        raise BadRequest(431, f"the head of the request has more than {most} bytes")
    if event.http_version not in (b"1.0", b"1.1"):
        raise BadRequest(505, "the version of HTTP must be 1.1 or 1.0")
    version = event.http_version.decode("ascii")
    hosts = headers.get("host", [])
    if len(hosts) > 1 or (not hosts and version == "1.1"):
        raise BadRequest(400, "a request has exactly one Host header")
    if "content-length" in headers and "transfer-encoding" in headers:
        raise BadRequest(
            400, "Content-Length and Transfer-Encoding together leave the length of the body open"
        )
    if "transfer-encoding" in headers and event.http_version < b"1.1":
        raise BadRequest(400, "HTTP/1.0 has no Transfer-Encoding")
    authority, target = _split_target(event.target.decode("ascii"), event.method)
    path, _, query = target.partition("#")[0].partition("?")
    try:
        parsed = parse_qs(query, keep_blank_values=True, errors="strict", max_num_fields=2000)
        unquote(path, errors="strict")
    except ValueError:
        raise BadRequest(
            400, "the target of the request must be UTF-8, with at most 2,000 parameters"
        ) from None
    host = authority if authority is not None else next(iter(hosts), None)
    return Request(event.method.decode("ascii"), path, parsed, headers, host, version)


def _split_target(target: str, method: bytes) -> tuple[str | None, str]:
    """The authority of a target in absolute form, which counts in place of `Host` (RFC 9112, 3.2.2), and the
    rest of it: a path with its query, or an asterisk."""
    if target.startswith("/") or target == "*":
        return None, target
    scheme, separator, rest = target.partition("://")
    end = next((index for index, sign in enumerate(rest) if sign in "/?#"), len(rest))
    authority, path = rest[:end], rest[end:]
    if not separator or scheme.lower() not in ("http", "https") or not authority or "@" in authority:
        raise BadRequest(400, "the target of a request is a path that begins with a slash, or an http URL")
    if not path and method == b"OPTIONS":
        return authority, "*"
    return authority, path if path.startswith("/") else f"/{path}"
