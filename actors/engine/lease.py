"""The engine's reaction to changes of its lease on the store: bodies execute only under the lease.

When the lease could not be renewed, the engine cancels each executing body before the lease expires. It does
so in the turn in which it receives the notice, not through the run's actor, which may be waiting for the
unreachable store. A body that is about to start waits until the lease is renewed. When another engine has
taken the lease, this engine stops.

`run/restore.py` decides what happens to the runs: the same as after a crash of their process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import trio

from ...persistence.failures import StoreBroken
from ...persistence.store import Store, StoreLease
from ..run.execution import LiveBodies

logger = logging.getLogger("greenroom")


class Leasing:
    """Implements `store.LeaseWatch`. If `exits`, the process ends when the lease has expired and a body still
    executes. `fail` stops the engine."""

    def __init__(
        self, store: Store, live_bodies: LiveBodies, exits: bool, fail: Callable[[Exception], None]
    ) -> None:
        self.exits = exits
        # A custom store may have no lease.
        self._lease: StoreLease | None = getattr(store, "lease", None)
        self._live_bodies = live_bodies
        self._fail = fail
        self._renewed = trio.Event()
        self._lapsed = trio.Event()
        if self._lease is not None:
            self._lease.watch(self)
            live_bodies.may_begin = self._may_begin

    def is_good(self) -> bool:
        """Whether bodies can execute now."""
        return self._lease is None or self._lease.is_good()

    async def lapsed(self) -> None:
        """Wait until the lease could not be renewed in time."""
        await self._lapsed.wait()

    @property
    def needs_task(self) -> bool:
        """Whether there is a lease to keep."""
        return self._lease is not None

    @trio.lowlevel.enable_ki_protection
    async def keep(self) -> None:
        """Renew the lease, if no thread does."""
        if self._lease is not None:
            await self._lease.keep()

    def lease_lapses(self, why: str) -> None:
        self._lapsed.set()
        logger.error(
            "the lease on the store is about to expire, because it could not be renewed (%s): bodies are "
            "cancelled, and none starts until it is renewed",
            why or "no response in time",
        )
        for execution in self._live_bodies.begun():
            execution.lapse("the engine lost its lease on the store")

    def lease_over(self, executing: Sequence[str]) -> None:
        if executing:
            logger.error(
                "the lease on the store has expired, and the bodies of these runs still execute: %s; another "
                "engine may start them, too",
                ", ".join(executing),
            )

    def lease_renewed(self) -> None:
        logger.warning("the lease on the store is renewed: bodies can start")
        renewed, self._renewed, self._lapsed = self._renewed, trio.Event(), trio.Event()
        renewed.set()

    def lease_lost(self, why: str) -> None:
        self._fail(StoreBroken(f"{why}: this engine stops"))

    def executing(self) -> Sequence[str]:
        return [execution.id for execution in self._live_bodies.begun()]

    async def _may_begin(self) -> None:
        assert self._lease is not None, "only a lease makes a body wait"
        while not self._lease.is_good():
            await self._renewed.wait()
