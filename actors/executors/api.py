"""`Executors`: the executors of an engine, for the gateway and for embedding programs."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from ...protocol.names import check_name
from ...protocol.records import ExecutorInfo
from ...protocol.validation import check_text
from .connection import Connection
from .link import serve
from .registry import Registry


class Executors:
    """See the module's docstring."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    @property
    def lost(self) -> int:
        """How many executors were lost since the engine's start."""
        return self._registry.lost

    @property
    def blocked(self) -> tuple[int, float]:
        """How often bodies have blocked the event loops of executors, and for how many seconds in total."""
        return self._registry.blocked, self._registry.blocked_seconds

    @property
    def ttl(self) -> float:
        """Seconds without a heartbeat after which an executor is lost."""
        return self._registry.ttl

    async def list(self) -> Sequence[ExecutorInfo]:
        """The executors, and how many bodies they have."""
        await trio.lowlevel.checkpoint()
        return self._registry.list()

    async def drain(self, executor: str, *, by: str = "app") -> None:
        """Have an executor finish its bodies, accept no others, and exit. Raises `NotFound`, or
        `Conflict` if it has not attached since the engine's restart."""
        check_text("executor", executor)
        self._registry.drain(executor, by=check_name("by", by))
        await trio.lowlevel.checkpoint()

    def ended(self, executor: str, how: str) -> None:
        """The process of an executor has ended, and its bodies with it; for a node of a cluster, which has
        started the process. `how`, as in "was killed by SIGSEGV", is for the errors of its runs."""
        self._registry.process_ended(executor, how)

    async def serve(self, connection: Connection, *, name: str = "executor") -> None:
        """Serve an executor, or its heartbeats, until the connection ends; then close the connection. `name`
        is that of its token, for the log."""
        await serve(self._registry, connection, name=name)
