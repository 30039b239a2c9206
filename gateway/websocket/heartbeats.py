"""When to look after which connection: one timer for all of them, in the order of their turns."""

from __future__ import annotations

from typing import Protocol

import trio


class Beating(Protocol):
    """A connection that wants to be looked after."""

    def beat(self, now: float) -> float:
        """Look after yourself; returns in how many seconds again."""


class Heartbeats:
    """Calls `beat` of each. `run` it in a task of its own."""

    def __init__(self) -> None:
        self._turns: dict[Beating, float] = {}
        self._come = trio.Event()

    def add(self, connection: Beating, after: float) -> None:
        """Call it from `after` seconds from now on."""
        self._turns[connection] = trio.current_time() + after
        self._come.set()

    def remove(self, connection: Beating) -> None:
        """Call it no longer."""
        self._turns.pop(connection, None)

    async def run(self) -> None:
        """Look after them until cancelled."""
        while True:
            while self._turns:
                connection, due = next(iter(self._turns.items()))
                await trio.sleep_until(due)
                if self._turns.pop(connection, None) is not None:
                    now = trio.current_time()
                    self._turns[connection] = now + connection.beat(now)
            self._come = trio.Event()
            await self._come.wait()
