"""Validation of worker URLs: a URL that passes can be stored, shown and called."""

from __future__ import annotations

from urllib.parse import quote

from ...protocol.errors import Invalid
from ...protocol.flow.records import WorkerKind
from ...protocol.urls import url_fault
from ...protocol.values import shown


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
    if "?" in url or "#" in url:
        return url_fault(url.partition("?")[0].partition("#")[0]) or (
            "has a query or a fragment; the service's path is appended to the URL"
        )
    return url_fault(url)
