"""Which addresses the engine connects to when it calls a worker.

Whoever may register a worker chooses a URL, and the engine sends requests there from inside the operator's
network. So there is an allow list of networks, and some addresses are refused whatever it says: link-local
ones, among them the metadata services of clouds, and those that name no single host. An IPv6 address that
carries an IPv4 address is judged by both. Pure functions over addresses; names are resolved in `dialing`.
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
"""The networks in which workers are called unless the operator lists others."""

_REFUSED: dict[Network, str] = {
    ip_network(network): kind
    for kind, networks in {
        "a link-local address": ("169.254.0.0/16", "fe80::/10"),
        "an address of a cloud's metadata service": (
            "100.100.100.200/32",
            "168.63.129.16/32",
            "192.0.0.192/32",
            "fd00:ec2::/32",  # AWS, which hands out credentials under more than one of these
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

_NAT64 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"), IPv6Network("::ffff:0:0:0/96"))
"""Networks whose addresses end in the IPv4 address that they are translated to."""
_COMPATIBLE = IPv6Network("::/96")


class Networks:
    """The networks in which workers may be called."""

    def __init__(self, networks: Iterable[str] = LOOPBACK) -> None:
        if isinstance(networks, str):
            raise Invalid(f'worker_networks must be a list of networks, as in ["{networks}"]', value=networks)
        self._allowed = tuple(_network(text) for text in networks)

    def refusal(self, address: str) -> str | None:
        """Why this IP address is not called; `None` if it may be."""
        try:
            found = ip_address(address)
        except ValueError:
            return f"{shown(address)} is not an IP address"
        never = _never(found)
        if never is not None or any(_plain(found) in network for network in self._allowed):
            return never
        return (
            f"{address} is in none of the worker_networks ({self}): "
            "add its network to that setting if workers may be called there"
        )

    def __str__(self) -> str:
        return ", ".join(map(str, self._allowed)) or "there are none"


def refusal_of_url(url: str, networks: Networks | None = None) -> str | None:
    """Why a URL is not called whose host is an IP address; `None` if it may be, or if its host is a name,
    which is resolved at each call. Without `networks`, only what is refused always counts."""
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


def _network(text: object) -> Network:
    try:
        if not isinstance(text, str):
            raise ValueError
        network = ip_network(text)
    except ValueError:
        raise Invalid(
            f"worker_networks: {shown(text)} is not a network: write it like 10.0.0.0/8 or fd00::/8",
            value=str(text),
        ) from None
    for refused, kind in _REFUSED.items():
        if network.version == refused.version and network.subnet_of(refused):  # type: ignore[arg-type]
            raise Invalid(f"worker_networks: {text} is {kind}, which is never called", value=str(text))
    return network


def _plain(address: Address) -> Address:
    """An IPv4 address that is written as an IPv6 one, as it is."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _carried(address: Address) -> Iterator[Address]:
    """The address, and every IPv4 address to which a packet for it may go in the end."""
    yield address
    if isinstance(address, IPv4Address):
        return
    last = IPv4Address(int(address) & 0xFFFFFFFF)
    if any(address in network for network in _NAT64) or (address in _COMPATIBLE and int(address) > 1):
        yield last
    for inner in (address.ipv4_mapped, address.sixtofour, *(address.teredo or ())):
        if inner is not None:
            yield inner
