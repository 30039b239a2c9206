"""Effects: what a machine decides to do, in order: send messages, commit changes, start helper tasks.

A machine appends effects while it decides; the actor around it carries them out afterwards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ..protocol.errors import GreenroomError, NoActiveRun
from .actor import Delivery, Kind
from .channel import Reply
from .journal.change import Change
from .journal.messages import Answer
from .messages import AnswerInterrupt, Cancel, Inject, SendSignal, Submission

if TYPE_CHECKING:
    from .run.execution import Execution

Spawn = Callable[[Callable[[], Awaitable[object]]], None]
_Effect = tuple[Kind | Literal["helper", "body"], str, Any]


class Effects(msgspec.Struct, gc=False):
    """See the module's docstring. Empty between turns, so the garbage collector need not track it."""

    _decided: list[_Effect] = []  # a new one for each

    def tell(self, kind: Kind, name: str, message: object) -> None:
        """Send an actor a message."""
        self._decided.append((kind, name, message))

    def commit(self, change: Change) -> None:
        """Send the journal a change."""
        self._decided.append(("journal", "", change))

    def answer(
        self,
        reply: Reply[Any],
        value: object = None,
        *,
        error: GreenroomError | None = None,
        about: Submission | None = None,
    ) -> None:
        """Answer a reply when everything before is committed; see `Answer`."""
        self._decided.append(("journal", "", Answer(reply, value, error, about)))

    def help(self, call: Callable[[], Awaitable[object]]) -> None:
        """Start a helper task."""
        self._decided.append(("helper", "", call))

    def start_body(self, execution: Execution) -> None:
        """Start a body."""
        self._decided.append(("body", "", execution))

    def carry_out(
        self, delivery: Delivery, spawn: Spawn, start_body: Callable[[Execution], None] | None = None
    ) -> None:
        """Carry out all effects, in order. Called by the actor, never by the machine."""
        decided = self._decided
        if not decided:
            return
        self._decided = []
        for kind, name, what in decided:
            if kind == "helper":
                spawn(what)
            elif kind == "body":
                assert start_body is not None, "only runs have bodies"
                start_body(what)
            elif not delivery.tell(kind, name, what):
                _not_delivered(what)

    def take(self) -> list[_Effect]:
        """Take the effects since the last call; for tests of machines."""
        decided, self._decided = self._decided, []
        return decided


def _not_delivered(message: object) -> None:
    """There is no actor: the run has ended, or it continues at the engine's next start."""
    if isinstance(message, Inject):
        message.reply.fail(
            NoActiveRun(f"run {message.target} accepts no messages now: engine is shutting down")
        )
    elif isinstance(message, Cancel | AnswerInterrupt | SendSignal):
        message.reply.set(None)
