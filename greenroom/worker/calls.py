"""The calls of a worker: requests, outcomes, and the limit of concurrent calls."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import msgspec
import trio
from msgspec.structs import replace

from ..actors import tracing
from ..actors.run.failures import error_text
from ..protocol.codec import JSON
from ..protocol.errors import GreenroomError
from ..protocol.tracecontext import TraceContext
from ..protocol.values import json_value
from .services import Service

logger = logging.getLogger("greenroom.worker")

MAX_BYTES = 16 << 20
"""The maximum size of an input with its parameters, and of a result."""


class ServiceRequest(msgspec.Struct, frozen=True):
    """A request to a service: the body of a push, or the input of a queue item."""

    input: Any = None
    params: dict[str, Any] | None = None
    key: str = ""
    """The idempotency key, which is equal for repeated requests; it is not a part of the JSON text."""
    trace: TraceContext | None = None
    """The trace of the flow, which is not a part of the JSON text either."""


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a call; an empty `error` means success."""

    result: Any = None
    error: str = ""


def parse_request(data: bytes | str, key: str) -> ServiceRequest:
    """Parse a request from JSON. Raises `Invalid`."""
    return replace(JSON.decode(data, ServiceRequest), key=key)


class Calls:
    """The calls in progress."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._threads = trio.CapacityLimiter(limit)
        self._in_progress: dict[object, str] = {}
        self._ended = trio.Event()

    @property
    def load(self) -> int:
        """The number of calls."""
        return len(self._in_progress)

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return self.load >= self._limit

    @property
    def limit(self) -> int:
        """The maximum number of concurrent calls."""
        return self._limit

    @property
    def services(self) -> list[str]:
        """The service of each call."""
        return list(self._in_progress.values())

    async def room(self) -> None:
        """Wait until there are fewer calls than the limit."""
        while self.full:
            await self._ended.wait()

    @contextmanager
    def counted(self, service: str) -> Iterator[None]:
        """Count a call of this service while the block lasts."""
        key = object()
        self._in_progress[key] = service
        try:
            yield
        finally:
            del self._in_progress[key]
            self._ended.set()
            self._ended = trio.Event()

    async def execute(
        self, service: Service, what: ServiceRequest, trace: TraceContext | None = None
    ) -> Outcome:
        """Call the service, in the trace of the flow. An exception becomes the outcome's error.

        An `async def` can be cancelled. A plain `def` cannot be: its call counts until it has ended.
        """
        arguments = (what.input, what.params or {}, what.key)[: service.takes]
        try:
            span = tracing.start_around_code(f"serve {service.name}", "server", trace, service=service.name)
            with span or nullcontext():
                if service.in_thread:
                    result = await trio.to_thread.run_sync(
                        service.function, *arguments, limiter=self._threads
                    )
                else:
                    result = await service.function(*arguments)
        except Exception as error:
            logger.error("service %r failed: %s", service.name, error_text(error), exc_info=error)
            return Outcome(error=error_text(error))
        except BaseExceptionGroup as group:  # cancelled, and another exception during the cancellation
            cancelled, failed = group.split(trio.Cancelled)
            if cancelled is None or not isinstance(failed, Exception | None):
                raise
            logger.error("service %r failed when it was cancelled", service.name, exc_info=failed)
            raise cancelled from None
        try:
            return Outcome(result=json_value(result, "result", MAX_BYTES))
        except GreenroomError as error:
            logger.error("the result of service %r cannot be sent: %s", service.name, error.message)
            return Outcome(error=f"the result of service {service.name!r} cannot be sent: {error.message}")
