"""How long a node waits for a frame of another one.

A large frame on a slow link can take longer than a node may be silent. So each received byte shows that the
other node is alive, not only a complete frame.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import trio

from ...actors.executors.connection import Connection


@runtime_checkable
class TimedConnection(Protocol):
    """A connection that can have a part of a frame. `received_at` is the time of its last data."""

    @property
    def received_at(self) -> float: ...


async def receive_within(seconds: float, connection: Connection) -> bytes | None:
    """Receive a frame. Returns `None` after this many seconds without data; raises as `receive` does."""
    deadline = trio.current_time() + seconds
    while True:
        with trio.move_on_at(deadline):
            return await connection.receive()
        if not isinstance(connection, TimedConnection):
            return None
        deadline = connection.received_at + seconds
        if deadline <= trio.current_time():
            return None
