"""The calls of a worker: what it is asked, what it answers, and how many it executes at once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import trio
from msgspec.structs import replace

from ..actors.run.failures import error_text
from ..protocol.codec import JSON
from ..protocol.errors import GreenroomError
from ..protocol.values import json_value
from .services import Service

logger = logging.getLogger("greenroom.worker")

MAX_BYTES = 16 << 20
"""The largest input, with its parameters, and the largest result."""


class Asked(msgspec.Struct, frozen=True):
    """What a service is asked, as a server writes it: as the body of a push, or into an item of the queue."""

    input: Any = None
    params: dict[str, Any] | None = None
    key: str = ""
    """What is the same when this is asked again; it doesn't come in the text itself."""


class Outcome(msgspec.Struct, frozen=True):
    """What a call answers; an empty `error` means that it went well."""

    result: Any = None
    error: str = ""


def asked(data: bytes | str, key: str) -> Asked:
    """What a JSON text asks. Raises `Invalid`."""
    return replace(JSON.decode(data, Asked), key=key)


class Calls:
    """The calls in progress."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._threads = trio.CapacityLimiter(limit)
        self._begun: dict[object, str] = {}
        self._ended = trio.Event()

    @property
    def load(self) -> int:
        """How many there are."""
        return len(self._begun)

    @property
    def full(self) -> bool:
        """Whether there is no room for another."""
        return self.load >= self._limit

    @property
    def limit(self) -> int:
        """How many there can be."""
        return self._limit

    @property
    def services(self) -> list[str]:
        """The service of each."""
        return list(self._begun.values())

    async def room(self) -> None:
        """Wait until there is room for another."""
        while self.full:
            await self._ended.wait()

    @contextmanager
    def one(self, service: str) -> Iterator[None]:
        """Counts as a call of this service while the block lasts."""
        key = object()
        self._begun[key] = service
        try:
            yield
        finally:
            del self._begun[key]
            self._ended.set()
            self._ended = trio.Event()

    async def execute(self, service: Service, what: Asked) -> Outcome:
        """Call the service. Whatever it raises becomes the outcome's error.

        A cancelled `async def` ends; a plain `def` can't be ended, so its call goes on counting until it has
        ended by itself.
        """
        arguments = (what.input, what.params or {}, what.key)[: service.takes]
        try:
            if service.in_thread:
                result = await trio.to_thread.run_sync(service.function, *arguments, limiter=self._threads)
            else:
                result = await service.function(*arguments)
        except Exception as error:
            logger.error("service %r failed: %s", service.name, error_text(error), exc_info=error)
            return Outcome(error=error_text(error))
        except BaseExceptionGroup as group:  # cancelled, and something else failed on the way out
            cancelled, failed = group.split(trio.Cancelled)
            if cancelled is None or not isinstance(failed, Exception | None):
                raise
            logger.error("service %r failed when it was cancelled", service.name, exc_info=failed)
            raise cancelled from None
        try:
            return Outcome(result=json_value(result, "result", MAX_BYTES))
        except GreenroomError as error:
            logger.error("service %r has no result that can be sent: %s", service.name, error.message)
            return Outcome(error=f"service {service.name!r} has no result that can be sent: {error.message}")
