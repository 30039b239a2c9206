"""Where a worker listens: at the host and the port of its URL; if the port is taken, at another one."""

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
    """Listen where a worker's URL says. Returns the listeners, and the URL with the port that it really is.

    Raises `Invalid` for a URL that no worker can have, and `OSError` where nothing can listen there.
    """
    what = "the worker's URL"
    if check_url(what, url) != "http":
        raise Invalid(f"{what} must begin with http://, not {url!r}: workers speak no TLS", value=url)
    parts = urlsplit(url)
    if parts.path not in ("", "/"):
        raise Invalid(f"{what} must be a host and a port, as in {DEFAULT_URL}, not {url!r}", value=url)
    host = parts.hostname or ""
    port = _DEFAULT_PORT if parts.port is None else parts.port
    try:
        listeners = await trio.open_tcp_listeners(port, host=host)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise OSError(error.errno, f"nothing can listen at {url}, the worker's URL: {error}") from error
        logger.warning("port %d is taken: another one is used", port)
        port, listeners = 0, await trio.open_tcp_listeners(0, host=host)
    if port == 0:  # each address of the host has got a port of its own, and only one can be told
        for other in listeners[1:]:
            await other.aclose()
        listeners = listeners[:1]
    port = listeners[0].socket.getsockname()[1]
    return listeners, f"http://{f'[{host}]' if ':' in host else host}:{port}"
