"""HTTP connections to workers: sends requests and reads responses.

Each call uses its own connection, so no call waits for another. A connection whose response was read
completely is kept for a few seconds, for the next call to the same origin. The environment has no influence
(no proxies), redirects are not followed, and no other state is kept between calls. Responses are read up to
a limit. A cancelled call closes its connection immediately; this is how the worker notices the cancellation.
"""

from __future__ import annotations

import errno
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpcore
import trio

from ...protocol.values import shown
from .dialing import CheckedNetwork
from .networks import Networks
from .push import PushFailed

MAX_ANSWER = 16 << 20
"""Bytes that are read of a response."""

MAX_IDLE = 100
"""Connections that are kept open without a call."""

_KEPT_FOR = 5.0
_MAX_ERROR_BODY = 4096  # bytes that are read of a response whose status is not 200
_CONNECT_TIMEOUT = 5.0
_CLEANUP = 5.0
_SKIPPING = 0.1
"""Seconds for which a body that is not needed is read. A short one usually arrives with its head."""

_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
"""Shortages of this machine: a connection that fails with one of these is not the worker's fault."""


class Connections:
    """See the module's docstring. Without `max_answer`, only the status of a response matters: nothing in its
    body makes a call fail."""

    def __init__(self, networks: Networks, max_answer: int | None = MAX_ANSWER) -> None:
        self._network = CheckedNetwork(networks)
        self._max_answer = max_answer
        self._tls: ssl.SSLContext | None = None  # created by the first call over TLS, because it is slow
        self._idle: dict[httpcore.AsyncHTTPConnection, httpcore.Origin] = {}  # the longest idle first
        self._by_origin: dict[bytes, list[httpcore.AsyncHTTPConnection]] = {}
        self._closed = False

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """See `Push`."""
        while True:
            call = _Call()
            try:
                return await self._send(_request(url, body, headers, call), call)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                if _is_shortage(error):
                    raise PushFailed(
                        "overloaded", f"this machine cannot open another connection: {_text(error)}"
                    ) from error
                raise PushFailed("unreachable", f"connection failed: {_text(error)}") from error
            except (httpcore.NetworkError, httpcore.ProtocolError) as error:
                if not call.can_be_repeated:
                    raise _lost(error) from error
            except httpcore.ConnectionNotAvailable:
                if not call.reuses:
                    raise
            except (httpcore.TimeoutException, httpcore.UnsupportedProtocol, OSError, ValueError) as error:
                raise PushFailed("unreachable", f"request failed: {_text(error)}") from error

    async def aclose(self) -> None:
        """Close all connections."""
        self._closed = True
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLEANUP):
            while self._idle:
                await self._forget(next(iter(self._idle))).aclose()

    async def _send(self, request: httpcore.Request, call: _Call) -> tuple[int, bytes]:
        connection = await self._take(request.url.origin)
        call.reuses = connection is not None
        if connection is None:
            if request.url.scheme == b"https" and self._tls is None:
                self._tls = ssl.create_default_context()
            connection = httpcore.AsyncHTTPConnection(
                request.url.origin,
                ssl_context=self._tls,
                keepalive_expiry=_KEPT_FOR,
                network_backend=self._network,
            )
        try:
            answer = await _read(await connection.handle_async_request(request), self._max_answer)
        except BaseException:
            await _close(connection)
            raise
        await self._keep(connection, request.url.origin)
        return answer

    # Idle connections.

    async def _take(self, origin: httpcore.Origin) -> httpcore.AsyncHTTPConnection | None:
        """The connection to this origin that was used last, if it can be used again."""
        while kept := self._by_origin.get(_key(origin)):
            connection = self._forget(kept[-1])
            if connection.is_available() and not connection.has_expired():
                return connection
            await _close(connection)
        return None

    async def _keep(self, connection: httpcore.AsyncHTTPConnection, origin: httpcore.Origin) -> None:
        if self._closed or not connection.is_available():
            await _close(connection)
            return
        self._idle[connection] = origin
        self._by_origin.setdefault(_key(origin), []).append(connection)
        while len(self._idle) > MAX_IDLE or next(iter(self._idle)).has_expired():
            await _close(self._forget(next(iter(self._idle))))
            if not self._idle:
                return

    def _forget(self, connection: httpcore.AsyncHTTPConnection) -> httpcore.AsyncHTTPConnection:
        key = _key(self._idle.pop(connection))
        kept = self._by_origin[key]
        kept.remove(connection)
        if not kept:
            del self._by_origin[key]
        return connection


