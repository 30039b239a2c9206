"""Validation of URLs that the engine calls. A URL that passes can be stored, shown and called."""

from __future__ import annotations

from urllib.parse import urlsplit

MAX_URL = 2048


def url_fault(url: str) -> str | None:
    """Return what is wrong with a URL, as the end of a sentence; `None` if it is valid."""
    if len(url) > MAX_URL:
        return f"has {len(url):,} characters, more than the {MAX_URL:,} allowed"
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
    if "#" in url:
        return "has a fragment, which is not sent"
    return None


def _labels(host: str) -> list[str]:
    return ["ip"] if ":" in host else host.removesuffix(".").split(".")
