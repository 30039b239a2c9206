"""The messages of the schedules: who sends each, and when it is answered."""

from __future__ import annotations

from typing import Literal

import msgspec

from ...protocol.errors import GreenroomError
from ...protocol.schedules import ScheduleDefinition, ScheduleRecord
from ..channel import Reply

Source = Literal["api", "code", "config"]


class Put(msgspec.Struct):
    """From a caller: create or change a schedule; a new one, or one with other due times, gets this id.
    Answered with its record when that is committed."""

    definition: ScheduleDefinition
    id: str
    paused: bool | None
    by: str
    reply: Reply[ScheduleRecord]
    source: Source = "api"


class SetPaused(msgspec.Struct):
    """From a caller: pause or resume a schedule. Answered with its record when that is committed."""

    schedule: str
    paused: bool
    by: str
    reply: Reply[ScheduleRecord]


class Delete(msgspec.Struct):
    """From a caller: delete a schedule. Answered when that is committed."""

    schedule: str
    by: str
    reply: Reply[object]
    source: Source = "api"


class FiringEnded(msgspec.Struct):
    """From a helper task: the submission of a firing was accepted or refused."""

    schedule: str
    run: str | None = None
    joined: bool = False
    error: GreenroomError | None = None


class TellWhenResumed(msgspec.Struct, gc=False):
    """To the supervisor: it has refused a firing because the engine drains. Answered with `Resumed`."""


class Resumed(msgspec.Struct, gc=False):
    """From the supervisor or the journal: the engine does not drain, and accepts runs."""


class StoreIsBack(msgspec.Struct, gc=False):
    """From the journal: the store, which was down, is back."""
