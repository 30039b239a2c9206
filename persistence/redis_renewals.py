"""Renewals of a lease in Redis by a thread (`persistence/leasethread.py`).

Each call executes in an event loop of its own, in the calling thread. So it depends neither on the event loop
of the engine nor on a connection that is already open.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import trio

from ..protocol.errors import Unavailable
from .holders import Holder
from .leasekeeping import Failed, Renewed, Taken
from .redis_leases import RedisLeases

T = TypeVar("T")


class RedisRenewals:
    """Implements `leasethread.Renewing`, for the lease of this name, which the holder has acquired."""

    def __init__(self, leases: RedisLeases, name: str, holder: Holder, term: int, ttl: float) -> None:
        self._leases = leases
        self._name = name
        self._holder = holder
        self._term = term
        self._ttl = ttl
        self._lock = threading.Lock()
        self._current: tuple[trio.lowlevel.TrioToken, trio.CancelScope] | None = None

    def renew(self, sent: float) -> Renewed | Failed | Taken:
        """Renew the lease."""
        try:
            return trio.run(self._abortable, partial(self._renew, sent))
        except Exception as error:  # any error means that the lease was not renewed
            return Failed(str(error) or type(error).__name__)

    def release(self) -> str | None:
        """Release the lease; returns the reason if that failed. The lease then expires."""
        try:
            trio.run(self._abortable, partial(self._leases.release, self._name, self._holder, self._term))
        except Exception as error:
            return str(error) or type(error).__name__
        return None

    def abort(self) -> None:
        """Make the current call fail. Called from another thread."""
        with self._lock:
            if self._current is not None:
                token, scope = self._current
                token.run_sync_soon(scope.cancel)

    async def _renew(self, sent: float) -> Renewed | Taken:
        if await self._leases.renew(self._name, self._holder, self._term, self._ttl):
            return Renewed(sent)
        found = await self._leases.read(self._name)
        lease = f"the lease {self._name} in {self._leases.name}"
        if found is None or found.holder is None:
            return Taken(f"{lease} has expired, or Redis has lost its data")
        return Taken(f"another process ({found.holder}) has taken {lease}")

    async def _abortable(self, call: Callable[[], Awaitable[T]]) -> T:
        with trio.CancelScope() as scope:
            with self._lock:
                self._current = trio.lowlevel.current_trio_token(), scope
            try:
                return await call()
            finally:
                with self._lock:
                    self._current = None
        raise Unavailable(f"Redis is unavailable: {self._leases.name}: no response in time")
