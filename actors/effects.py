"""What machines decide: messages to actors, changes for the journal, and helpers to start, in order.

A machine appends its effects while it decides; the actor around it carries them out afterwards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal

from ..protocol.errors import GreenroomError, NoActiveRun
from .actor import Delivery, Kind
from .change import Change
from .channel import Reply
from .journalmessages import Answer
from .messages import AnswerInterrupt, Cancel, Inject, SendSignal, Submission

if TYPE_CHECKING:
    from .run.execution import Execution

Spawn = Callable[[Callable[[], Awaitable[object]]], None]


class Effects:
    """See the module's text."""

    __slots__ = ("_decided",)

    def __init__(self) -> None:
        self._decided: list[tuple[Kind | Literal["helper", "body"], str, Any]] = []

    def tell(self, kind: Kind, name: str, message: object) -> None:
        """Tell an actor a message."""
        self._decided.append((kind, name, message))

    def commit(self, change: Change) -> None:
        """Have the journal decide and commit a change."""
        self._decided.append(("journal", "", change))

    def answer(
        self,
        reply: Reply[Any],
        value: object = None,
        *,
        error: GreenroomError | None = None,
        about: Submission | None = None,
    ) -> None:
        """Answer once everything before is committed."""
        self._decided.append(("journal", "", Answer(reply, value, error, about)))

    def help(self, call: Callable[[], Awaitable[object]]) -> None:
        """Start a task beside the actors."""
        self._decided.append(("helper", "", call))

    def start_body(self, execution: Execution) -> None:
        """Start a body."""
        self._decided.append(("body", "", execution))

    def carry_out(
        self, delivery: Delivery, spawn: Spawn, start_body: Callable[[Execution], None] | None = None
    ) -> None:
        """Do all of it, in order. Called by the actor, never by the machine."""
        decided, self._decided = self._decided, []
        for kind, name, what in decided:
            if kind == "helper":
                spawn(what)
            elif kind == "body":
                assert start_body is not None, "only runs have bodies"
                start_body(what)
            elif not delivery.tell(kind, name, what):
                _not_delivered(what)

    def take(self) -> list[tuple[Kind | Literal["helper", "body"], str, Any]]:
        """What has been decided since the last time; for tests of machines."""
        decided, self._decided = self._decided, []
        return decided


def _not_delivered(message: object) -> None:
    """The run has ended, or it goes on at the engine's next start."""
    if isinstance(message, Inject):
        message.reply.fail(
            NoActiveRun(f"run {message.target} takes no messages now: the engine is shutting down")
        )
    elif isinstance(message, Cancel | AnswerInterrupt | SendSignal):
        message.reply.set(None)
