"""Being known to the server: a worker registers, sends heartbeats with its load, and registers again where it
has been forgotten."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import trio

from ..protocol.errors import GreenroomError, NotFound, Unavailable
from ..protocol.flow.records import WorkerKind
from .calls import Calls
from .registry import Registry

logger = logging.getLogger("greenroom.worker")

HEARTBEAT = 5.0
"""Seconds between two heartbeats; a server takes whoever it has not heard for 15 to be offline."""


def delays(first: float = 0.5, longest: float = 15.0) -> Iterator[float]:
    """Seconds to wait before trying again, the longer the more often it was in vain."""
    delay = first
    while True:
        yield delay
        delay = min(2 * delay, longest)


class Presence:
    """One worker's. `url` is where the server reaches it; a worker that fetches its work has none."""

    def __init__(
        self, registry: Registry, calls: Calls, services: tuple[str, ...], kind: WorkerKind, url: str = ""
    ) -> None:
        self.registered = trio.Event()
        self._registry = registry
        self._calls = calls
        self._services = services
        self._kind: WorkerKind = kind
        self._url = url

    async def run(self) -> None:
        """Be present until cancelled. Raises what the server says if it doesn't want this worker at all."""
        await self._register()
        due = trio.current_time()
        while True:
            due = max(due + HEARTBEAT, trio.current_time())
            await trio.sleep_until(due)
            try:
                await self._registry.heartbeat(self._url, self._calls.load)
            except Unavailable:
                continue  # the registry has said so
            except NotFound:
                logger.warning("%s has forgotten worker %s", self._registry.url, self._registry.worker)
                await self._register()
            except GreenroomError as error:
                logger.error("a heartbeat was refused: %s", error.message)

    async def _register(self) -> None:
        for delay in delays():
            try:
                await self._registry.register(self._url, self._services, self._calls.load, self._kind)
            except Unavailable:
                await trio.sleep(delay)
            except NotFound as error:
                logger.warning("%s; trying again", error.message)
                await trio.sleep(delay)
            else:
                break
        logger.info("worker %s is registered at %s", self._registry.worker, self._registry.url)
        self.registered.set()
