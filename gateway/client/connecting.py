"""`connect`: opens and closes a client."""

from __future__ import annotations

import random as random_module
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

import trio

from ...protocol.errors import Invalid, Unavailable
from ...protocol.events import Filter
from ...protocol.validation import check_seconds
from ...protocol.values import shown
from ..background import background
from .addresses import Address, Addresses, OpenStream
from .client import Client
from .iterating import converted
from .link import Link

OpenStreamTo = Callable[[str], Awaitable[trio.abc.Stream]]

_SCHEMES = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}
_PORTS = {"ws": 80, "wss": 443}
_MOST_URLS = 100


@asynccontextmanager
async def connect(
    url: str | Sequence[str],
    *,
    token: str | None = None,
    ca_file: str | None = None,
    follow: bool = True,
    filter: Filter | Mapping[str, Any] | None = None,
    patience: float = 30.0,
    open_stream: OpenStream | OpenStreamTo | None = None,
    random: random_module.Random | None = None,
) -> AsyncIterator[Client]:
    """Connect to the gateway at `url` (`ws://host:port` or `wss://…`; `http` and `https` are equivalent).

    A list or tuple contains the addresses of several nodes of one cluster. The client begins with a random
    one. If an address is unreachable, or its connection is lost, the client tries the others at once.

    The block starts when the client is connected and has received the state. Errors before that are raised
    (`Unavailable`, `Unauthorized`, …); `Unavailable` only after every address has failed. If the connection
    is lost later, the client reconnects; commands wait for a connection, at most `patience` seconds.

    `follow=False` disables events, for programs that only send commands: then there is no `state` and no
    `events()`. `filter` limits the events to some handles, lanes or runs. `ca_file` contains the certificates
    to trust instead of the system's. `open_stream` is called for each connection instead of connecting to the
    host; with several addresses, its argument is the address. `random` generates pauses, request ids, and the
    order of the addresses.
    """
    addresses = _addresses(url, ca_file, open_stream)
    patience = check_seconds("patience", patience, 30)
    if token is not None and not (token.isascii() and token.isprintable() and token.strip()):
        raise Invalid("token must be printable ASCII and must not be empty")
    random = random or random_module.Random()
    link = Link(
        Addresses(addresses, patience=patience, random=random),
        token,
        follow=follow,
        filter=_filter(filter),
        patience=patience,
        random=random,
    )
    async with background() as nursery:
        nursery.start_soon(link.run)
        try:
            with trio.move_on_after(patience) as waiting:
                await link.ready()
            if waiting.cancelled_caught:
                raise Unavailable(_timed_out(url, link.addresses, patience))
            yield Client(link, nursery)
        finally:
            link.left = True
            link.close(lambda: Unavailable("the client is closed"))


def parse_url(url: str) -> SplitResult:
    """The parts of a gateway's URL, with the scheme `ws` or `wss`. Raises `Invalid`."""
    try:
        parts = urlsplit(url)
        good = bool(parts.hostname) and "," not in parts.netloc and (parts.port is None or parts.port > 0)
    except ValueError as error:
        raise Invalid(f"url is not valid: {error} (got {url!r})", value=url) from None
    if parts.scheme not in _SCHEMES or not good or parts.fragment:
        raise Invalid(f"url must be like ws://127.0.0.1:8440 or wss://example.org (got {url!r})", value=url)
    if "@" in parts.netloc:
        raise Invalid("url must not contain a token, because URLs appear in logs: use the argument `token`")
    return parts._replace(scheme=_SCHEMES[parts.scheme])


def _addresses(
    url: str | Sequence[str], ca_file: str | None, open_stream: OpenStream | OpenStreamTo | None
) -> list[Address]:
    """The address or addresses in `url`. Raises `Invalid`."""
    if isinstance(url, str):
        parts = parse_url(url)
        return [Address(parts, cast("OpenStream | None", open_stream) or opener(parts, ca_file))]
    everywhere = _parse_urls(url)
    if open_stream is not None:
        to = cast(OpenStreamTo, open_stream)
        return [Address(parts, partial(to, text)) for text, parts in everywhere.items()]
    one_of_each = {parts.scheme: parts for parts in everywhere.values()}
    contexts = {scheme: tls_context(parts, ca_file) for scheme, parts in one_of_each.items()}
    return [Address(parts, _opener(parts, contexts[parts.scheme])) for parts in everywhere.values()]


def _parse_urls(urls: Sequence[str]) -> dict[str, SplitResult]:
    """The parts of several URLs, which must be different. Raises `Invalid`."""
    if not isinstance(urls, list | tuple):
        raise Invalid(f"url must be a string, or a list of strings (got {shown(urls)})")
    if not 1 <= len(urls) <= _MOST_URLS:
        raise Invalid(f"url must contain 1 to {_MOST_URLS} addresses (got {len(urls)})")
    found: dict[str, SplitResult] = {}
    known: dict[tuple[object, ...], str] = {}
    for url in urls:
        if not isinstance(url, str):
            raise Invalid(f"each address in url must be a string (got {shown(url)})")
        parts = parse_url(url)
        target = (parts.scheme, parts.hostname, _port(parts), parts.path.rstrip("/"), parts.query)
        first = known.setdefault(target, url)
        if first in found:
            raise Invalid(f"url contains the same address twice: {first} and {url}; remove one")
        found[url] = parts
    return found


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
    """A function that connects to the URL's host. Raises `Invalid` for a bad file."""
    return _opener(parts, tls_context(parts, ca_file))


def _opener(parts: SplitResult, context: ssl.SSLContext | None) -> OpenStream:
    host, port = parts.hostname or "", _port(parts)

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


def _port(parts: SplitResult) -> int:
    return parts.port or _PORTS[parts.scheme]


def _timed_out(url: str | Sequence[str], addresses: Addresses, patience: float) -> str:
    """The message of a client that has not received the state within its patience."""
    if addresses.several:
        return f"timed out: no state received within {patience:g} seconds: {addresses.failures()}"
    return f"timed out: no state received from {url} within {patience:g} seconds"
