"""A worker's listening sockets: at the host and port of its URL, or at another port if that is in use."""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from urllib.parse import urlsplit

import trio

from ..protocol.errors import Invalid
from .registry import check_url

logger = logging.getLogger("greenroom.worker")

DEFAULT_URL = "http://127.0.0.1:8080"
_DEFAULT_PORT = 8080


async def listen(url: str) -> tuple[Sequence[trio.SocketListener], str]:
    """Listen at a worker's URL. Returns the listeners, and the URL with the actual port.

    Raises `Invalid` for a URL that a worker cannot have, and `OSError` if listening fails.
    """
    what = "the worker's URL"
    if check_url(what, url) != "http":
        raise Invalid(f"{what} must begin with http:// (got {url!r}): workers do not support TLS", value=url)
    parts = urlsplit(url)
    if parts.path not in ("", "/"):
        raise Invalid(f"{what} must be a host and a port, as in {DEFAULT_URL} (got {url!r})", value=url)
    host = parts.hostname or ""
    port = _DEFAULT_PORT if parts.port is None else parts.port
    try:
        listeners = await trio.open_tcp_listeners(port, host=host)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise OSError(error.errno, f"cannot listen at the worker's URL {url}: {error}") from error
        logger.warning("port %d is already in use; using another port", port)
        port, listeners = 0, await trio.open_tcp_listeners(0, host=host)
    if port == 0:  # each address of the host has its own port, but the URL contains only one
        for other in listeners[1:]:
            await other.aclose()
        listeners = listeners[:1]
    port = listeners[0].socket.getsockname()[1]
    return listeners, f"http://{f'[{host}]' if ':' in host else host}:{port}"
