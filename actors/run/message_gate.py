"""Whether a body takes messages now: the phases that it declares, and how many messages wait."""

from __future__ import annotations

from typing import Literal

import msgspec

from ...protocol.errors import Compacting, GreenroomError, NotInteractive, NotStreaming, QueueFull

MAX_MESSAGES = 1000
"""How many messages may wait for a body."""

Phase = Literal["interactive", "streaming", "compacting"]


class MessageGate(msgspec.Struct, gc=False):
    """The phases, as committed."""

    run: str
    accepts: str
    interactive: bool = False
    streaming: bool = False
    compacting: bool = False
    awaited: bool = False  # there is no body, and a message is what the run waits for to get one
    waiting: tuple[int, ...] = ()  # the seqs of the messages that its body hasn't taken

    def add(self, seq: int) -> None:
        """A message waits."""
        self.waiting = (*self.waiting, seq)

    def take(self, count: int) -> tuple[int, ...]:
        """The body has taken the oldest of those that wait."""
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        return taken

    def new_body(self) -> None:
        """A body begins: it is interactive and in no other phase."""
        self.interactive, self.streaming, self.compacting = True, False, False
        self.awaited = False

    def no_body(self) -> None:
        """There is no body now."""
        self.interactive, self.streaming, self.compacting = False, False, False

    def set(self, phase: Phase, value: bool) -> None:
        """The body has begun or ended a phase."""
        setattr(self, phase, value)

    def refusal(self, *, ending: bool) -> GreenroomError | None:
        """Why no message is accepted, if none is; none is when the body has been told to end."""
        id = self.run
        if ending or not (self.interactive or self.awaited):
            return NotInteractive(
                f"run {id} takes no messages now: it waits without a body (since a restart) for something "
                "else, is ending, or is in post-processing"
            )
        if self.accepts == "streaming" and not (self.streaming or self.awaited):
            return NotStreaming(f"run {id} takes messages only while it streams")
        if self.compacting:
            return Compacting(f"run {id} is compacting and takes no messages meanwhile: try again later")
        if len(self.waiting) >= MAX_MESSAGES:
            return QueueFull(f"{MAX_MESSAGES} messages wait for run {id} already: try again later")
        return None
