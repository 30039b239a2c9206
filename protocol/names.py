"""Names of handles and lanes: how they are made, and what is accepted."""

from __future__ import annotations

from .errors import Invalid
from .values import shown

MAIN = "main"
FLOW = "flow"
"""The job whose runs walk flows."""

MAX_NAME = 256
_PROBES = ("auth-probe:", "session:probe-")


def session_handle(key: str) -> str:
    """The handle of a session: `""` gives `session:main`; a key that has the prefix keeps it."""
    cleaned = key.strip() or MAIN
    return cleaned if cleaned.startswith("session:") else f"session:{cleaned}"


def lane_name(name: str | None) -> str:
    """The lane that is meant by `name`: trimmed, and `main` when nothing is left."""
    if name is not None and not isinstance(name, str):
        check_name("lane", name)
    return (name or "").strip() or MAIN


def is_probe(name: str) -> bool:
    """Whether failures under this handle or lane are expected, and so not logged as errors."""
    return name.startswith(_PROBES)


def check_name(what: str, name: object) -> str:
    """`name`, if it can name a `what` ("handle", "lane", "job", …); else `Invalid`."""
    if not isinstance(name, str):
        raise Invalid(f"{what} must be a string, not {shown(name)}", value=shown(name))
    if not name.strip():
        raise Invalid(f"{what} {shown(name)} is empty: give it a name", value=shown(name))
    if len(name) > MAX_NAME:
        raise Invalid(
            f"{what} {shown(name)} has {len(name)} characters: at most {MAX_NAME} are allowed",
            value=shown(name),
        )
    if not name.isprintable():
        raise Invalid(
            f"{what} {shown(name)} contains characters that cannot be printed: remove them",
            value=shown(name),
        )
    return name
