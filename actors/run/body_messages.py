"""Messages from a body to the actor of its run, and what is true when each is answered."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..channel import Reply
from ..messages import Cancel
from .pause import Pause
from .retries import Decision


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


class Adopted(msgspec.Struct, gc=False):
    """From an executor that has attached again with the body: the body repeats the requests whose answers it
    has not received. Has no reply."""


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
    """From a body: it has taken its messages up to this seq. Has no reply."""

    seq: int


class Returned(msgspec.Struct):
    """The body returned a value. `obeyed`: it had read `cancel_requested` since it became true."""

    value: Any
    obeyed: bool = False


class Raised(msgspec.Struct):
    """The body raised. `decision`: what follows, if another process has decided it."""

    error: BaseException
    decision: Decision | None = None


class Stopped(msgspec.Struct):
    """The body ended because its scope was cancelled."""


class Lost(msgspec.Struct, gc=False):
    """The body's executor is lost. `died`: its process has died, perhaps because of the body. `forgotten`:
    the executor is not lost, but no longer has the body."""

    why: str
    died: bool = False
    forgotten: bool = False


class NeverBegan(msgspec.Struct, gc=False):
    """The body has not begun, because its executor has not received the order and never will."""


class Unfit(msgspec.Struct, gc=False):
    """The executor cannot execute the body, which has not begun."""

    why: str


class BodyEnded(msgspec.Struct):
    """The body has ended. With a `Pause`, the run continues later with a new body."""

    outcome: Returned | Raised | Stopped | Lost | NeverBegan | Unfit | Pause


def cancel_child(run: str) -> Cancel:
    """The message that cancels a child run whose parent is ending or no longer waits for it."""
    return Cancel(run, "engine", "parent_cancelled", "keep", Reply())
