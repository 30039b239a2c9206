"""The journal's messages other than changes (`change.py`): who sends each, and when it is answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ...persistence.failures import StoreBroken, StoreDown
from ...protocol.errors import GreenroomError, Unavailable
from ...protocol.fold import Projection
from ...protocol.records import RunRecord
from ..channel import Reply
from ..messages import Accepted, Submission
from .change import Change


class Answer(msgspec.Struct):
    """From an actor: answer this reply when everything before it is committed.

    If the run that it is `about` could not be stored, the reply fails with `unavailable` instead.
    """

    reply: Reply[Any]
    value: object = None
    error: GreenroomError | None = None
    about: Submission | None = None


Outcome = Accepted | GreenroomError | Callable[[Projection], GreenroomError]
"""The outcome of one submission of a batch; an error with committed state is made when it is answered."""


class AnswerMany(msgspec.Struct):
    """From the supervisor: answer a batch of submissions when everything before it is committed.

    If one of the runs that the outcomes are `about` could not be stored, none of the batch was, and the reply
    fails with `unavailable` instead.
    """

    reply: Reply[Sequence[Accepted | GreenroomError]]
    outcomes: Sequence[Outcome]
    about: Sequence[Submission | None]


class Look(msgspec.Struct):
    """A query of the committed state; answered when everything before it is committed.

    `read` receives the projection and must not keep it. If it raises a `GreenroomError`, the reply fails with
    that error.
    """

    read: Callable[[Projection], object]
    reply: Reply[Any]


class Mention(msgspec.Struct):
    """From a body: a change without urgency. It is committed with the next change, or after a short delay.
    Has no reply."""

    change: Change


class ReadFailed(msgspec.Struct):
    """From a body or a helper task: the store could not be read. Answered when the store is back.

    `commits` is the committer's count at that time: if it has changed since, the store is already back.
    """

    error: StoreDown
    commits: int
    reply: Reply[None]


class StoreIsDamaged(msgspec.Struct):
    """The stored data is inconsistent: the journal stops, and with it the engine."""

    error: StoreBroken


class WatchEnd(msgspec.Struct):
    """Watch for the end of a run. Answered with its record when the run has ended, or with `None` if the run
    is no longer in memory."""

    run: str
    reply: Reply[RunRecord | None]


def unavailable() -> Unavailable:
    """The error for submissions while the store is down."""
    return Unavailable("the store is unavailable and nothing was changed: retry later")
