"""How a body goes away while its run waits: it returns a `Pause` instead of a result.

The run is suspended without a body, and costs an actor and a row. When what it waits for has come it gets a
slot and a new body of the same attempt, which goes on from what was committed.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ...persistence.store import Memo
from ...protocol.flow.paths import parse_path


class AwaitedInterrupt(msgspec.Struct, frozen=True, gc=False):
    """An interrupt that is open while the run waits; answering it ends the wait."""

    key: str
    data: Any


class Pause(msgspec.Struct, frozen=True, gc=False):
    """What the run waits for: the time `until` (Unix seconds), a signal that concerns the path `key`, or an
    answer, or a message for its next body. The time is at most `within` seconds away, whatever the clock
    says. `memos` are committed together with the suspension."""

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
    """A value that somebody put into what a run shares; `seq` is that of its event."""

    seq: int
    key: str
    value: Any


def concerns(awaited: str, told: str) -> bool:
    """Whether a value put under one path of shared may be what is awaited at another: one is, or leads to,
    the other. Both may be written in any way that leads there."""
    one, other = _steps(awaited), _steps(told)
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def _steps(path: str) -> list[str]:
    return ".".join(str(step) for step in parse_path(path).steps).split(".")
