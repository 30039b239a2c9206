"""The links of child processes, in the engine's registry of executors."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from .connection import Connection
from .link import serve
from .registry import Registry


class ChildLinks:
    """Implements `children.Links`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    @trio.lowlevel.enable_ki_protection
    async def serve(self, connection: Connection) -> None:
        """Serve a child until its connection ends, or the engine gives up on it."""
        await serve(self._registry, connection, name="child process", child=True)

    def died(self, executor: str, how: str) -> Sequence[str]:
        """The process of this executor has ended. Returns the runs of which it executed a body."""
        peer = self._registry.peers.get(executor)
        runs = [] if peer is None else list(peer.bodies)
        self._registry.child_died(executor, how)
        return runs
