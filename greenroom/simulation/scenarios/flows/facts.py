"""What the plain interpretation of a graph says, and what it has to be told, because no graph tells it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

Graph = Mapping[str, Any]
Signal = tuple[str, Any]


@attrs.frozen
class Done:
    """How a visit has ended. A failure may have an output all the same."""

    output: Any = None
    code: str | None = None
    action: str | None = None
    writes: bool = True


@attrs.frozen
class Visited:
    """A step of the walk: which node, for the how manieth time, how it ended, and where it leads."""

    node: str
    visit: int
    done: Done
    action: str


class Wrong(Exception):
    """What has happened can't have happened."""
