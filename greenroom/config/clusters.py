"""Checks of the settings of a cluster's node, for the server and for `greenroom config check`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

from ..gateway.client.connecting import parse_url
from ..persistence.addresses import parse_addresses
from ..persistence.redis_addresses import parse_redis_address
from ..protocol.errors import Invalid
from ..protocol.values import shown
from .secrets import mode_for_others
from .settings import Config

_SHARED = ("postgresql", "mysql")
_SHORT = 16
"""The number of characters below which a secret can be guessed."""


def cluster_mistakes(config: Config) -> Iterator[tuple[str, str, str]]:
    """The mistakes in the settings of a node: section, setting, and text."""
    cluster, engine = config.cluster, config.engine
    stores = [engine.store] if isinstance(engine.store, str) else list(engine.store)
    alone = [store for store in stores if not is_shared(store)]
    if alone:
        yield (
            *("engine", "store"),
            f"cannot be shared by the nodes of a cluster (got {shown(alone[0])}): use PostgreSQL, MySQL or "
            "MariaDB, such as postgresql://greenroom@db.example/greenroom",
        )
    try:
        read_secret(cluster.secret_file)
    except Invalid as error:
        yield "cluster", "secret_file", error.message.removeprefix("cluster.secret_file ")
    if cluster.lease is not None:
        try:
            parse_redis_address(cluster.lease)
        except Invalid as error:
            yield "cluster", "lease", f"is not valid: {error.message}"
    if "{" in cluster.name or "}" in cluster.name:
        yield "cluster", "name", f"must not contain braces (got {shown(cluster.name)})"
    if cluster.ca_file is not None and not os.access(cluster.ca_file, os.R_OK):
        yield "cluster", "ca_file", f"is not a readable file (got {cluster.ca_file!r})"
    if cluster.advertise is None:
        if _is_every_address(config.gateway.host):
            yield (
                *("cluster", "advertise"),
                f"is required, because the gateway listens on all addresses ({config.gateway.host}): set it "
                f"to the URL at which other nodes reach this one, such as {_example(config)}",
            )
        return
    try:
        host = parse_url(cluster.advertise).hostname or ""
    except Invalid:
        yield (
            "cluster",
            "advertise",
            f"must be a URL such as {_example(config)} (got {shown(cluster.advertise)})",
        )
        return
    if _is_every_address(host):
        yield (
            *("cluster", "advertise"),
            f"must be the address of one machine, such as {_example(config)} "
            f"(got {shown(cluster.advertise)})",
        )


def read_secret(file: str | None) -> str:
    """The secret of the cluster in a file. Raises `Invalid`."""
    if file is None:
        raise Invalid(
            "cluster.secret_file is required: write a long random text into a file that only the server can "
            "read, the same on each node, and set GREENROOM_CLUSTER_SECRET_FILE to its path"
        )
    try:
        secret = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise Invalid(f"cluster.secret_file cannot be read (got {shown(file)}): {why}", value=file) from None
    if not secret or not secret.isascii() or not secret.isprintable():
        state = "one line of printable ASCII" if secret else "the secret (it is empty)"
        raise Invalid(f"cluster.secret_file must contain {state} (got {shown(file)})", value=file)
    return secret


def cluster_risks(config: Config) -> Iterator[str]:
    """Warnings about settings without mistakes that are permitted but dangerous. For the start of a node."""
    file = config.cluster.secret_file
    if file is None:
        return
    mode = mode_for_others(file)
    if mode:
        yield (
            f"cluster.secret_file {shown(file)} is accessible to other users (mode {mode:04o}), and "
            f"every client that has the secret can act as a node: run `chmod 600 {file}`"
        )
    length = len(read_secret(file))
    if length < _SHORT:
        yield (
            f"the secret in cluster.secret_file {shown(file)} is short ({length} characters) and can be "
            f"guessed: use at least {_SHORT} random characters, such as the output of `openssl rand -hex 32`"
        )


def is_shared(store: str) -> bool:
    """Whether the nodes of a cluster can share the store of this address. Raises `Invalid`."""
    return store != "memory:" and all(address.kind in _SHARED for address in parse_addresses(store))


def _is_every_address(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return not host


def _example(config: Config) -> str:
    scheme = "http" if config.gateway.tls_certificate is None else "https"
    return f"{scheme}://10.0.0.1:{config.gateway.port}"