def _key(origin: httpcore.Origin) -> bytes:
    return b"%b://%b:%d" % (origin.scheme, origin.host, origin.port)


async def _close(connection: httpcore.AsyncHTTPConnection) -> None:
    with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLEANUP):
        await connection.aclose()


class _Call:
    """The progress of one request. A worker may close an idle connection at the moment when it is used again.
    Such a request did not reach the worker, and is sent again over another connection."""

    def __init__(self) -> None:
        self.reuses = False
        self._answered = False

    async def trace(self, event: str, info: dict[str, Any]) -> None:
        """Receive httpcore's trace events of the request."""
        if event == "http11.receive_response_headers.complete":
            self._answered = True

    @property
    def can_be_repeated(self) -> bool:
        """Whether the request used an idle connection and received no response."""
        return self.reuses and not self._answered


class _Body:
    """The body of a request, in one piece. Not a generator: a cancelled call would not finish it."""

    def __init__(self, body: bytes) -> None:
        self._left = [body]

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()


def _request(url: str, body: bytes, headers: dict[str, str], call: _Call) -> httpcore.Request:
    parts = urlsplit(url)
    every = {
        "Host": parts.netloc,
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "User-Agent": "greenroom",
    }
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return httpcore.Request(
        "POST",
        httpcore.URL(scheme=parts.scheme, host=parts.hostname or "", port=port, target=target),
        headers=list((every | headers).items()),
        content=_Body(body),
        extensions={"timeout": {"connect": _CONNECT_TIMEOUT}, "trace": call.trace},
    )


async def _read(response: httpcore.Response, most: int | None) -> tuple[int, bytes]:
    if most is None:
        await _skip(response.stream)
        return response.status, b""
    stream: Any = response.stream
    refused = response.status != 200
    limit = _MAX_ERROR_BODY if refused else most
    body = bytearray()
    try:
        if not refused:
            _check_head(response, most)
        with trio.CancelScope() as enough:
            async for chunk in stream:
                if len(body) <= limit:
                    body += chunk
                if len(body) > limit:
                    enough.cancel()  # leaving the loop with `break` would not finish httpcore's generators
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLEANUP):
            await stream.aclose()
    if len(body) > limit and not refused:
        raise _too_large(f"more than {limit:,}", limit)
    return response.status, bytes(body[:limit])


async def _skip(stream: Any) -> None:
    """Read a body that is not needed, because the connection can be used again at its end. One that is long,
    slow or broken costs only the connection. Cannot be cancelled: the status has arrived, and decides."""
    count = 0
    try:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _SKIPPING) as enough:
            async for chunk in stream:
                count += len(chunk)
                if count > _MAX_ERROR_BODY:
                    enough.cancel()
    except (httpcore.NetworkError, httpcore.ProtocolError):
        pass  # the status has arrived, and the connection closes itself
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLEANUP):
            await stream.aclose()


def _check_head(response: httpcore.Response, most: int) -> None:
    headers = {name.lower(): value.decode("latin-1") for name, value in response.headers}
    size = headers.get(b"content-length", "0")
    if size.isdecimal() and int(size) > most:
        raise _too_large(f"{int(size):,}", most)
    encoding = headers.get(b"content-encoding", "identity")
    if encoding.lower() != "identity":
        raise PushFailed("bad_http", f"the response is encoded as {shown(encoding)}, which was not requested")


def _too_large(size: str, most: int) -> PushFailed:
    return PushFailed("too_large", f"the response has {size} bytes, more than the {most:,} allowed")


def _lost(error: Exception) -> PushFailed:
    text = _text(error)
    if isinstance(error, httpcore.NetworkError) or "without sending" in text:
        return PushFailed("reset", f"connection lost before the response was complete: {text}")
    return PushFailed("bad_http", f"the response is not valid HTTP: {text}")


def _is_shortage(error: BaseException) -> bool:
    return any(isinstance(one, OSError) and one.errno in _SHORTAGES for one in _causes(error))


def _text(error: BaseException) -> str:
    text = next((text for cause in _causes(error) if (text := str(cause))), type(error).__name__)
    return text.partition(": bytearray(")[0][:500]  # h11 shows what was received as a Python object


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its causes."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for inner in error.exceptions:
                yield from _causes(inner)
        error = error.__cause__ or error.__context__
