"""Shared by the tests of workers: a push with configurable responses, misbehaving servers, and stores that
wait."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio

from greenroom import Engine
from greenroom.actors.workers.dispatch import Dispatch
from greenroom.actors.workers.push import Push
from greenroom.actors.workers.states import Work
from greenroom.persistence.memory import MemoryStore
from greenroom.persistence.store import Batch

_PATIENCE = 1e5


def dispatch_of(engine: Engine, push: Push) -> Dispatch:
    """The dispatch that bodies of flows use, for a test without flows."""
    workers = engine.workers
    return Dispatch(workers._entry, workers._registry, workers._queue, push)


def work(service: str = "sum", **about: Any) -> Work:
    return Work(service=service, **({"run": "r", "node": "n", "key": "r:n:1:"} | about))


class Answers:
    """A push without a network: responds with `status` and `body`, and records the calls. `hold` makes them
    wait."""

    def __init__(self, status: int = 200, body: bytes = b'{"result": 1}') -> None:
        self.status = status
        self.body = body
        self.calls: list[tuple[str, Any, dict[str, str]]] = []
        self.failing: dict[str, Exception] = {}
        self.hold: trio.Event | None = None
        self.cancelled = 0

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        self.calls.append((url, msgspec.json.decode(body), headers))
        await trio.lowlevel.checkpoint()
        if self.hold is not None:
            try:
                await self.hold.wait()
            except trio.Cancelled:
                self.cancelled += 1
                raise
        for prefix, error in self.failing.items():
            if url.startswith(prefix):
                raise error
        return self.status, self.body

    @property
    def urls(self) -> list[str]:
        return [url for url, _, _ in self.calls]


class SlowStore(MemoryStore):
    """A store whose commits wait while `gate` is closed, up to a limit."""

    def __init__(self) -> None:
        super().__init__()
        self.gate: trio.Event | None = None

    async def commit(self, batch: Batch) -> None:
        if self.gate is not None:
            with trio.move_on_after(_PATIENCE):  # or a test that fails could not leave its engine
                await self.gate.wait()
        await super().commit(batch)


Handler = Callable[[trio.SocketStream], Awaitable[object]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """A server on a free loopback port, which runs the handler for each connection. Connections are closed at
    the end of the block."""

    async def handle(stream: trio.SocketStream) -> None:
        try:
            await handler(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the caller closed its connection
        finally:
            with trio.CancelScope(shield=True):
                await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, handle, listeners)
        yield f"http://127.0.0.1:{port}"
        nursery.cancel_scope.cancel()


async def read_request(stream: trio.SocketStream) -> tuple[str, bytes]:
    """The head and the body of a request; an empty head if the caller closed its connection."""
    received = b""
    while b"\r\n\r\n" not in received:
        data = await stream.receive_some()
        if not data:
            return "", b""
        received += data
    head, _, body = received.partition(b"\r\n\r\n")
    found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    size = int(found[1]) if found else 0
    while len(body) < size:
        body += await stream.receive_some()
    return head.decode(), body


def response(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body
