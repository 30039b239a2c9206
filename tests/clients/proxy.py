"""A TCP proxy in front of a gateway, which cuts connections at any byte, also within frames."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


class Proxy:
    """Forwards connections to `port`; `cut` breaks all of them."""

    def __init__(self, target: int, lots: random.Random) -> None:
        self.port = 0
        self.opened = 0
        self.refuses = False
        self.drops_replies = False  # of connections that are cut later
        self._changed = trio.lowlevel.ParkingLot()
        self._target = target
        self._lots = lots
        self._scopes: dict[trio.CancelScope, None] = {}

    def cut(self) -> None:
        """Break every open connection."""
        for scope in list(self._scopes):
            scope.cancel()

    async def wait_opened(self, count: int) -> None:
        """Wait until `count` connections were opened, refused ones included."""
        while self.opened < count:
            await self._changed.park()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listener.socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._serve, [listener])

    async def _serve(self, client: trio.SocketStream) -> None:
        self.opened += 1
        self._changed.unpark_all()
        if self.refuses:
            await trio.aclose_forcefully(client)
            return
        with trio.CancelScope() as scope:
            self._scopes[scope] = None
            try:
                server = await trio.open_tcp_stream("127.0.0.1", self._target)
                async with server, trio.open_nursery() as nursery:
                    nursery.start_soon(self._pass_on, client, server, nursery.cancel_scope, False)
                    nursery.start_soon(self._pass_on, server, client, nursery.cancel_scope, True)
            except OSError:
                pass  # the gateway is not there
            finally:
                del self._scopes[scope]
        await trio.aclose_forcefully(client)

    async def _pass_on(
        self, source: trio.SocketStream, to: trio.SocketStream, connection: trio.CancelScope, replies: bool
    ) -> None:
        try:
            while data := await source.receive_some(self._lots.choice([1, 10, 100, 10_000])):
                if not (replies and self.drops_replies):
                    await to.send_all(data)
        except trio.BrokenResourceError:
            pass
        connection.cancel()


@asynccontextmanager
async def proxy(target: int, seed: int = 1) -> AsyncIterator[Proxy]:
    """A proxy during the block."""
    async with trio.open_nursery() as nursery:
        it = Proxy(target, random.Random(seed))
        await nursery.start(it.run)
        yield it
        nursery.cancel_scope.cancel()
