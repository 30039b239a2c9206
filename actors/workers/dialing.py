"""Opens connections to workers: resolves the host, checks its addresses, and connects only to allowed ones.

The checked address is the one that is called, even if the host's addresses change between two calls. TLS and
the `Host` header still use the name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import httpcore
import trio

from .lookups import Lookups
from .networks import Networks

_STAGGER = 0.25
"""Seconds after which the next address is tried in parallel, as RFC 8305 recommends."""


class CheckedNetwork(httpcore.AsyncNetworkBackend):
    """The network backend for httpcore. Raises httpcore's errors."""

    def __init__(self, networks: Networks) -> None:
        self._networks = networks
        self._backend = httpcore.TrioBackend()
        self._lookups = Lookups()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to one of the host's allowed addresses."""
        with trio.move_on_after(timeout if timeout is not None else float("inf")):
            return await self._first(self._checked(await self._addresses(host, port)), port)
        raise httpcore.ConnectTimeout(f"connection timed out after {timeout:g} s")

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Workers have no Unix sockets."""
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        """Sleep between retries of httpcore."""
        await trio.sleep(seconds)

    async def _addresses(self, host: str, port: int) -> list[str]:
        try:
            return await self._lookups.addresses(host, port)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"{host!r} cannot be resolved: {error}") from error

    def _checked(self, addresses: Sequence[str]) -> list[str]:
        refusals = {address: self._networks.refusal(address) for address in addresses}
        allowed = [address for address, refusal in refusals.items() if refusal is None]
        if not allowed:
            raise httpcore.ConnectError("; ".join(filter(None, refusals.values())))
        return allowed

    async def _first(self, addresses: Sequence[str], port: int) -> httpcore.AsyncNetworkStream:
        """The first connection that succeeds; the others are closed."""
        made: list[httpcore.AsyncNetworkStream] = []
        failures: list[Exception] = []

        async def attempt(address: str, failed: trio.Event) -> None:
            try:
                made.append(await self._backend.connect_tcp(address, port))
                nursery.cancel_scope.cancel()
            except (httpcore.ConnectError, OSError) as error:
                failures.append(error)
                failed.set()

        chosen: httpcore.AsyncNetworkStream | None = None
        try:
            async with trio.open_nursery() as nursery:
                for address in addresses:
                    failed = trio.Event()
                    nursery.start_soon(attempt, address, failed)
                    with trio.move_on_after(_STAGGER):
                        await failed.wait()
            if not made:
                raise failures[-1]
            chosen = made[0]
            return chosen
        finally:  # cancelled, or two connections succeeded at the same time
            with trio.CancelScope(shield=True):
                for stream in made:
                    if stream is not chosen:
                        await stream.aclose()
