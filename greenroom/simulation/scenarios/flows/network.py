"""A simulated HTTP network between engines and push workers: URLs and their listeners."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import unquote

import trio

from ....actors.workers.push import PushFailed

Listener = Callable[[str, bytes, dict[str, str]], Awaitable[tuple[int, bytes]]]
"""Receives a service's name, a body and headers, and returns a status and a body."""


class Network:
    """See the module's docstring. An engine uses it as its `Push`."""

    def __init__(self) -> None:
        self._listening: dict[str, Listener] = {}

    def listen(self, url: str, listener: Listener) -> None:
        """Register a listener at a URL."""
        self._listening[url] = listener

    def leave(self, url: str) -> None:
        """Remove the listener at a URL."""
        self._listening.pop(url, None)

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """See `Push`."""
        await trio.lowlevel.checkpoint()
        base, _, service = url.rpartition("/exec/")
        listener = self._listening.get(base)
        if listener is None:
            raise PushFailed("unreachable", f"connection refused: no worker listens at {base}")
        return await listener(unquote(service), body, headers)
