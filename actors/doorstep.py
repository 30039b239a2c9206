"""Whether a body takes messages now: the phases that it declares, and how many messages wait."""

from __future__ import annotations

from collections import deque
from typing import Literal

from ..protocol.errors import Compacting, GreenroomError, NotInteractive, NotStreaming, QueueFull

MAX_MESSAGES = 1000
"""How many messages may wait for a body."""

Phase = Literal["interactive", "streaming", "compacting"]


class Doorstep:
    """The phases, as committed."""

    __slots__ = ("_accepts", "_run", "compacting", "interactive", "streaming", "waiting")

    def __init__(self, run: str, accepts: str) -> None:
        self._run = run
        self._accepts = accepts
        self.interactive = False
        self.streaming = False
        self.compacting = False
        self.waiting: deque[int] = deque()  # the seqs of the messages that its body hasn't taken

    def new_body(self) -> None:
        """A body begins: it is interactive and in no other phase."""
        self.interactive, self.streaming, self.compacting = True, False, False

    def no_body(self) -> None:
        """There is no body now."""
        self.interactive, self.streaming, self.compacting = False, False, False

    def set(self, phase: Phase, value: bool) -> None:
        """The body has begun or ended a phase."""
        setattr(self, phase, value)

    def refusal(self) -> GreenroomError | None:
        """Why no message is accepted, if none is."""
        id = self._run
        if not self.interactive:
            return NotInteractive(f"run {id} takes no messages now: it waits, is ending, or post-processes")
        if self._accepts == "streaming" and not self.streaming:
            return NotStreaming(f"run {id} takes messages only while it streams")
        if self.compacting:
            return Compacting(f"run {id} is compacting and takes no messages meanwhile: try again later")
        if len(self.waiting) >= MAX_MESSAGES:
            return QueueFull(f"{MAX_MESSAGES} messages wait for run {id} already: try again later")
        return None
