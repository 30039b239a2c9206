"""The URLs of workers: whatever passes here can be stored, shown and called."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from ...protocol.errors import Invalid
from ...protocol.flow.records import WorkerKind
from ...protocol.values import shown

_MAX_URL = 2048


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
