"""A connection of an executor to engines in the same process, in memory."""

from contextlib import asynccontextmanager

import trio

from greenroom import Engine
from greenroom.actors.executors.connection import Connection, connection_pair


class Cable:
    """Connects an executor to the engine of the moment, or to none."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._nursery: trio.Nursery | None = None

    @asynccontextmanager
    async def plugged(self, engine: Engine):
        async with trio.open_nursery() as nursery:
            self._engine, self._nursery = engine, nursery
            yield
            self._engine = self._nursery = None
            nursery.cancel_scope.cancel()

    async def __call__(self) -> Connection:
        if self._engine is None:
            await trio.lowlevel.checkpoint()
            raise OSError("engine unreachable")
        ours, theirs = connection_pair()
        self._nursery.start_soon(self._engine.executors.serve, ours)
        return theirs
