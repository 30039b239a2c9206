"""A fake server with a registry and a queue: in memory for mock time, or on a real socket."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import h11
import httpx
import trio

POLL = 25.0
PATIENCE = 1_000.0
"""Seconds that a test waits on mock time; on a real socket the test has its own, shorter limit."""
Answer = tuple[int, Any]


class StandIn:
    """`received` records the calls: the time, the last segment of the path, and the body."""

    def __init__(self) -> None:
        self.received: list[tuple[float, str, dict[str, Any]]] = []
        self.headers: list[dict[str, str]] = []
        self.queue: deque[dict[str, Any]] = deque()
        self.instead: Callable[[str, dict[str, Any]], Answer | None] = lambda path, body: None
        """An override for the response; it may raise, as a transport does."""
        self._news = trio.Event()

    def put(self, id: str, service: str, **asked: Any) -> None:
        """Put an item into the queue."""
        item = {
            "id": id,
            "task_id": "t",
            "node_key": "n",
            "service": service,
            "input_json": json.dumps(asked),
        }
        self.queue.append(item)
        self._wake()

    def bodies(self, path: str) -> list[dict[str, Any]]:
        """The bodies of the calls of this path."""
        return [body for _, what, body in self.received if what == path]

    def times(self, path: str) -> list[float]:
        """The times of the calls of this path."""
        return [at for at, what, _ in self.received if what == path]

    def gaps(self, path: str) -> list[float]:
        """The seconds between the calls of this path."""
        return [round(after - before, 3) for before, after in pairwise(self.times(path))]

    async def until(self, path: str, count: int = 1) -> dict[str, Any]:
        """Wait for this number of calls of this path; return the body of the last one."""
        with trio.fail_after(PATIENCE):
            while len(self.bodies(path)) < count:
                await self._news.wait()
        return self.bodies(path)[count - 1]

    async def answer(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
        path = path.removeprefix("/api")
        self.received.append((trio.current_time(), path, body))
        self.headers.append(headers)
        self._wake()
        instead = self.instead(path, body)
        if instead is not None:
            return instead
        if path == "/queue/poll":
            with trio.move_on_after(POLL):
                while not self.queue:
                    await self._news.wait()
                return 200, self.queue.popleft()
            return 204, None
        return 200, {"ok": "1"}

    @property
    def transport(self) -> httpx.MockTransport:
        """A transport for `open_registry`, without sockets."""

        async def handle(request: httpx.Request) -> httpx.Response:
            await trio.lowlevel.checkpoint()
            status, value = await self.answer(
                request.url.path, json.loads(request.content), dict(request.headers)
            )
            return httpx.Response(status, content=_encoded(value))

        return httpx.MockTransport(handle)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Serve on a real socket; yields the URL."""
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(trio.serve_tcp, self._serve, 0)
            yield f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
            nursery.cancel_scope.cancel()

    async def _serve(self, stream: trio.SocketStream) -> None:
        machine = h11.Connection(h11.SERVER)
        try:
            while machine.our_state is h11.IDLE:
                await self._serve_one(stream, machine)
        except (trio.BrokenResourceError, h11.RemoteProtocolError):
            return  # the worker has ended

    async def _serve_one(self, stream: trio.SocketStream, machine: h11.Connection) -> None:
        head, data = None, b""
        while True:
            event = machine.next_event()
            if event is h11.NEED_DATA:
                machine.receive_data(bytes(await stream.receive_some()))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                data += event.data
            else:
                break
        if head is None:
            machine.send(h11.ConnectionClosed())
            return
        headers = {name.decode(): value.decode() for name, value in head.headers}
        status, value = await self.answer(head.target.decode(), json.loads(data), headers)
        content = _encoded(value)
        length = [] if status == 204 else [("Content-Length", str(len(content)))]
        out = machine.send(h11.Response(status_code=status, headers=length)) or b""
        out += (machine.send(h11.Data(data=content)) or b"") if content else b""
        out += machine.send(h11.EndOfMessage()) or b""
        await stream.send_all(out)
        machine.start_next_cycle()

    def _wake(self) -> None:
        self._news.set()
        self._news = trio.Event()


def _encoded(value: Any) -> bytes:
    return b"" if value is None else json.dumps(value).encode()
