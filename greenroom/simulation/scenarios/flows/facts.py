"""What the plain interpretation of a graph says, and what it has to be told, because no graph tells it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import attrs

from .plan import Outcome

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


class Facts(Protocol):
    """What the interpretation is told."""

    def signals(self, *, before_entering: bool) -> list[Signal]:
        """The signals that are taken before the next node. Those that are taken just before a graph within
        this one is entered, the rest comes after that."""

    def call(
        self, asks: tuple[str, int, str | None], kind: str, name: str, input: Any, params: dict[str, Any]
    ) -> Outcome:
        """What comes of a call."""

    def ended(self, node: str, visit: int) -> set[int]:
        """The branches that had ended when the first failure ended those that were at work beside it."""

    def paused(self) -> bool:
        """Whether the walk stopped here, to wait."""

    def waited_in_vain(self, node: str, visit: int) -> bool:
        """Whether the time was over before what it waited for had come."""

    def answer(self, node: str, visit: int) -> Any:
        """What was answered to the question of an approval: false, if that is null; null, if nobody did."""

    def flow(self, name: str, version: int) -> Graph | None:
        """The graph of another flow."""

    def visited(self, step: Visited) -> None:
        """The walk has made this step."""


class Wrong(Exception):
    """What has happened can't have happened."""
