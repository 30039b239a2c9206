"""The connections to workers: one pool for an engine, over which requests are sent and answers read.

Nothing of the environment counts (no proxies), no redirect is followed and nothing is kept between calls.
What comes back is read up to a limit and no further. A call that is cancelled closes its connection at once,
which is how the worker hears of it.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from typing import Any

import httpx
import trio

from .push import PushFailed

MAX_ANSWER = 16 << 20
"""Bytes of an answer that are read."""

_MAX_REFUSAL = 4096  # bytes that are read of an answer which isn't 200
_CONNECT_TIMEOUT = 5.0
_CLEANUP = 5.0


class Connections:
    """See the module's text."""

    def __init__(self) -> None:
        self._transport = httpx.AsyncHTTPTransport(
            verify=ssl.create_default_context(),
            trust_env=False,
            limits=httpx.Limits(max_connections=100, max_keepalive_connections=20),
        )

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """See `Push`."""
        while True:
            call = _Call()
            try:
                request = _request(url, body, headers, call)
                return await _read(await self._transport.handle_async_request(request))
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                raise PushFailed("unreachable", f"no connection: {_text(error)}") from error
            except (httpx.NetworkError, httpx.ProtocolError) as error:
                if not call.may_be_repeated:
                    raise _lost(error) from error
            except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
                raise PushFailed("unreachable", f"it can't be called: {_text(error)}") from error

    async def aclose(self) -> None:
        """Close them."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLEANUP):
            await self._transport.aclose()


class _Call:
    """How far one request has come. A worker may close a connection that was idle in the moment that it is
    used again; such a request never reached it, and is sent once more over another one."""

    def __init__(self) -> None:
        self._connected = False
        self._answered = False

    async def trace(self, event: str, info: dict[str, Any]) -> None:
        """Hear what happens to the request."""
        if event == "connection.connect_tcp.started":
            self._connected = True
        elif event == "http11.receive_response_headers.complete":
            self._answered = True

    @property
    def may_be_repeated(self) -> bool:
        """Whether it went over a connection that was there before, and nothing came back."""
        return not (self._connected or self._answered)


class _Body(httpx.AsyncByteStream):
    """The body of a request, in one piece. No generator, which a cancelled call would leave half way."""

    def __init__(self, body: bytes) -> None:
        self._left = [body]

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()


def _request(url: str, body: bytes, headers: dict[str, str], call: _Call) -> httpx.Request:
    target = httpx.URL(url)
    every = {
        "Host": target.netloc.decode("ascii"),
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "User-Agent": "greenroom",
    }
    extensions = {"timeout": {"connect": _CONNECT_TIMEOUT}, "trace": call.trace}
    return httpx.Request("POST", target, headers=every | headers, stream=_Body(body), extensions=extensions)


async def _read(response: httpx.Response) -> tuple[int, bytes]:
    stream = response.stream
    assert isinstance(stream, httpx.AsyncByteStream), "the transport is asynchronous"
    refused = response.status_code != 200
    limit = _MAX_REFUSAL if refused else MAX_ANSWER
    body = bytearray()
    try:
        if not refused:
            _check_head(response)
        with trio.CancelScope() as enough:
            async for chunk in stream:
                if len(body) <= limit:
                    body += chunk
                if len(body) > limit:
                    enough.cancel()  # leaving the loop would leave the generators in there half way
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLEANUP):
            await stream.aclose()
    if len(body) > limit and not refused:
        raise _too_large(f"more than {limit:,}")
    return response.status_code, bytes(body[:limit])


def _check_head(response: httpx.Response) -> None:
    size = response.headers.get("content-length", "0")
    if size.isdecimal() and int(size) > MAX_ANSWER:
        raise _too_large(f"{int(size):,}")
    encoding = response.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise PushFailed("bad_http", f"the answer is encoded as {encoding[:40]!r}, which was not asked for")


def _too_large(size: str) -> PushFailed:
    return PushFailed("too_large", f"the answer has {size} bytes, where {MAX_ANSWER:,} are read")


def _lost(error: httpx.TransportError) -> PushFailed:
    text = _text(error)
    if isinstance(error, httpx.NetworkError) or "without sending" in text:
        return PushFailed("reset", f"the connection ended before the answer did: {text}")
    return PushFailed("bad_http", f"what came back is no HTTP: {text}")


def _text(error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None and not str(cause):
        cause = cause.__cause__ or cause.__context__
    return str(cause)[:500] if cause is not None else type(error).__name__
