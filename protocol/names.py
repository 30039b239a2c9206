"""Names of handles and lanes: how they are formed, and which are accepted."""

from __future__ import annotations

from .errors import Invalid
from .values import shown

MAIN = "main"
FLOW = "flow"
"""The job whose runs walk flows."""

MAX_NAME = 256
_PROBES = ("auth-probe:", "session:probe-")


def session_handle(key: str) -> str:
    """Return the handle of a session: `""` gives `session:main`; a key with the prefix `session:` is kept."""
    cleaned = key.strip() or MAIN
    return cleaned if cleaned.startswith("session:") else f"session:{cleaned}"


def lane_name(name: str | None) -> str:
    """Return the lane that `name` means: trimmed, and `main` if nothing remains."""
    if name is not None and not isinstance(name, str):
        check_name("lane", name)
    return (name or "").strip() or MAIN


def is_probe(name: str) -> bool:
    """Whether this handle or lane is a probe, whose failures are expected and not logged as errors."""
    return name.startswith(_PROBES)


def check_name(what: str, name: object) -> str:
    """Return `name` if it is a valid name of a `what` ("handle", "lane", "job", …). Raises `Invalid`."""
    if not isinstance(name, str):
        raise Invalid(f"{what} must be a string (got {shown(name)})", value=shown(name))
    if not name.strip():
        raise Invalid(f"{what} must not be empty (got {shown(name)})", value=shown(name))
    if len(name) > MAX_NAME:
        raise Invalid(
            f"{what} {shown(name)} has {len(name)} characters: at most {MAX_NAME} are allowed",
            value=shown(name),
        )
    if not name.isprintable():
        raise Invalid(
            f"{what} {shown(name)} contains non-printable characters: remove them",
            value=shown(name),
        )
    return name
