"""What a body says to the actor of its run. Each says what is true when it is answered."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..channel import Reply
from ..messages import Cancel


class Suspend(msgspec.Struct):
    """From a body: it waits for `waiting_for` without needing its slot; for a time, in Unix seconds, which
    was so many seconds away when the wait began."""

    waiting_for: Literal["time", "child", "message"]
    wakes_at: float | None
    within: float | None
    reply: Reply[None]


class Resume(msgspec.Struct):
    """From a body: its wait is over; answered when it has a slot again, or needs none any more."""

    reply: Reply[None]


class Ask(msgspec.Struct):
    """From a body: an interrupt. `timeout` is `math.inf` for none. `reply` is answered when it is open, with
    whether the body has no slot meanwhile; `answer` when it is closed."""

    data: Any
    timeout: float
    key: str
    release_slot: bool
    reply: Reply[bool]
    answer: Reply[Any]


class Save(msgspec.Struct):
    """From a body: a checkpoint, with the counts of its interrupts and calls. Answered by the journal."""

    value: Any
    interrupts: int
    calls: int
    attempt: int
    reply: Reply[Any]


class Unask(msgspec.Struct, gc=False):
    """From a body: it doesn't wait for the answer any more."""

    key: str


class Flag(msgspec.Struct):
    """From a body: it begins or ends a phase."""

    name: Literal["interactive", "streaming", "compacting"]
    value: bool
    reply: Reply[None]


class Taken(msgspec.Struct, gc=False):
    """From a body: it has taken this many messages."""

    count: int


def cancel_child(run: str) -> Cancel:
    """The message that cancels a child whose parent is ending or doesn't wait for it any more."""
    return Cancel(run, "engine", "parent_cancelled", "keep", Reply())
