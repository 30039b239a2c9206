"""Messages from a body to the actor of its run, and what is true when each is answered."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..channel import Reply
from ..messages import Cancel


class Suspend(msgspec.Struct):
    """From a body: it waits for `waiting_for` and releases its slot. Answered when the run is suspended.

    A wait for a time ends at `wakes_at` (Unix seconds), which was `within` seconds away when it began.
    """

    waiting_for: Literal["time", "child", "message"]
    wakes_at: float | None
    within: float | None
    reply: Reply[None]


class Resume(msgspec.Struct):
    """From a body: its wait has ended. Answered when the run has a slot again, or is being ended."""

    reply: Reply[None]


class OpenInterrupt(msgspec.Struct):
    """From a body: open an interrupt. `timeout` is `math.inf` for none.

    `reply` is answered when the interrupt is open: whether the run has released its slot. `answer` is
    answered when the interrupt is closed.
    """

    data: Any
    timeout: float
    key: str
    release_slot: bool
    reply: Reply[bool]
    answer: Reply[Any]


class Save(msgspec.Struct):
    """From a body: save a checkpoint, with the counts of its interrupts and calls. The journal answers when
    the checkpoint is committed."""

    value: Any
    interrupts: int
    calls: int
    attempt: int
    reply: Reply[Any]


class WithdrawInterrupt(msgspec.Struct, gc=False):
    """From a body: it no longer waits for the answer. Has no reply."""

    key: str


class Flag(msgspec.Struct):
    """From a body: it begins or ends a phase. Answered when that is committed."""

    name: Literal["interactive", "streaming", "compacting"]
    value: bool
    reply: Reply[None]


class Taken(msgspec.Struct, gc=False):
    """From a body: it has taken this number of messages. Has no reply."""

    count: int


def cancel_child(run: str) -> Cancel:
    """The message that cancels a child run whose parent is ending or no longer waits for it."""
    return Cancel(run, "engine", "parent_cancelled", "keep", Reply())
