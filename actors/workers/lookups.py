"""Looks up the addresses of hosts in threads of its own, so that names whose name servers do not respond hold
up neither the threads of the application nor the lookups of other names.

A lookup in the system cannot be interrupted. When its caller gives up, its thread continues, and the name is
refused until it ends. Names whose last lookup succeeded, those whose last lookup hung, and all others have
separate threads.
"""

from __future__ import annotations

import socket
from functools import partial
from typing import Any

import trio

_MOST_KNOWN = 1000

_Found = list[tuple[Any, Any, Any, str, Any]]


class LookupHangs(OSError):
    """An earlier lookup of the name has not ended."""


class Lookups:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._succeeded: dict[str, bool] = {}  # by name; that of the latest lookup is the last one
        self._abandoned: dict[str, _Lookup] = {}
        self._limiters = {
            True: trio.CapacityLimiter(16),
            None: trio.CapacityLimiter(16),
            False: trio.CapacityLimiter(4),
        }

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host, without duplicates, in the system's order of preference. Raises
        `OSError` or `UnicodeError`. A cancelled caller does not wait."""
        find = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        if _has_custom_resolver():
            found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        else:
            try:
                found = find(flags=socket.AI_NUMERICHOST)  # an address needs no lookup
            except socket.gaierror:
                found = await self._look_up(host, _Lookup(find))
        return list(dict.fromkeys(str(address[0]) for *_, address in found))

    async def _look_up(self, host: str, lookup: _Lookup) -> _Found:
        self._abandoned = {name: each for name, each in self._abandoned.items() if not each.ended}
        if host in self._abandoned:
            raise LookupHangs(
                "an earlier lookup of this name has not ended: its name server does not respond"
            )
        limiter = self._limiters[self._succeeded.get(host)]
        try:
            found = await trio.to_thread.run_sync(lookup.run, abandon_on_cancel=True, limiter=limiter)
        except trio.Cancelled:
            if lookup.began and not lookup.ended:
                self._abandoned[host] = lookup
                self._remember(host, False)
            raise
        self._remember(host, True)
        return found

    def _remember(self, host: str, succeeded: bool) -> None:
        self._succeeded.pop(host, None)
        self._succeeded[host] = succeeded
        if len(self._succeeded) > _MOST_KNOWN:
            del self._succeeded[next(iter(self._succeeded))]


class _Lookup:
    """A lookup in a thread. The event loop only reads `began` and `ended`."""

    def __init__(self, find: partial[_Found]) -> None:
        self._find = find
        self.began = False
        self.ended = False

    def run(self) -> _Found:
        self.began = True
        try:
            return self._find()
        finally:
            self.ended = True


def _has_custom_resolver() -> bool:
    """Whether the application has replaced trio's lookups. Trio only tells when another one is set."""
    resolver = trio.socket.set_custom_hostname_resolver(None)
    trio.socket.set_custom_hostname_resolver(resolver)
    return resolver is not None
