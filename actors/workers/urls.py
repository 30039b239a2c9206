"""Validation of worker URLs: a URL that passes can be stored, shown and called."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from ...protocol.errors import Invalid
from ...protocol.flow.records import WorkerKind
from ...protocol.values import shown

_MAX_URL = 2048


def check_url(url: object, kind: WorkerKind) -> str:
    """Check the URL under which a worker is called, without `/exec/<service>`. It may be empty for a worker
    that polls the queue."""
    if not isinstance(url, str):
        raise Invalid(f"url must be a string (got {shown(url)})", value=shown(url))
    if not url and kind == "queue":
        return url
    fault = _fault(url)
    if fault is not None:
        example = "write it like http://10.0.0.7:8080"
        raise Invalid(f"url {shown(url)} {fault}: {example}", value=shown(url))
    return url.rstrip("/")


def exec_url(url: str, service: str) -> str:
    """The URL of a worker's service."""
    return f"{url}/exec/{quote(service, safe='')}"


def _fault(url: str) -> str | None:
    if len(url) > _MAX_URL:
        return f"has {len(url):,} characters, more than the {_MAX_URL:,} allowed"
    if not (url.isascii() and url.isprintable()) or set(url) & set(' "<>\\^`{|}'):
        return "contains characters that are not allowed in a URL"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"is not a URL ({error})"
    if parts.scheme not in ("http", "https"):
        return "does not begin with http:// or https://"
    if not parts.hostname or not all(1 <= len(label) <= 63 for label in _labels(parts.hostname)):
        return "has no valid host"
    if port == 0:
        return "has the port 0, which cannot be called"
    if "@" in parts.netloc:
        return "contains a user name or a password, which every client could read"
    if "?" in url or "#" in url:
        return "has a query or a fragment; the service's path is appended to the URL"
    return None


def _labels(host: str) -> list[str]:
    return ["ip"] if ":" in host else host.removesuffix(".").split(".")
