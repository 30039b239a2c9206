"""The gateway of a simulated server: the real one, with simulated connections instead of sockets.

It belongs to one life of a server. When the process is killed, its connections break, as the operating system
closes those of a dead process. When the server is stopped, the gateway closes the connections in order,
before the engine ends or after it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from ...actors.engine.api import Engine
from ...gateway import Gateway, GatewayConfig, open_gateway
from ...gateway.background import background
from .network import Line


@asynccontextmanager
async def listening(config: GatewayConfig) -> AsyncIterator[Listener]:
    """A listener for a gateway, closed at the end of the block at the latest."""
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        listener = Listener(config, nursery)
        try:
            yield listener
        except BaseException as error:  # raised again below, not in a group
            failure = error
        listener.closing.set()
    if failure is not None:
        raise failure


class Listener:
    """See the module's docstring."""

    def __init__(self, config: GatewayConfig, nursery: trio.Nursery) -> None:
        self.closing = trio.Event()
        self._config = config
        self._nursery = nursery
        self._connections: trio.Nursery
        self._engine: Engine | None = None
        self._gateway: Gateway | None = None
        self._lines: dict[Line, None] = {}
        self._closed = trio.Event()

    @property
    def serves(self) -> bool:
        """Whether the gateway accepts connections, and has no reason to close one."""
        return self._gateway is not None and self._engine is not None and not self._engine.stream.closed

    async def open(self, engine: Engine) -> None:
        """Start to accept clients."""
        self._engine = engine
        await self._nursery.start(self._run, engine)

    def accept(self, line: Line) -> None:
        """Accept a client's connection. Raises `ConnectionRefusedError`."""
        if self._gateway is None:
            raise ConnectionRefusedError("connection refused: the gateway does not listen")
        self._lines[line] = None
        self._connections.start_soon(self._serve, self._gateway, line)

    async def close(self) -> None:
        """Close the gateway and its connections, in order."""
        self.closing.set()
        await self._closed.wait()

    def die(self) -> None:
        """Break all connections: the process has died."""
        self._gateway = None
        for line in self._lines:
            line.cut()

    async def _run(self, engine: Engine, task_status: trio.TaskStatus[None]) -> None:
        try:
            async with (
                background() as self._connections,
                open_gateway(engine, self._config, listeners=()) as self._gateway,
            ):
                task_status.started()
                await self.closing.wait()
                self._gateway = None
        finally:
            self._closed.set()

    async def _serve(self, gateway: Gateway, line: Line) -> None:
        try:
            await gateway.serve_stream(line.far)
        finally:
            del self._lines[line]
