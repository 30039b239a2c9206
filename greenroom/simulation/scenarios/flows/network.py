"""What stands in for HTTP between engines and push workers: URLs, and who listens under them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import unquote

import trio

from ....actors.workers.push import PushFailed

Listener = Callable[[str, bytes, dict[str, str]], Awaitable[tuple[int, bytes]]]
"""Takes a service's name, a body and headers, and answers with a status and a body."""


class Network:
    """See the module's text. To an engine it is a `Push`."""

    def __init__(self) -> None:
        self._listening: dict[str, Listener] = {}

    def listen(self, url: str, listener: Listener) -> None:
        """Somebody listens under a URL."""
        self._listening[url] = listener

    def leave(self, url: str) -> None:
        """Nobody does any more."""
        self._listening.pop(url, None)

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """See `Push`."""
        await trio.lowlevel.checkpoint()
        base, _, service = url.rpartition("/exec/")
        listener = self._listening.get(base)
        if listener is None:
            raise PushFailed("unreachable", f"nobody listens at {base}")
        return await listener(unquote(service), body, headers)
