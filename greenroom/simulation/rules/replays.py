"""What a body that goes on gets again: the answers and children of what it asks for again, and no others.

The bodies of `steady.py` say what they are about to ask or call (`where`: the stage between two checkpoints,
the step in it, and which body it is, if that changes what is asked for). An interrupt that is opened then and
a child that is created then, belongs there, and so does its answer or result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...protocol.events import Event, InterruptClosed, InterruptOpened, RunStateChanged
from ...protocol.states import Status
from ..model.state import ModelState

Where = tuple[int, ...]


class ReplayRules:
    """See the module's text. `fault` is told of what is wrong."""

    def __init__(self, model: ModelState, fault: Callable[[str], None]) -> None:
        self._model = model
        self._fault = fault
        self._asks: dict[str, Where] = {}  # by run: what its body asks for now
        self._interrupts: dict[str, tuple[str, Where]] = {}  # by interrupt: its run, and where
        self._answers: dict[tuple[str, Where], list[Any]] = {}
        self._children: dict[str, tuple[str, Where]] = {}  # by child: its parent, and where
        self._charged: dict[tuple[str, Where], str] = {}  # the child that has succeeded

    # What the bodies say.

    def asks(self, run: str, where: Where) -> None:
        """A body is about to ask an interrupt, or to call a child."""
        self._asks[run] = where

    def was_answered(self, run: str, where: Where, answer: Any) -> None:
        """A body was given an answer by people."""
        if answer not in self._answers.get((run, where), []):
            self._fault(
                f"a body of {self._model.runs[run]} asked at {where} and was given {answer!r}, which answers "
                f"another interrupt: {self._answers}"
            )

    def was_charged(self, run: str, where: Where, child: str) -> None:
        """A body was given the result of a child: the id of that child."""
        if self._children.get(child) != (run, where):
            self._fault(
                f"a body of {self._model.runs[run]} called at {where} and was given the result of {child}, "
                f"which was called at {self._children.get(child)}"
            )

    # What is committed.

    def take(self, event: Event) -> None:
        """Read the next event."""
        if isinstance(event, InterruptOpened) and event.run in self._asks:
            self._interrupt(event, (event.run, self._asks[event.run]))
        elif isinstance(event, InterruptClosed) and event.interrupt in self._interrupts:
            if event.outcome == "answered":
                self._answers.setdefault(self._interrupts[event.interrupt], []).append(event.answer)
        elif isinstance(event, RunStateChanged):
            self._transition(event)

    def _interrupt(self, event: InterruptOpened, asked: tuple[str, Where]) -> None:
        if asked in self._answers:
            self._fault(f"{event}: it was answered already, with {self._answers[asked]}")
        self._interrupts[event.interrupt] = asked

    def _transition(self, event: RunStateChanged) -> None:
        parent = event.by.removeprefix("run:")
        if event.from_ is None and event.by != parent and parent in self._asks:
            self._children[event.run] = (parent, self._asks[parent])
        elif event.to is Status.SUCCEEDED and event.run in self._children:
            called = self._children[event.run]
            before = self._charged.setdefault(called, event.run)
            if before != event.run:
                self._fault(f"{event}: {before} has succeeded for the same call of {called}")
