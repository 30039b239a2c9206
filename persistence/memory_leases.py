"""Leases in memory, for the processes of a test or a simulation."""

from __future__ import annotations

import trio
from msgspec.structs import replace

from .holders import Holder
from .lease import Clock, Lease
from .leases import Verdict, judge


class MemoryLeases:
    """Implements `leases.SharedLeases`. `clock` returns seconds; all processes share this object."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._leases: dict[str, Lease] = {}  # `left` is when it expires

    async def acquire(
        self, name: str, holder: Holder, ttl: float, *, address: str | None = None, above: int = 0
    ) -> int | None:
        await trio.lowlevel.checkpoint()
        lease = self._look(name)
        verdict = judge(lease, holder, above)
        if verdict is Verdict.BLOCKED:
            self._leases[name] = Lease(None, above, None, self._clock() + ttl)
        if verdict is not Verdict.GRANTED:
            return None
        self._leases[name] = Lease(holder, lease.term + 1, address, self._clock() + ttl)
        return lease.term + 1

    async def renew(self, name: str, holder: Holder, term: int, ttl: float) -> bool:
        await trio.lowlevel.checkpoint()
        if not self._is_held(name, holder, term):
            return False
        self._leases[name] = replace(self._leases[name], left=self._clock() + ttl)
        return True

    async def release(self, name: str, holder: Holder, term: int) -> None:
        await trio.lowlevel.checkpoint()
        if self._is_held(name, holder, term):
            self._leases[name] = Lease(None, term, None, self._clock())

    async def read(self, name: str) -> Lease | None:
        await trio.lowlevel.checkpoint()
        lease = self._look(name)
        return lease if lease.left > 0 else None

    def forget(self) -> None:
        """Lose all leases and terms, as Redis does when it is flushed."""
        self._leases.clear()

    def _look(self, name: str) -> Lease:
        lease = self._leases.get(name)
        return Lease(None, 0, None, 0) if lease is None else replace(lease, left=lease.left - self._clock())

    def _is_held(self, name: str, holder: Holder, term: int) -> bool:
        lease = self._look(name)
        return lease.is_held and (lease.holder, lease.term) == (holder, term)
