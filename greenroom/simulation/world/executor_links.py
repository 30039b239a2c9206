"""The executors' connections of a simulated server: the engine's real side, over simulated lines.

They belong to one life of a server, as the connections of a gateway do. The rules learn from here when the
engine has received a sign of life of an executor.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import trio

from ...actors.engine.api import Engine
from ...actors.executors.connection import StreamConnection
from ...gateway.background import background
from ...protocol.executors import Attach, Attached, Beat, Beaten
from .network import Line

Heard = Callable[[str, float], None]

_received = msgspec.json.Decoder(Attach | Beat)
_sent = msgspec.json.Decoder(Attached | Beaten)


@asynccontextmanager
async def linking(heard: Heard) -> AsyncIterator[ExecutorLinks]:
    """The connections of a server, until the end of the block. `heard` is called with the start id of an
    executor's process, and the time when the engine received a sign of life that it has accepted."""
    async with background() as nursery:
        yield ExecutorLinks(nursery, heard)


class ExecutorLinks:
    """See the module's docstring."""

    def __init__(self, nursery: trio.Nursery, heard: Heard) -> None:
        self._nursery = nursery
        self._heard = heard
        self._engine: Engine | None = None
        self._lines: dict[Line, trio.CancelScope] = {}

    def open(self, engine: Engine) -> None:
        """Start to accept executors."""
        self._engine = engine

    def accept(self, line: Line) -> None:
        """Accept a connection. Raises `ConnectionRefusedError`."""
        if self._engine is None:
            raise ConnectionRefusedError("connection refused: the server does not listen")
        self._lines[line] = trio.CancelScope()
        self._nursery.start_soon(self._serve, self._engine, line)

    def close(self) -> None:
        """Close all connections, and accept no others."""
        self._engine = None
        for scope in self._lines.values():
            scope.cancel()

    def die(self) -> None:
        """The process has died: the operating system closes its ends."""
        self._engine = None
        for line in self._lines:
            line.far.shut()

    async def _serve(self, engine: Engine, line: Line) -> None:
        with self._lines[line]:
            await engine.executors.serve(ListeningConnection(line, self._heard))
        del self._lines[line]


class ListeningConnection(StreamConnection):
    """The engine's end of a connection. An accepted sign of life counts from when it was received."""

    def __init__(self, line: Line, heard: Heard) -> None:
        super().__init__(line.far)
        self._heard = heard
        self._start = ""
        self._attached_at = 0.0
        self._beats: dict[float, float] = {}  # when each one was received, by when it was sent

    async def receive(self) -> bytes:
        frame = await super().receive()
        if frame.startswith((b'{"type":"attach"', b'{"type":"beat"')):
            try:
                message = _received.decode(frame)
            except msgspec.DecodeError:  # a hostile executor
                return frame
            self._start = message.start
            if isinstance(message, Beat):
                self._beats[message.sent] = trio.current_time()
            else:
                self._attached_at = trio.current_time()
        return frame

    async def send(self, frame: bytes) -> None:
        if frame.startswith((b'{"type":"attached"', b'{"type":"beaten"')):
            answer = _sent.decode(frame)
            if isinstance(answer, Attached):
                self._heard(self._start, self._attached_at)
            elif answer.attached and answer.sent in self._beats:
                self._heard(self._start, self._beats.pop(answer.sent))
        await super().send(frame)
