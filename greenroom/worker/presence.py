"""Registration at the server: a worker registers, sends heartbeats with its load, and registers again if the
server has forgotten it."""

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
"""Seconds between two heartbeats; the server marks a worker as offline after 15 seconds without contact."""


def delays(first: float = 0.5, longest: float = 15.0) -> Iterator[float]:
    """Seconds to wait between attempts, doubled each time."""
    delay = first
    while True:
        yield delay
        delay = min(2 * delay, longest)


class Presence:
    """The registration of one worker. `url` is where the server calls it; a worker that polls has none."""

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
        """Stay registered until cancelled. Raises the server's error if it refuses this worker."""
        await self._register()
        due = trio.current_time()
        while True:
            due = max(due + HEARTBEAT, trio.current_time())
            await trio.sleep_until(due)
            try:
                await self._registry.heartbeat(self._url, self._calls.load)
            except Unavailable:
                continue  # logged by the registry
            except NotFound:
                logger.warning("%s has forgotten worker %s", self._registry.url, self._registry.worker)
                await self._register()
            except GreenroomError as error:
                logger.error("heartbeat refused: %s", error.message)

    async def _register(self) -> None:
        for delay in delays():
            try:
                await self._registry.register(self._url, self._services, self._calls.load, self._kind)
            except Unavailable:
                await trio.sleep(delay)
            except NotFound as error:
                logger.warning("%s; retrying", error.message)
                await trio.sleep(delay)
            else:
                break
        logger.info("worker %s is registered at %s", self._registry.worker, self._registry.url)
        self.registered.set()
