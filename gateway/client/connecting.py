"""`connect`: where a client begins and ends."""

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
    """A client of the gateway at `url` (`ws://host:port` or `wss://`; `http` and `https` mean the same), for
    as long as the block lasts.

    The block begins when the client is connected and knows the state; what prevents that is raised
    (`Unavailable`, `Unauthorized`, …). A connection that is lost later is made again. Meanwhile commands
    wait, for `patience` seconds at most.

    `follow=False` leaves the events out, for programs that only give commands: there is no `state` then, and
    no `events()`. `filter` limits what is followed to some handles, lanes or runs. `ca_file` names the
    certificates to trust, where they are not those of the system. `open_stream` is called for each connection
    in place of connecting to the host, and `random` draws pauses and request ids.
    """
    parts = _parse(url)
    patience = check_seconds("patience", patience, 30)
    if token is not None and not (token.isascii() and token.isprintable() and token.strip()):
        raise Invalid("token: it must be printable ASCII, and not empty")
    link = Link(
        parts,
        token,
        open_stream or _opener(parts, ca_file),
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
                raise Unavailable(f"{url} has not told its state within {patience:g} seconds")
            yield Client(link, nursery)
        finally:
            link.left = True
            link.close(lambda: Unavailable("the client has been left"))


def _parse(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        good = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError as error:
        raise Invalid(f"url {url!r} can't be read: {error}", value=url) from None
    if parts.scheme not in _SCHEMES or not good or parts.fragment:
        raise Invalid(f"url must be like ws://127.0.0.1:8440 or wss://example.org, not {url!r}", value=url)
    if "@" in parts.netloc:
        raise Invalid("url: give a token as `token`, not in the URL, which ends up in logs")
    return parts._replace(scheme=_SCHEMES[parts.scheme])


def _filter(filter: Filter | Mapping[str, Any] | None) -> Filter | None:
    filter = converted(filter)
    if filter is not None and filter.types is not None:
        raise Invalid(
            "filter: without all types there would be no state to keep; give them to events() instead"
        )
    return filter


def _opener(parts: SplitResult, ca_file: str | None) -> OpenStream:
    """Connects to the host that the URL names."""
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    context = None
    if parts.scheme == "wss":
        try:
            context = ssl.create_default_context(cafile=ca_file)
        except (OSError, ssl.SSLError) as error:
            raise Invalid(f"ca_file {ca_file!r} can't be used: {error}", value=ca_file) from None

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
