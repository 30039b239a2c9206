"""What the journal is told besides changes (`change.py`). Each message says who sends it, and what is true
when it is answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ...persistence.failures import StoreBroken, StoreDown
from ...protocol.errors import GreenroomError, Unavailable
from ...protocol.fold import Projection
from ...protocol.records import RunRecord
from ..channel import Reply
from ..messages import Submission
from .change import Change


class Answer(msgspec.Struct):
    """A reply that waits for the commit of everything before it. If the run that it is `about` could not be
    stored, it can't be given, and `unavailable` is."""

    reply: Reply[Any]
    value: object = None
    error: GreenroomError | None = None
    about: Submission | None = None


class Look(msgspec.Struct):
    """An interrupt about what is committed; `read` sees the projection and must not keep it. It may raise a
    `GreenroomError`, which is the answer then."""

    read: Callable[[Projection], object]
    reply: Reply[Any]


class Mention(msgspec.Struct):
    """A change that nobody waits for, and that is worth no commit of its own: it is committed with the next
    one, or after a moment."""

    change: Change


class NotRead(msgspec.Struct):
    """The store could not be read, after so many commits. Answered when it is back."""

    error: StoreDown
    commits: int
    reply: Reply[None]


class StoreIsDamaged(msgspec.Struct):
    """What is stored can't be relied on any more: the journal stops, and the engine with it."""

    error: StoreBroken


class WatchEnd(msgspec.Struct):
    """Reply with the run's record when it has ended; with `None` if the run isn't known here any more."""

    run: str
    reply: Reply[RunRecord | None]


def unavailable() -> Unavailable:
    """What a submission is told while the store is down."""
    return Unavailable("the store can't be written just now, and nothing was changed: try again later")
