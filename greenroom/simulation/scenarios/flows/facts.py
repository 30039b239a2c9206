"""The results of the plain interpretation of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

Graph = Mapping[str, Any]
Signal = tuple[str, Any]


@attrs.frozen
class Done:
    """The end of a visit. A failure (`code`) can have an output, too."""

    output: Any = None
    code: str | None = None
    action: str | None = None
    writes: bool = True


@attrs.frozen
class Visited:
    """A step of the walk: the node, the number of the visit, how it ended, and the action that it takes."""

    node: str
    visit: int
    done: Done
    action: str


class Wrong(Exception):
    """The committed facts contradict the interpretation."""
