"""Support of the tests of executors' connections: an engine that serves them as a test requires."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from greenroom.actors.executors.connection import Connection
from greenroom.errors import NotFound
from greenroom.protocol.records import ExecutorInfo

Serve = Callable[[Connection, str], Awaitable[None]]


class ScriptedExecutors:
    """In place of `engine.executors`: `script` serves each connection."""

    def __init__(self, script: Serve) -> None:
        self._script = script
        self.listed: list[ExecutorInfo] = []
        self.drained: list[tuple[str, str]] = []

    async def serve(self, connection: Connection, *, name: str) -> None:
        await self._script(connection, name)

    async def list(self) -> Sequence[ExecutorInfo]:
        return self.listed

    async def drain(self, id: str, *, by: str = "app") -> None:
        if id not in [executor.id for executor in self.listed]:
            raise NotFound(f"executor {id!r} not found", value=id)
        self.drained.append((id, by))


async def echo(connection: Connection, name: str) -> None:
    """Return each frame with the name of the caller, until the connection ends."""
    while True:
        await connection.send(name.encode() + b" " + await connection.receive())


def script(engine: Any, serve: Serve = echo) -> ScriptedExecutors:
    """Serve the executors of an engine by a script."""
    engine.executors = ScriptedExecutors(serve)
    return engine.executors
