"""Opening connections to workers: a name is resolved, its addresses are checked, and only addresses that
passed are connected to. So what was checked is what is called, however often a name changes its addresses;
TLS and the `Host` header still use the name.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence

import httpcore
import trio

from .networks import Networks

_STAGGER = 0.25
"""Seconds after which the next address is tried, too, as RFC 8305 recommends."""


class CheckedNetwork(httpcore.AsyncNetworkBackend):
    """What httpcore opens connections with. Raises its errors."""

    def __init__(self, networks: Networks) -> None:
        self._networks = networks
        self._backend = httpcore.TrioBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """A connection to one of the host's addresses that may be called."""
        with trio.move_on_after(timeout if timeout is not None else float("inf")):
            return await self._first(self._checked(await _addresses(host, port)), port)
        raise httpcore.ConnectTimeout(f"no connection within {timeout:g} s")

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Workers have none."""
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        """For httpcore, which sleeps between tries if it is told to make several."""
        await trio.sleep(seconds)

    def _checked(self, addresses: Sequence[str]) -> list[str]:
        refusals = {address: self._networks.refusal(address) for address in addresses}
        allowed = [address for address, refusal in refusals.items() if refusal is None]
        if not allowed:
            raise httpcore.ConnectError("; ".join(filter(None, refusals.values())))
        return allowed

    async def _first(self, addresses: Sequence[str], port: int) -> httpcore.AsyncNetworkStream:
        """The first connection that is there; the others are closed."""
        made: list[httpcore.AsyncNetworkStream] = []
        failures: list[Exception] = []

        async def attempt(address: str, failed: trio.Event) -> None:
            try:
                made.append(await self._backend.connect_tcp(address, port))
                nursery.cancel_scope.cancel()
            except (httpcore.ConnectError, OSError) as error:
                failures.append(error)
                failed.set()

        wanted: httpcore.AsyncNetworkStream | None = None
        try:
            async with trio.open_nursery() as nursery:
                for address in addresses:
                    failed = trio.Event()
                    nursery.start_soon(attempt, address, failed)
                    with trio.move_on_after(_STAGGER):
                        await failed.wait()
            if not made:
                raise failures[-1]
            wanted = made[0]
            return wanted
        finally:  # cancelled, or two were there at the same time
            with trio.CancelScope(shield=True):
                for stream in made:
                    if stream is not wanted:
                        await stream.aclose()


async def _addresses(host: str, port: int) -> list[str]:
    """The addresses of a host, each once, in the order in which the system prefers them."""
    try:
        found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(f"{host!r} can't be resolved: {error}") from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
