"""How a worker is called over HTTP: `Push`, which a simulation replaces, and the one that really does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .networks import Networks
from .states import Failing

if TYPE_CHECKING:
    from .connections import Connections


class PushFailed(Exception):
    """There is no answer, or none of any use; `code` says why."""

    def __init__(self, code: Failing, message: str) -> None:
        super().__init__(message)
        self.code: Failing = code
        self.message = message


class Push(Protocol):
    """What calls workers. Whoever calls it limits the time, by cancelling."""

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """Send JSON, and return the status and the body of the answer. Raises `PushFailed`."""


class HttpPush:
    """Calls over real connections, which are there from the first call to `aclose`, and only to addresses in
    the networks that are allowed."""

    def __init__(self, networks: Networks | None = None) -> None:
        self._networks = networks or Networks()
        self._connections: Connections | None = None

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """See `Push`."""
        if self._connections is None:
            from .connections import Connections  # engines that call no workers do without the HTTP client

            self._connections = Connections(self._networks)
        return await self._connections.post(url, body, headers)

    async def aclose(self) -> None:
        """Close what is open. Bounded in time, whatever the other ends do."""
        if self._connections is not None:
            connections, self._connections = self._connections, None
            await connections.aclose()
