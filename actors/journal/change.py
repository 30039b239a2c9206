"""A change: what an actor wants committed, and who is to hear of it when it is."""

from __future__ import annotations

from typing import Any

import msgspec

from ...persistence.store import Memo, Terms
from ...protocol.events import Event
from ...protocol.records import RunRecord
from ...protocol.states import Status
from ..actor import Kind
from ..channel import Reply
from ..messages import Ended, Submission

REPORTING: frozenset[Status] = frozenset({Status.RUNNING, Status.SUSPENDED, Status.CANCELLING})
"""A body may report while its run has one of these."""


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What became of a change: whether it held, the run as it is now, and the last seq."""

    held: bool
    run: RunRecord | None
    seq: int


class Change(msgspec.Struct):
    """Some events about at most one run that hold together or not at all.

    `expect`, `attempt` and `generation` (of the run's lane) are compared with what is committed; `None`
    compares nothing. `tells` are delivered after the commit, before anyone else learns of it, and the
    supervisor hears of the run that has `ended`. `watch` is
    answered when the run has ended; `submission` is marked as over when this change ends it, or if it
    `creates` the run and can't be stored. `answer` is what the reply gets when the change holds; without it
    the reply gets the `Outcome`.
    """

    events: tuple[Event, ...]
    run: str | None = None
    expect: frozenset[Status] | None = None
    attempt: int | None = None
    generation: int | None = None
    memos: tuple[Memo, ...] = ()
    tells: tuple[tuple[Kind, str, object], ...] = ()
    else_tells: tuple[tuple[Kind, str, object], ...] = ()
    ended: Ended | None = None
    terms: Terms | None = None
    watch: Reply[RunRecord | None] | None = None
    submission: Submission | None = None
    creates: bool = False
    reply: Reply[Any] | None = None
    answer: object = None
    tells_run: bool = False


class Committed(msgspec.Struct, gc=False):
    """From the journal to a run's actor: what has become of the change that it waits for."""

    outcome: Outcome


class ProgressReport(msgspec.Struct, gc=False):
    """How far a body has come. One per run waits at most: `latest` is replaced until the journal takes it."""

    run: str
    handle: str
    lane: str
    attempt: int
    latest: tuple[float | None, float | None, dict[str, Any]] | None = None
    taken: tuple[float | None, float | None, dict[str, Any]] | None = None  # for deciding once more
