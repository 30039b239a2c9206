"""A TCP proxy between an executor and its server, which can cut the connections in several ways."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import trio

Way = Literal["up", "down"]
"""The direction of data: `up` to the server, `down` to the executor."""


class Proxy:
    """Forwards connections to a port. Data in a silent direction is kept until `heal`, as by a network that
    transmits it again."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self._target = target
        self._closed = False
        self._open = {"up": trio.Event(), "down": trio.Event()}
        self._scopes: set[trio.CancelScope] = set()
        self.heal()

    async def serve(self, task_status: trio.TaskStatus[int]) -> None:
        """Forward connections until cancelled."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, self._forward, listeners)
            task_status.started(self.port)

    def close(self) -> None:
        """Close all connections, and refuse others."""
        self._closed = True
        for scope in self._scopes:
            scope.cancel()

    def silence(self, ways: Iterable[Way] = ("up", "down")) -> None:
        """Forward no data in these directions; connections stay open."""
        for way in ways:
            self._open[way] = trio.Event()

    def heal(self) -> None:
        """Forward everything again."""
        self._closed = False
        for event in self._open.values():
            event.set()

    async def _forward(self, executor: trio.SocketStream) -> None:
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                if self._closed:
                    return
                server = await trio.open_tcp_stream("127.0.0.1", self._target)
                async with server, trio.open_nursery() as nursery:
                    nursery.start_soon(self._pump, "up", executor, server, nursery.cancel_scope)
                    nursery.start_soon(self._pump, "down", server, executor, nursery.cancel_scope)
            except OSError:
                pass  # the server is away
            finally:
                self._scopes.discard(scope)
                await trio.aclose_forcefully(executor)

    async def _pump(
        self, way: Way, source: trio.SocketStream, sink: trio.SocketStream, scope: trio.CancelScope
    ) -> None:
        try:
            async for data in source:
                await self._open[way].wait()
                await sink.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        await self._open[way].wait()
        scope.cancel()
