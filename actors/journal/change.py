"""A change: what an actor requests to commit, and who is notified of the commit."""

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
"""A body can report while its run has one of these statuses."""


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a change: whether it was accepted (`held`), the run as it is now, and the last seq."""

    held: bool
    run: RunRecord | None
    seq: int


class Change(msgspec.Struct):
    """From an actor or a body to the journal: events about at most one run, committed all or none.

    `expect`, `attempt` and `generation` (of the run's lane) are compared with the committed state; `None`
    compares nothing. If all match, the change is accepted; otherwise it changes nothing.

    After the commit, `notify` are delivered before the change is visible to others, and `ended` is sent to
    the supervisor. `notify_on_refusal` are delivered if the change was refused. `notify_run` sends the run's
    actor `Committed` in both cases. `watch` is answered when the run has ended. `submission` is marked as
    `over` when this change ends it, or if the change `creates` the run and it cannot be stored. `reply` is
    answered with `answer` or, without one and after a refusal, with the `Outcome`. If there is an `answer`
    and the refusal is notified, the receiver of that message answers the reply.
    """

    events: tuple[Event, ...]
    run: str | None = None
    expect: frozenset[Status] | None = None
    attempt: int | None = None
    generation: int | None = None
    memos: tuple[Memo, ...] = ()
    notify: tuple[tuple[Kind, str, object], ...] = ()
    notify_on_refusal: tuple[tuple[Kind, str, object], ...] = ()
    ended: Ended | None = None
    terms: Terms | None = None
    watch: Reply[RunRecord | None] | None = None
    submission: Submission | None = None
    creates: bool = False
    reply: Reply[Any] | None = None
    answer: object = None
    notify_run: bool = False


class Committed(msgspec.Struct, gc=False):
    """From the journal to a run's actor: the outcome of the change that it waits for."""

    outcome: Outcome


class ProgressReport(msgspec.Struct, gc=False):
    """From a body to the journal: its progress. At most one per run waits; until the journal takes it, newer
    values replace `latest`."""

    run: str
    handle: str
    lane: str
    attempt: int
    latest: tuple[float | None, float | None, dict[str, Any]] | None = None
    taken: tuple[float | None, float | None, dict[str, Any]] | None = None  # for a second decision
