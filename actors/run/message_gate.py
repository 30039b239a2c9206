"""Whether a run accepts messages now: the phases of its body, and the number of waiting messages."""

from __future__ import annotations

from bisect import bisect_right
from typing import Literal

import msgspec

from ...protocol.errors import Compacting, GreenroomError, NotInteractive, NotStreaming, QueueFull

MAX_MESSAGES = 1000
"""The maximum number of messages that can wait for a body."""

Phase = Literal["interactive", "streaming", "compacting"]


class MessageGate(msgspec.Struct, gc=False):
    """The phases, as committed."""

    run: str
    accepts: str
    interactive: bool = False
    streaming: bool = False
    compacting: bool = False
    awaited: bool = False  # there is no body; a message will start one
    waiting: tuple[int, ...] = ()  # the seqs of the messages that its body has not taken

    def add(self, seq: int) -> None:
        """Add a waiting message."""
        self.waiting = (*self.waiting, seq)

    def take(self, seq: int) -> tuple[int, ...]:
        """The body has taken its messages up to this seq; returns their seqs."""
        count = bisect_right(self.waiting, seq)
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        return taken

    def new_body(self) -> None:
        """A body begins: it is interactive and in no other phase."""
        self.interactive, self.streaming, self.compacting = True, False, False
        self.awaited = False

    def no_body(self) -> None:
        """The body has ended."""
        self.interactive, self.streaming, self.compacting = False, False, False

    def set(self, phase: Phase, value: bool) -> None:
        """The body has begun or ended a phase."""
        setattr(self, phase, value)

    def refusal(self, *, ending: bool) -> GreenroomError | None:
        """Why no message is accepted, or `None` if messages are accepted. `ending`: the run is ending."""
        id = self.run
        if ending or not (self.interactive or self.awaited):
            return NotInteractive(
                f"run {id} accepts no messages now: it is ending, in post-processing, or waits without a "
                "body since a restart"
            )
        if self.accepts == "streaming" and not (self.streaming or self.awaited):
            return NotStreaming(f"run {id} accepts messages only while it streams: retry later")
        if self.compacting:
            return Compacting(f"run {id} is compacting and accepts no messages: retry later")
        if len(self.waiting) >= MAX_MESSAGES:
            return QueueFull(f"run {id} already has {MAX_MESSAGES} waiting messages: retry later")
        return None
