"""The state machine of a run: one table, from which everything else derives.

Theory of operation. A run has one of nine statuses. Four ranks order them (queued; running and suspended;
cancelling; ended), and a run never returns to a lower rank. Each row of `TRANSITIONS` contains a status, the
statuses from which a run can enter it, and what decides so. `Body` narrows a row where it matters whether the
run has a live body: a suspended run waits inside its body (for an answer, for example) or without one (for a
retry, or after a restart), and only the first can become *cancelling*.

The journal's compare-and-set, the WHERE clauses of the SQL stores, the documentation and the tests all use
this table. No other module restates it.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import NamedTuple


class Status(StrEnum):
    """The status of a run."""

    QUEUED = "queued"
    RUNNING = "running"
    SUSPENDED = "suspended"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    REJECTED = "rejected"


class Body(StrEnum):
    """What a transition requires of the run's body."""

    ANY = "any"
    LIVE = "with a live body"
    NONE = "without a body"


class Source(NamedTuple):
    """A status from which a transition starts, and what it requires of the body."""

    status: Status
    body: Body = Body.ANY


class Transition(NamedTuple):
    """One row: the status entered, the statuses before it, and what decides."""

    to: Status
    sources: tuple[Source, ...]
    decided_by: str


TRANSITIONS: tuple[Transition, ...] = (
    Transition(Status.QUEUED, (), "admission, or waiting in the handle"),
    Transition(Status.RUNNING, (Source(Status.QUEUED), Source(Status.SUSPENDED)), "the lane grants a slot"),
    Transition(Status.SUSPENDED, (Source(Status.RUNNING),), "the run waits without a slot"),
    Transition(
        Status.CANCELLING,
        (Source(Status.RUNNING), Source(Status.SUSPENDED, Body.LIVE)),
        "a user cancels",
    ),
    Transition(
        Status.SUCCEEDED,
        (Source(Status.RUNNING), Source(Status.SUSPENDED), Source(Status.CANCELLING)),
        "the body ended",
    ),
    Transition(
        Status.FAILED,
        (Source(Status.RUNNING), Source(Status.SUSPENDED), Source(Status.CANCELLING)),
        "the body ended",
    ),
    Transition(
        Status.CANCELLED,
        (Source(Status.QUEUED), Source(Status.CANCELLING), Source(Status.SUSPENDED, Body.NONE)),
        "a user, a clear, the end of a cancel",
    ),
    Transition(
        Status.TIMED_OUT,
        (
            Source(Status.QUEUED),
            Source(Status.RUNNING),
            Source(Status.SUSPENDED),
            Source(Status.CANCELLING),
        ),
        "a deadline, once the body has ended or was abandoned",
    ),
    Transition(
        Status.REJECTED,
        (Source(Status.QUEUED), Source(Status.SUSPENDED, Body.NONE)),
        "it can no longer be started",
    ),
)

_BY_TARGET = {row.to: row for row in TRANSITIONS}

ENDED: frozenset[Status] = frozenset(
    status for status in Status if not any(status == s.status for row in TRANSITIONS for s in row.sources)
)
PENDING: frozenset[Status] = frozenset(Status) - ENDED
UNSUCCESSFUL: frozenset[Status] = ENDED - {Status.SUCCEEDED, Status.CANCELLED}
"""The statuses of runs that ended without success and were not cancelled: what `retry` accepts."""

_RANKS = {Status.QUEUED: 0, Status.RUNNING: 1, Status.SUSPENDED: 1, Status.CANCELLING: 2}


def rank(status: Status) -> int:
    """Return the rank of a status; a run never moves to a lower one."""
    return _RANKS.get(status, 3)


@cache
def allowed_from(to: Status, *, live_body: bool | None = None) -> frozenset[Status]:
    """Return the statuses from which a run can enter `to`.

    `live_body`: whether the run has a live body; `None` returns the statuses allowed in either case.
    """
    unfit = {True: Body.NONE, False: Body.LIVE}.get(live_body) if live_body is not None else None
    return frozenset(source.status for source in _BY_TARGET[to].sources if source.body != unfit)


class HandleStatus(StrEnum):
    """What a user interface shows for a handle."""

    IDLE = "Idle"
    QUEUED = "Queued"
    RUNNING = "Running"
    DONE = "Done"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


_SHOWN = {
    Status.QUEUED: HandleStatus.QUEUED,
    Status.RUNNING: HandleStatus.RUNNING,
    Status.SUSPENDED: HandleStatus.RUNNING,
    Status.CANCELLING: HandleStatus.RUNNING,
    Status.SUCCEEDED: HandleStatus.DONE,
    Status.FAILED: HandleStatus.FAILED,
    Status.TIMED_OUT: HandleStatus.FAILED,
    Status.REJECTED: HandleStatus.FAILED,
    Status.CANCELLED: HandleStatus.CANCELLED,
}


def handle_status(before: Status | None, status: Status) -> HandleStatus:
    """Return the status of a handle after its admitted run changed from `before` to `status`."""
    if before is Status.QUEUED and status is Status.CANCELLED:
        return HandleStatus.IDLE  # the run never started
    return _SHOWN[status]
