"""Addresses of Redis: parse and check URLs before anything connects to them.

| address | what it names |
|---|---|
| `redis://host:6379/0` | one server |
| `redis+cluster://host1:6379,host2:6379` | a Redis Cluster, by some of its nodes |
| `redis+sentinel://host1:26379,host2:26379/service/0` | the primary of a service, found by its Sentinels |

Each can have `user:password@` or `:password@` before the first host. With `rediss` instead of `redis`, all
connections use TLS, and each server must prove its name; `?ssl_ca=` is the file of its authority, and
`ssl_cert=` and `ssl_key=` are those of the client's certificate. Errors are `Invalid`, and never contain a
password.
"""

from __future__ import annotations

import os
import re
from typing import Literal
from urllib.parse import parse_qsl, quote, unquote

import attrs

from ..protocol.errors import Invalid

Kind = Literal["server", "cluster", "sentinel"]

_KINDS: dict[str, Kind] = {
    "redis": "server",
    "rediss": "server",
    "redis+cluster": "cluster",
    "rediss+cluster": "cluster",
    "redis+sentinel": "sentinel",
    "rediss+sentinel": "sentinel",
}
_FILES = ("ssl_ca", "ssl_cert", "ssl_key")
_PORT, _SENTINEL_PORT = 6379, 26379
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[^:\[\]/@\s]+))(?::(?P<port>[^:]*))?")


@attrs.frozen
class RedisAddress:
    """The address of Redis. Its `str` has no password and no parameters."""

    scheme: str
    hosts: tuple[tuple[str, int], ...]
    """Host and port of the server, of nodes of the cluster, or of the Sentinels."""
    database: int = 0
    service: str = ""
    """What the Sentinels call the servers."""
    user: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    ssl_ca: str | None = None
    ssl_cert: str | None = None
    ssl_key: str | None = None

    @property
    def kind(self) -> Kind:
        return _KINDS[self.scheme]

    @property
    def tls(self) -> bool:
        return self.scheme.startswith("rediss")

    def __str__(self) -> str:
        user = f"{quote(self.user, safe='')}@" if self.user else ""
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        service = f"/{quote(self.service, safe='')}" if self.service else ""
        database = f"/{self.database}" if self.database else ""
        return f"{self.scheme}://{user}{hosts}{service}{database}"


def parse_redis_address(url: str) -> RedisAddress:
    """Return the address that a URL names."""
    scheme, separator, rest = url.strip().partition("://")
    scheme = scheme.lower()
    kind = _KINDS.get(scheme)
    if not separator or kind is None:
        shown = repr(scheme) if separator else "an address without ://"
        raise Invalid(f"a Redis address must begin with one of {', '.join(_KINDS)} and :// (got {shown})")
    location, _, query = rest.partition("?")
    authority, _, path = location.partition("/")
    if "#" in rest or "@" in path + query or "\0" in unquote(rest):
        # The message contains no part of the address: any part can be a part of the password.
        raise Invalid(
            f"the {scheme} address is not valid: in a user name or password, write @ as %40, / as %2F, "
            "? as %3F and # as %23"
        )
    credentials, at, places = authority.rpartition("@")
    user, colon, password = credentials.partition(":")
    if at and not password:
        raise Invalid(
            f"the {scheme} address has no password before its @: write it as :password@ or user:password@"
        )
    hosts = tuple(_host(scheme, kind, place, shown=bool(at)) for place in places.split(","))
    if kind == "server" and len(hosts) > 1:
        raise Invalid(
            f"a {scheme} address has one host (got {len(hosts)}): for several, write {scheme}+cluster:// or "
            f"{scheme}+sentinel://"
        )
    service, database = _path(scheme, kind, path)
    return RedisAddress(
        scheme,
        hosts,
        database,
        service,
        unquote(user) or None,
        unquote(password) if colon else None,
        **_files(scheme, query),
    )


def _host(scheme: str, kind: Kind, place: str, *, shown: bool) -> tuple[str, int]:
    # Without credentials before it, what looks like a host can be a password whose @ was forgotten.
    match = _HOST.fullmatch(place)
    if match is None:
        got = f" (got {place!r})" if shown else ""
        raise Invalid(
            f"the {scheme} address has a host that is not valid{got}: write host:port, or [::1]:port for an "
            "IPv6 address"
        )
    port = match["port"]
    if port is None:
        return unquote(match["v6"] or match["name"]), _SENTINEL_PORT if kind == "sentinel" else _PORT
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        got = f" (got {port!r})" if shown else ""
        raise Invalid(
            f"the port of a {scheme} address must be between 1 and 65535{got}; a password is written as "
            ":password@host"
        )
    return unquote(match["v6"] or match["name"]), int(port)


def _path(scheme: str, kind: Kind, path: str) -> tuple[str, int]:
    """Return the service and the number of the database."""
    service, database = "", path
    if kind == "sentinel":
        service, _, database = path.partition("/")
        if not service:
            raise Invalid(
                f"the {scheme} address has no service: add the name under which the Sentinels monitor the "
                f"primary, as in {scheme}://host:{_SENTINEL_PORT}/mymaster"
            )
    database = database or "0"
    if not (database.isascii() and database.isdecimal()):
        raise Invalid(f"the database of a {scheme} address must be a number, as in /0 (got {database!r})")
    if kind == "cluster" and int(database):
        raise Invalid(f"a Redis Cluster has only database 0 (got {database}): remove it from the address")
    return unquote(service), int(database)


def _files(scheme: str, query: str) -> dict[str, str]:
    files: dict[str, str] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in _FILES:
            raise Invalid(f"unknown parameter {key!r} in the {scheme} address: expected {', '.join(_FILES)}")
        if not scheme.startswith("rediss"):
            raise Invalid(f"parameter {key} requires TLS (got {scheme}://): begin the address with rediss")
        if key in files:
            raise Invalid(f"duplicate parameter {key} in the {scheme} address: keep one", value=value)
        if not os.path.isfile(value):
            raise Invalid(f"parameter {key} must be a file that exists (got {value!r})", value=value)
        files[key] = os.path.abspath(value)
    if ("ssl_key" in files) > ("ssl_cert" in files):
        raise Invalid("ssl_key requires ssl_cert: add the certificate of the key")
    return files
