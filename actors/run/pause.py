"""`Pause`: what a body returns instead of a result to let its run wait without a body.

The run is suspended; it needs only an actor and a row in the store. When the wait ends, the run gets a slot
and a new body of the same attempt, which resumes from the committed state.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ...persistence.store import Memo
from ...protocol.flow.paths import parse_path


class AwaitedInterrupt(msgspec.Struct, frozen=True, gc=False):
    """An interrupt that is open while the run waits; its answer ends the wait."""

    key: str
    data: Any


class Pause(msgspec.Struct, frozen=True, gc=False):
    """What the run waits for: the time `until` (Unix seconds), a signal for the path `key`, an answer, or a
    message for its next body.

    The wait for a time lasts at most `within` seconds, even if the clock is set back. `memos` are committed
    together with the suspension.
    """

    waiting_for: Literal["time", "signal", "answer", "message"]
    until: float | None = None
    key: str | None = None
    interrupt: AwaitedInterrupt | None = None
    memos: tuple[Memo, ...] = ()
    within: float | None = None


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message for a body, and the seq of the event that accepted it."""

    seq: int
    value: Any


class Signal(msgspec.Struct, frozen=True, gc=False):
    """A value that a caller sent to a run's shared state; `seq` is that of its event."""

    seq: int
    key: str
    value: Any


def matches(awaited: str, received: str) -> bool:
    """Whether a value set at one path of the shared state can satisfy a wait for another path: one path is a
    prefix of the other. Both can use any notation for paths."""
    one, other = _steps(awaited), _steps(received)
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def _steps(path: str) -> list[str]:
    return ".".join(str(step) for step in parse_path(path).steps).split(".")
