"""Which addresses the engine connects to when it calls a worker.

A worker that registers chooses a URL, and the engine sends requests to it from inside the operator's network.
Therefore only listed networks are allowed. Some addresses are refused even if they are listed: link-local
ones, metadata services of clouds, and addresses that do not name a single host. An IPv6 address that contains
an IPv4 address must pass for both. Receivers of webhooks are also called at public addresses. This module
contains pure functions; `dialing` resolves names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from ...protocol.errors import Invalid
from ...protocol.values import shown

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

LOOPBACK = ("127.0.0.0/8", "::1/128")
"""The networks in which workers are called unless the operator configures others."""

_REFUSED: dict[Network, str] = {
    ip_network(network): kind
    for kind, networks in {
        "a link-local address": ("169.254.0.0/16", "fe80::/10"),
        "an address of a cloud's metadata service": (
            "100.100.100.200/32",
            "168.63.129.16/32",
            "192.0.0.192/32",
            "fd00:ec2::/32",  # AWS provides credentials under several addresses in this network
            "fd00:c1::a9fe:a9fe/128",
            "fd00:42::42/128",
            "fd20:ce::254/128",
        ),
        "an unspecified address": ("0.0.0.0/8", "::/128"),
        "a multicast address": ("224.0.0.0/4", "ff00::/8"),
        "a reserved address": ("240.0.0.0/4",),
    }.items()
    for network in networks
}

_NAT64 = IPv6Network("64:ff9b::/96")
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
_TRANSLATED = (_NAT64, IPv6Network("::ffff:0:0:0/96"))
"""Networks whose addresses end with the IPv4 address that they are translated to."""
_COMPATIBLE = IPv6Network("::/96")
_MAPPED = IPv6Network("::ffff:0:0/96")

_UNICAST = IPv6Network("2000::/3")
"""The only IPv6 addresses that are assigned to hosts of the internet."""
_SPECIAL: tuple[Network, ...] = tuple(
    ip_network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24"),
        *("192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
        *("224.0.0.0/4", "240.0.0.0/4"),
        *("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"),
    )
)
"""The blocks of IANA's special-purpose registries that are not for public hosts."""


class Networks:
    """The networks in which workers, or receivers of webhooks, can be called. `setting` is the name of the
    setting that lists them. With `public`, all public addresses are also allowed."""

    def __init__(
        self, networks: Iterable[str] = LOOPBACK, *, setting: str = "worker_networks", public: bool = False
    ) -> None:
        if isinstance(networks, str):
            raise Invalid(f'{setting} must be a list of networks, as in ["{networks}"]', value=networks)
        self._allowed = tuple(_network(text, setting) for text in networks)
        self._setting = setting
        self._public = public

    def refusal(self, address: str) -> str | None:
        """Why this IP address is not called; `None` if it is allowed."""
        try:
            found = ip_address(address)
        except ValueError:
            return f"{shown(address)} is not an IP address"
        never = _never(found)
        if never is not None or any(_plain(found) in network for network in self._allowed):
            return never
        if self._public and _is_public(found):
            return None
        what = "not public, and in none" if self._public else "in none"
        return (
            f"{address} is {what} of the {self._setting} ({self}): "
            f"add its network to {self._setting} to allow calls to it"
        )

    def __str__(self) -> str:
        return ", ".join(map(str, self._allowed)) or "none are configured"


def refusal_of_url(url: str, networks: Networks | None = None) -> str | None:
    """Why this URL is not called; `None` if it is allowed, or if its host is a name (resolved at each call).
    Without `networks`, checks only for addresses that are always refused."""
    host = urlsplit(url).hostname or ""
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return _never(address) if networks is None else networks.refusal(host)


def _never(address: Address) -> str | None:
    for carried in _carried(address):
        for network, kind in _REFUSED.items():
            if carried in network:
                return f"{address} is {kind}, which is never called"
    return None


def _network(text: object, setting: str) -> Network:
    try:
        if not isinstance(text, str):
            raise ValueError
        network = ip_network(text)
    except ValueError:
        raise Invalid(
            f"{setting}: {shown(text)} is not a network: write it like 10.0.0.0/8 or fd00::/8",
            value=str(text),
        ) from None
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        plain = IPv4Network((int(network.network_address) & 0xFFFFFFFF, network.prefixlen - 96))
        raise Invalid(f"{setting}: {text} consists of IPv4 addresses: write it as {plain}", value=text)
    for refused, kind in _REFUSED.items():
        if network.version == refused.version and network.subnet_of(refused):  # type: ignore[arg-type]
            raise Invalid(f"{setting}: {text} is {kind}, which is never called", value=str(text))
    return network


def _is_public(address: Address) -> bool:
    """Whether the address is that of a host of the internet, also through NAT64."""
    plain = IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else _plain(address)
    if any(plain in network for network in _SPECIAL):
        return False
    return isinstance(plain, IPv4Address) or plain in _UNICAST


def _plain(address: Address) -> Address:
    """The IPv4 address of an IPv4-mapped IPv6 address; any other address unchanged."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _carried(address: Address) -> Iterator[Address]:
    """The address, and every IPv4 address to which a packet for it may be sent."""
    yield address
    if isinstance(address, IPv4Address):
        return
    last = IPv4Address(int(address) & 0xFFFFFFFF)
    if any(address in network for network in _TRANSLATED) or (address in _COMPATIBLE and int(address) > 1):
        yield last
    if address in _LOCAL_NAT64:
        yield from _embedded(address)
    for inner in (address.ipv4_mapped, address.sixtofour, *(address.teredo or ())):
        if inner is not None:
            yield inner


def _embedded(address: IPv6Address) -> Iterator[IPv4Address]:
    """The IPv4 addresses that follow NAT64 prefixes of 48, 56, 64 and 96 bits in this address (RFC 6052);
    bits 64 to 71 are not part of them. Zeros mean that the prefix has another length."""
    bits = f"{int(address):0128b}"
    for length in (48, 56, 64, 96):
        after = bits[length:64] + bits[max(length, 72) :]
        found = IPv4Address(int(after[:32], 2))
        if found not in _SPECIAL[0]:
            yield found
