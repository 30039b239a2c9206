"""Heartbeats of all connections: one task calls each connection when it is due."""

from __future__ import annotations

from typing import Protocol

import trio


class Beating(Protocol):
    """A connection with a heartbeat."""

    def beat(self, now: float) -> float:
        """Check the connection; returns the number of seconds until the next call."""


class Heartbeats:
    """Calls `beat` of each connection. `run` needs its own task."""

    def __init__(self) -> None:
        self._turns: dict[Beating, float] = {}
        self._added = trio.Event()

    def add(self, connection: Beating, after: float) -> None:
        """Call the connection's `beat`, first after `after` seconds."""
        self._turns[connection] = trio.current_time() + after
        self._added.set()

    def remove(self, connection: Beating) -> None:
        """Stop calling the connection's `beat`."""
        self._turns.pop(connection, None)

    async def run(self) -> None:
        """Call `beat` of each connection when due, until cancelled."""
        while True:
            while self._turns:
                connection, due = next(iter(self._turns.items()))
                await trio.sleep_until(due)
                if self._turns.pop(connection, None) is not None:
                    now = trio.current_time()
                    self._turns[connection] = now + connection.beat(now)
            self._added = trio.Event()
            await self._added.wait()
