"""Who works on a webhook: its delivery, or a caller that redelivers or drops it; never both.

So a delivery in flight cannot record a result for a webhook that was dropped meanwhile, and an attempt that
began before a redelivery cannot postpone it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


class _InFlight:
    def __init__(self) -> None:
        self.attempt = trio.CancelScope()
        self.ended = trio.Event()


class Holds:
    """See the module's docstring."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        """The ids of webhooks that callers change; no delivery of them starts."""
        self.released = 0
        """How many holds have ended: what was read of webhooks before may be out of date."""
        self._in_flight: dict[str, _InFlight] = {}

    def begin(self, id: str) -> bool:
        """Begin a delivery, unless a caller changes the webhook."""
        if id in self.held:
            return False
        self._in_flight[id] = _InFlight()
        return True

    def end(self, id: str) -> None:
        """A delivery has ended."""
        self._in_flight.pop(id).ended.set()

    def attempt(self, id: str) -> trio.CancelScope:
        """The scope of the request of the delivery in flight, which ends when a caller holds the webhook."""
        in_flight = self._in_flight[id]
        in_flight.attempt = trio.CancelScope()
        if id in self.held:
            in_flight.attempt.cancel()
        return in_flight.attempt

    @asynccontextmanager
    async def hold(self, id: str) -> AsyncIterator[None]:
        """Keep a webhook from being delivered: cancel its request in flight, and wait until what it has
        already reached is recorded."""
        self.held.add(id)
        try:
            in_flight = self._in_flight.get(id)
            if in_flight is not None:
                in_flight.attempt.cancel()
                await in_flight.ended.wait()
            yield
        finally:
            self.held.discard(id)
            self.released += 1
