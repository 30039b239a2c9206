"""Hints for names that are unknown, such as misspelled ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from .values import shown

_LONGEST_COMPARED = 60  # characters; the time of a comparison grows with their square
_MOST_COMPARED = 1_000
_MOST_NAMED = 40


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the hint that follows an unknown name: the most similar known name, or all known names."""
    names = list(known)
    near = similar(name, names)
    if near or len(names) > _MOST_NAMED:
        return near
    return f": expected one of {', '.join(names)}"


def similar(name: str, known: Iterable[str]) -> str:
    """Return the hint that follows an unknown name: the most similar known name, if there is one."""
    names = list(known)
    if len(names) <= _MOST_COMPARED and len(name) <= _LONGEST_COMPARED:
        near = difflib.get_close_matches(name, [it for it in names if len(it) <= _LONGEST_COMPARED], n=1)
        if near:
            return f": did you mean {shown(near[0])}?"
    return ""
