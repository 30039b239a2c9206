"""Replays: a resumed body gets the answers and children of what it repeats, and no others.

The bodies of `asking_bodies.py` report the position of each interrupt and call in advance (`where`: the stage
between two checkpoints, the step in it, and the number of the body, if that changes the data). An interrupt
that is opened then, or a child that is created then, belongs to that position, with its answer or result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...protocol.events import Event, InterruptClosed, InterruptOpened, RunStateChanged
from ...protocol.states import Status
from ..model.state import ModelState

Where = tuple[int, ...]


class ReplayRules:
    """See the module's docstring. Calls `fault` with each problem."""

    def __init__(self, model: ModelState, fault: Callable[[str], None]) -> None:
        self._model = model
        self._fault = fault
        self._asks: dict[str, Where] = {}  # by run: the present position of its body
        self._interrupts: dict[str, tuple[str, Where]] = {}  # by interrupt: its run and its position
        self._answers: dict[tuple[str, Where], list[Any]] = {}
        self._children: dict[str, tuple[str, Where]] = {}  # by child: its parent and its position
        self._charged: dict[tuple[str, Where], str] = {}  # by position: the child that has succeeded

    # Reports of the bodies.

    def asks(self, run: str, where: Where) -> None:
        """Record that a body is about to open an interrupt, or to call a child."""
        self._asks[run] = where

    def was_answered(self, run: str, where: Where, answer: Any) -> None:
        """Check the answer that a body received: it was given to the interrupt at this position."""
        if answer not in self._answers.get((run, where), []):
            self._fault(
                f"a body of {self._model.runs[run]} opened an interrupt at {where} and received {answer!r}, "
                f"the answer to another interrupt: {self._answers}"
            )

    def was_charged(self, run: str, where: Where, child: str) -> None:
        """Check the result that a body received: the id of the child that was called at this position."""
        if self._children.get(child) != (run, where):
            self._fault(
                f"a body of {self._model.runs[run]} called a child at {where} and received the result of "
                f"{child}, which was called at {self._children.get(child)}"
            )

    # Committed events.

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
            self._fault(f"{event}: this interrupt was answered already, with {self._answers[asked]}")
        self._interrupts[event.interrupt] = asked

    def _transition(self, event: RunStateChanged) -> None:
        parent = event.by.removeprefix("run:")
        if event.from_ is None and event.by != parent and parent in self._asks:
            self._children[event.run] = (parent, self._asks[parent])
        elif event.to is Status.SUCCEEDED and event.run in self._children:
            called = self._children[event.run]
            before = self._charged.setdefault(called, event.run)
            if before != event.run:
                self._fault(f"{event}: run {before} has succeeded already for the same call of {called}")
