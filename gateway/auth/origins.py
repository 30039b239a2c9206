"""Judging `Host` and `Origin`: pure functions over the text of the two headers.

A page anywhere on the web may send requests to a gateway on the reader's own machine. Its browser says so in
`Origin`. And a page may have its own name point to 127.0.0.1, so that requests to us look like its own; then
`Host` says that name. An address in numbers can't be made to point elsewhere, so it is always accepted.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether a host to listen on can be reached from this machine only."""
    name = host.lower()
    if name == "localhost":
        return True
    try:
        address = ip_address(name.strip("[]"))
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def is_known_host(host: str, allowed: frozenset[str]) -> bool:
    """Whether a `Host` header names this machine, as far as we know."""
    if host.lower() in allowed:
        return True
    name = _split(f"http://{host}")
    if name is None:
        return False
    if name[1] in allowed or name[1] == "localhost" or name[1].endswith(".localhost"):
        return True
    try:
        ip_address(name[1])
    except ValueError:
        return False
    return True


def names(origin: str, host: str, *, secure: bool) -> bool:
    """Whether an origin is of the host that a request names.

    Schemes don't count, nor do ports: a proxy that ends TLS changes the one, and one that passes on the name
    alone loses the other. Two exceptions. Under this machine's loopback names many programs serve pages, so a
    port that the request names must be that of the page. And where we end TLS ourselves (`secure`), a page
    without it is refused: it may have been changed on its way.
    """
    page, ours = _split(origin), _split(f"http://{host}")
    schemes = ("https",) if secure else ("http", "https")
    if page is None or ours is None or page[0] not in schemes or page[1] != ours[1]:
        return False
    return ours[2] is None or not is_loopback(ours[1]) or ours[2] == (page[2] or _DEFAULT_PORTS[page[0]])


_DEFAULT_PORTS = {"http": 80, "https": 443}


def _split(origin: str) -> tuple[str, str, int | None] | None:
    """Scheme, name, and the port if it is named, if the text is nothing more than an origin."""
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        return None
    if not parts.hostname or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        return None
    return parts.scheme, parts.hostname.lower(), port
