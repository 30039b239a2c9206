"""Checks of what callers give to an engine. Its client makes the same ones, before anything is sent."""

from __future__ import annotations

from ..protocol.errors import Invalid

_HIGHEST_LIMIT = 2**31 - 1


def check_text(what: str, value: object) -> None:
    """An id or a name to look for: any text."""
    if not isinstance(value, str):
        raise Invalid(f"{what} must be a string, not {type(value).__name__}", value=ascii(value)[:100])


def check_limit(what: str, limit: object) -> int:
    """A limit: a whole number from 0, that every store and codec can hold."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise Invalid(f"{what} must be a whole number, 0 or more, not {limit!r}", value=repr(limit))
    if limit > _HIGHEST_LIMIT:
        raise Invalid(f"{what} must be at most {_HIGHEST_LIMIT:,}, not {limit:,}", value=repr(limit))
    return limit
