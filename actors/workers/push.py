"""`Push`, the interface for calling workers over HTTP, and its implementation over real connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .networks import Networks
from .states import FailureCode

if TYPE_CHECKING:
    from .connections import Connections


class PushFailed(Exception):
    """The call brought no usable response; `code` names the reason."""

    def __init__(self, code: FailureCode, message: str) -> None:
        super().__init__(message)
        self.code: FailureCode = code
        self.message = message


class Push(Protocol):
    """Calls workers. The caller limits the time by cancelling."""

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """Send JSON; return the status and the body of the response. Raises `PushFailed`."""


class HttpPush:
    """Calls workers and receivers of webhooks over real connections, only in the allowed networks. Opens
    nothing before the first call and closes everything in `aclose`. Without `reads_bodies`, the bodies of
    responses are ignored."""

    def __init__(self, networks: Networks | None = None, *, reads_bodies: bool = True) -> None:
        self._networks = networks or Networks()
        self._reads_bodies = reads_bodies
        self._connections: Connections | None = None

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """See `Push`."""
        if self._connections is None:
            from .connections import MAX_ANSWER, Connections  # without calls, the HTTP client is not loaded

            self._connections = Connections(self._networks, MAX_ANSWER if self._reads_bodies else None)
        return await self._connections.post(url, body, headers)

    async def aclose(self) -> None:
        """Close all connections, within a bounded time."""
        if self._connections is not None:
            connections, self._connections = self._connections, None
            await connections.aclose()
