"""`connect`: opens and closes a client."""

from __future__ import annotations

import random as random_module
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import SplitResult, urlsplit

import trio

from ...protocol.errors import Invalid, Unavailable
from ...protocol.events import Filter
from ...protocol.validation import check_seconds
from ..background import background
from .client import Client
from .iterating import converted
from .link import Link, OpenStream

_SCHEMES = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}
_PORTS = {"ws": 80, "wss": 443}


@asynccontextmanager
async def connect(
    url: str,
    *,
    token: str | None = None,
    ca_file: str | None = None,
    follow: bool = True,
    filter: Filter | Mapping[str, Any] | None = None,
    patience: float = 30.0,
    open_stream: OpenStream | None = None,
    random: random_module.Random | None = None,
) -> AsyncIterator[Client]:
    """Connect to the gateway at `url` (`ws://host:port` or `wss://…`; `http` and `https` are equivalent).

    The block starts when the client is connected and has received the state. Errors before that are raised
    (`Unavailable`, `Unauthorized`, …). If the connection is lost later, the client reconnects; commands wait
    for a connection, at most `patience` seconds.

    `follow=False` disables events, for programs that only send commands: then there is no `state` and no
    `events()`. `filter` limits the events to some handles, lanes or runs. `ca_file` contains the certificates
    to trust instead of the system's. `open_stream` is called for each connection instead of connecting to the
    host. `random` generates pauses and request ids.
    """
    parts = parse_url(url)
    patience = check_seconds("patience", patience, 30)
    if token is not None and not (token.isascii() and token.isprintable() and token.strip()):
        raise Invalid("token must be printable ASCII and must not be empty")
    link = Link(
        parts,
        token,
        open_stream or opener(parts, ca_file),
        follow=follow,
        filter=_filter(filter),
        patience=patience,
        random=random or random_module.Random(),
    )
    async with background() as nursery:
        nursery.start_soon(link.run)
        try:
            with trio.move_on_after(patience) as waiting:
                await link.ready()
            if waiting.cancelled_caught:
                raise Unavailable(f"timed out: no state received from {url} within {patience:g} seconds")
            yield Client(link, nursery)
        finally:
            link.left = True
            link.close(lambda: Unavailable("the client is closed"))


def parse_url(url: str) -> SplitResult:
    """The parts of a gateway's URL, with the scheme `ws` or `wss`. Raises `Invalid`."""
    try:
        parts = urlsplit(url)
        good = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError as error:
        raise Invalid(f"url is not valid: {error} (got {url!r})", value=url) from None
    if parts.scheme not in _SCHEMES or not good or parts.fragment:
        raise Invalid(f"url must be like ws://127.0.0.1:8440 or wss://example.org (got {url!r})", value=url)
    if "@" in parts.netloc:
        raise Invalid("url must not contain a token, because URLs appear in logs: use the argument `token`")
    return parts._replace(scheme=_SCHEMES[parts.scheme])


def _filter(filter: Filter | Mapping[str, Any] | None) -> Filter | None:
    filter = converted(filter)
    if filter is not None and filter.types is not None:
        raise Invalid(
            "filter must not contain types, because the state needs all types: use them in events()"
        )
    return filter


def tls_context(parts: SplitResult, ca_file: str | None) -> ssl.SSLContext | None:
    """The certificates to trust; `None` for a URL without TLS. Raises `Invalid` for a bad file."""
    if parts.scheme != "wss":
        return None
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise Invalid(f"cannot load ca_file {ca_file!r}: {error}", value=ca_file) from None


def opener(parts: SplitResult, ca_file: str | None) -> OpenStream:
    """A function that connects to the URL's host."""
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    context = tls_context(parts, ca_file)

    async def open_stream() -> trio.abc.Stream:
        stream = await trio.open_tcp_stream(host, port)
        if context is None:
            return stream
        encrypted = trio.SSLStream(stream, context, server_hostname=host, https_compatible=True)
        try:
            await encrypted.do_handshake()
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        return encrypted

    return open_stream
