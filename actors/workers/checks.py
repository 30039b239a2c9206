"""Checks of what workers say about themselves: whatever passes here can be stored, shown and called."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import get_args
from urllib.parse import quote, urlsplit

from ...protocol.errors import Invalid
from ...protocol.flow.records import WorkerKind
from ...protocol.names import check_name
from ...protocol.values import shown
from ..jobs import check_seconds

LONGEST_POLL = 25.0
"""Seconds that a poll may wait."""

MAX_SERVICES = 1000
_MAX_URL = 2048
_HIGHEST_LOAD = 1e15


def check_services(services: object) -> tuple[str, ...]:
    """The names of services, each once, in their order."""
    if isinstance(services, str) or not isinstance(services, Sequence):
        raise Invalid(
            f"services must be a list of names, not {shown(services)}: write ['transform'] for a single one",
            value=shown(services),
        )
    if not 1 <= len(services) <= MAX_SERVICES:
        raise Invalid(
            f"services must be 1 to {MAX_SERVICES:,} names, not {len(services):,}", value=len(services)
        )
    return tuple(dict.fromkeys(check_name(f"services[{i}]", name) for i, name in enumerate(services)))


def check_kind(kind: object) -> WorkerKind:
    """How work gets to a worker."""
    for known in get_args(WorkerKind):
        if kind == known:
            return known  # type: ignore[no-any-return]  # one of the literals
    raise Invalid(f"kind must be 'http' or 'queue', not {shown(kind)}", value=shown(kind))


def check_load(load: object) -> float:
    """How busy a worker is: any number that grows with it."""
    if isinstance(load, bool) or not isinstance(load, int | float):
        raise Invalid(f"load must be a number, not {shown(load)}", value=shown(load))
    if not (isfinite(load) and 0 <= load <= _HIGHEST_LOAD):
        raise Invalid(f"load must be from 0 to {_HIGHEST_LOAD:g}, not {shown(load)}", value=shown(load))
    return float(load)


def check_wait(wait: float) -> None:
    """How long a poll may wait."""
    if not 0 <= check_seconds("wait", wait, LONGEST_POLL) <= LONGEST_POLL:
        raise Invalid(f"wait must be from 0 to {LONGEST_POLL:g} seconds, not {wait!r}", value=repr(wait))


def check_url(url: object, kind: WorkerKind) -> str:
    """Where a worker is called: the part before `/exec/<service>`. One that takes its work from the queue
    needs none."""
    if not isinstance(url, str):
        raise Invalid(f"url must be a string, not {shown(url)}", value=shown(url))
    if not url and kind == "queue":
        return url
    fault = _fault(url)
    if fault is not None:
        example = "write it like http://10.0.0.7:8080"
        raise Invalid(f"url {shown(url)} {fault}: {example}", value=shown(url))
    return url.rstrip("/")


def exec_url(url: str, service: str) -> str:
    """Where a worker's service is called."""
    return f"{url}/exec/{quote(service, safe='')}"


def _fault(url: str) -> str | None:
    if len(url) > _MAX_URL:
        return f"has {len(url):,} characters, where {_MAX_URL:,} are allowed"
    if not (url.isascii() and url.isprintable()) or set(url) & set(' "<>\\^`{|}'):
        return "has characters that no URL has"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"is no URL ({error})"
    if parts.scheme not in ("http", "https"):
        return "doesn't begin with http:// or https://"
    if not parts.hostname or not all(1 <= len(label) <= 63 for label in _labels(parts.hostname)):
        return "names no host"
    if port == 0:
        return "has the port 0, which nobody listens on"
    if "@" in parts.netloc:
        return "holds a name or a password, which everybody would see"
    if "?" in url or "#" in url:
        return "has a query or a fragment, where the service's path is appended"
    return None


def _labels(host: str) -> list[str]:
    return ["ip"] if ":" in host else host.removesuffix(".").split(".")
