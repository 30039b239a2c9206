"""Addresses of stores: parse and check URLs before anything connects to them.

`parse_addresses` is called when an engine or a command starts. Its errors are `Invalid`; they contain the
parameter, its value and what is accepted, but never a password. It does not need a driver. It accesses the
disk only to check whether the files in a URL exist.

`persistence/drivers.py` passes the parts of each address to the driver, never the URL itself. So one address
and several are handled alike.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, quote, unquote

import attrs

from ..protocol.errors import Invalid

Kind = Literal["sqlite", "postgresql", "mysql"]

_KINDS: dict[str, Kind] = {
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
}
_NEXT_ADDRESS = re.compile(r"\s*,\s*(?=[A-Za-z][A-Za-z0-9+.-]*://)")


@attrs.frozen
class Address:
    """One address of a store. Its `str` has no password and no parameters."""

    kind: Kind
    database: str
    """The absolute path of a SQLite file, or `:memory:`; for a server, the name of the database."""
    host: str | None = None
    port: int | None = None
    user: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    parameters: Mapping[str, Any] = attrs.field(factory=dict, repr=False)

    @property
    def in_memory(self) -> bool:
        return self.kind == "sqlite" and self.database == ":memory:"

    @property
    def path(self) -> Path:
        """The file of a SQLite database."""
        return Path(self.database)

    def __str__(self) -> str:
        if self.kind == "sqlite":
            return f"sqlite:///{self.database}"
        user = f"{quote(self.user)}@" if self.user else ""
        host = self.host or ""
        host = f"[{host}]" if ":" in host else quote(host, safe="")
        port = f":{self.port}" if self.port else ""
        socket = self.parameters.get("unix_socket")
        return f"{self.kind}://{user}{host}{port}/{quote(self.database)}" + (
            f"?unix_socket={quote(socket)}" if socket else ""
        )


def parse_addresses(stores: str | Iterable[str | Address]) -> tuple[Address, ...]:
    """Return the addresses of one store, primary first, from a URL, comma-separated URLs, or a list."""
    written = [stores] if isinstance(stores, str) else list(stores)
    addresses: list[Address] = []
    for item in written:
        if isinstance(item, Address):
            addresses.append(item)
        else:
            addresses += [_parse(url) for url in _NEXT_ADDRESS.split(item.strip())]
    if not addresses:
        raise Invalid("a store requires at least one address, such as sqlite:///greenroom.db")
    kinds = sorted({address.kind for address in addresses})
    if len(kinds) > 1:
        raise Invalid(
            f"the addresses of one store must be of one kind (got {' and '.join(kinds)})", value=kinds
        )
    if kinds == ["sqlite"] and len(addresses) > 1:
        raise Invalid("a SQLite store must have exactly one address; only servers can have several")
    return tuple(addresses)


def _parse(url: str) -> Address:
    if url == "memory:":
        raise Invalid("a memory: store exists only in its engine: write the address of another store")
    scheme, separator, rest = url.partition("://")
    kind = _KINDS.get(scheme.lower())
    if not separator or kind is None:
        shown = repr(scheme) if separator else "an address without ://"
        raise Invalid(
            "a store's address must be memory:, or begin with sqlite:///, postgresql://, mysql:// or "
            f"mariadb:// (got {shown})"
        )
    location, _, query = rest.partition("?")
    if "\0" in unquote(rest):
        raise Invalid(f"the {kind} address contains a NUL character: remove it")
    if kind == "sqlite":
        return Address(kind, _sqlite_path(location), parameters=_parameters(kind, query))
    return _server(kind, location, query)


def _sqlite_path(location: str) -> str:
    if location in ("", "/:memory:"):
        return ":memory:"
    if not location.startswith("/") or location.endswith("/"):
        raise Invalid(
            f"sqlite://{location} does not name a file: write sqlite:///relative.db (three slashes), "
            "sqlite:////absolute.db (four), or sqlite:///:memory:"
        )
    # One real path per file: the store's lock depends on it.
    return os.path.realpath(unquote(location[1:]))


def _server(kind: Kind, location: str, query: str) -> Address:
    authority, _, path = location.partition("/")
    if "#" in location or "@" in path:
        # The message contains no part of the address: any part can be a part of the password.
        raise Invalid(
            f"the {kind} address is not valid: in a user name or password, write @ as %40, / as %2F, "
            "? as %3F and # as %23"
        )
    credentials, at, place = authority.rpartition("@")
    user, colon, password = credentials.partition(":")
    match = re.fullmatch(r"(?:\[(?P<v6>[^\[\]]*)\]|(?P<name>[^:\[\]]*))(?::(?P<port>[^:]*))?", place)
    if match is None:
        shown = repr(place) if at else "its host"
        raise Invalid(f"the {kind} address is not valid at {shown}: write an IPv6 address as [::1]")
    host = match["v6"] or unquote(match["name"] or "")
    if "," in host:
        raise Invalid(
            f"host {host!r} contains a comma: write one complete address per server, separated by commas"
        )
    port = match["port"]
    if port and not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        shown = f" (got {port!r})" if at else ""
        raise Invalid(
            f"the port of the {kind} address must be between 1 and 65535{shown}; in a user name or password, "
            "write : as %3A and @ as %40"
        )
    database = unquote(path)
    if not database:
        raise Invalid(f"the {kind} address has no database name: add it as /name")
    if "/" in database:
        raise Invalid(f"the database name must not contain a slash (got {database!r})", value=database)
    return Address(
        kind,
        database,
        host or None,
        int(port) if port else None,
        unquote(user) or None,
        unquote(password) if colon else None,
        _parameters(kind, query),
    )


def _file(value: str) -> str:
    if not os.path.isfile(value):
        raise ValueError
    return os.path.abspath(value)


def _seconds(value: str) -> float:
    seconds = float(value)
    if not 0.001 <= seconds <= 2_000_000:  # the range of a server's milliseconds
        raise ValueError
    return seconds


def _one_of(*values: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value.lower() not in values:
            raise ValueError
        return value.lower()

    return read


@attrs.frozen
class _Parameter:
    kinds: tuple[Kind, ...]
    read: Callable[[str], Any]
    fits: str


_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")

_PARAMETERS = {
    "synchronous": _Parameter(("sqlite",), _one_of("full", "normal"), "full or normal"),
    "ssl_ca": _Parameter(("postgresql", "mysql"), _file, "a file that exists"),
    "ssl_cert": _Parameter(("postgresql", "mysql"), _file, "a file that exists"),
    "ssl_key": _Parameter(("postgresql", "mysql"), _file, "a file that exists"),
    "sslmode": _Parameter(("postgresql",), _one_of(*_SSL_MODES), f"one of {', '.join(_SSL_MODES)}"),
    "application_name": _Parameter(("postgresql",), str, "a name"),
    "command_timeout": _Parameter(("postgresql",), _seconds, "a number of seconds above 0"),
    "call_timeout": _Parameter(("postgresql", "mysql"), _seconds, "a number of seconds above 0"),
    "charset": _Parameter(("mysql",), _one_of("utf8mb4"), "utf8mb4, which encodes every text"),
    "unix_socket": _Parameter(("mysql",), str, "a path"),
    "init_command": _Parameter(("mysql",), str, "a statement"),
    "program_name": _Parameter(("mysql",), str, "a name"),
}

_REFUSED = {
    "connect_timeout": "each address has 5 s, so that the next one is tried soon",
    "read_timeout": "not every driver supports it; call_timeout limits each call",
    "write_timeout": "not every driver supports it; call_timeout limits each call",
    "autocommit": "the store decides where its transactions begin and end",
}


def _parameters(kind: Kind, query: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key in _REFUSED:
            raise Invalid(
                f"parameter {key} of a store cannot be set: {_REFUSED[key]}; remove it", value=value
            )
        parameter = _PARAMETERS.get(key)
        if parameter is None or kind not in parameter.kinds:
            fit = ", ".join(name for name, known in _PARAMETERS.items() if kind in known.kinds)
            raise Invalid(
                f"unknown parameter {key!r} (value {value!r}) in the address of a {kind} store: "
                f"expected one of {fit}",
                value=value,
            )
        if key in values:
            raise Invalid(f"duplicate parameter {key} in the address: keep one", value=value)
        try:
            if not value:
                raise ValueError
            values[key] = parameter.read(value)
        except ValueError:
            raise Invalid(f"parameter {key} must be {parameter.fits} (got {value!r})", value=value) from None
    tls = sorted(key for key in values if key.startswith("ssl_"))
    if "sslmode" in values and tls:
        raise Invalid(
            f"sslmode={values['sslmode']} cannot be combined with {', '.join(tls)}: keep sslmode, or keep "
            "the files (with ssl_ca, the server is verified)"
        )
    if "ssl_key" in values and "ssl_cert" not in values:
        raise Invalid("ssl_key requires ssl_cert: add the certificate of the key")
    return values
