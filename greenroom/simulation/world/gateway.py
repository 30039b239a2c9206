"""A simulated server's gateway: the real one, to which lines lead instead of sockets.

It belongs to one life of a server. When that is killed, its lines break as the system breaks a dead process's
connections; when the server is stopped, clients are told, before the engine ends or after it.
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
    """A place for a gateway, which is closed when the block ends, if it was not before."""
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
    """See the module's text."""

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
        """Whether clients have every reason to expect that their connections last."""
        return self._gateway is not None and self._engine is not None and not self._engine.stream.closed

    async def open(self, engine: Engine) -> None:
        """Let clients in."""
        self._engine = engine
        await self._nursery.start(self._run, engine)

    def accept(self, line: Line) -> None:
        """A client wants to talk. Raises `ConnectionRefusedError`."""
        if self._gateway is None:
            raise ConnectionRefusedError("nobody listens")
        self._lines[line] = None
        self._connections.start_soon(self._serve, self._gateway, line)

    async def close(self) -> None:
        """Say goodbye to whoever is there."""
        self.closing.set()
        await self._closed.wait()

    def die(self) -> None:
        """The process is dead."""
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
