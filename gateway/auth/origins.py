"""Checks of `Host` and `Origin`: pure functions of the text of the two headers.

Any web page can send requests to a gateway on the user's own machine; the browser names the page in
`Origin`. With DNS rebinding, a page's host name resolves to 127.0.0.1, so that its requests to the gateway
look same-origin; then `Host` contains that name. A numeric address cannot be rebound, so it is accepted.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether a host is a loopback address or `localhost`."""
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
    """Whether a `Host` header contains an allowed name, `localhost` or a numeric address."""
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
    """Whether an origin has the host that the request names.

    Schemes and ports are ignored: a proxy that terminates TLS changes the scheme, and a proxy that forwards
    only the name loses the port. There are two exceptions. Many programs serve pages under loopback names, so
    a port in `Host` must be the port of the page. And if the gateway terminates TLS (`secure`), a page
    without TLS is refused: it could have been modified in transit.
    """
    page, ours = _split(origin), _split(f"http://{host}")
    schemes = ("https",) if secure else ("http", "https")
    if page is None or ours is None or page[0] not in schemes or page[1] != ours[1]:
        return False
    return ours[2] is None or not is_loopback(ours[1]) or ours[2] == (page[2] or _DEFAULT_PORTS[page[0]])


_DEFAULT_PORTS = {"http": 80, "https": 443}


def _split(origin: str) -> tuple[str, str, int | None] | None:
    """Scheme, name, and port (if present) of an origin; `None` if the text is not an origin."""
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        return None
    if not parts.hostname or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        return None
    return parts.scheme, parts.hostname.lower(), port
