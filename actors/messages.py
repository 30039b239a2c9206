"""The messages between actors: who sends each, and what is true when it arrives.

The journal's messages are in `journal/messages.py`, those of a body to its run in `run/body_messages.py`. A
`reply` is answered exactly once, and never before the state in the answer is committed.

The garbage collector does not track messages of plain values (`gc=False`), which live only until they are
handled. It tracks messages with a reply or a submission, which can be part of a cycle through an error's
traceback or a job's closure.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, Literal

import msgspec

from ..persistence.store import Memo, StoredRun, Terms
from ..protocol.errors import GreenroomError
from ..protocol.events import Event, RunStateChanged
from ..protocol.lanes import LaneRules
from ..protocol.records import RunRecord
from ..protocol.submission import OnConflict, OnWait
from ..protocol.validation import FilesFate
from .channel import Reply
from .jobs import Job


class Phase(Enum):
    """Where a pending run waits, or waited, for its start."""

    WAITING = "waiting in its handle"
    QUEUED = "queued in its lane"
    DELAYED = "outside its lane until its time"


class Submission(msgspec.Struct):
    """A submitted run. The supervisor keeps it while the run is pending, and the run's actor uses it, too."""

    id: str
    job: Job
    handle: str
    lane: str
    kind: str
    params: Any  # if `None`, admission replaces it with the handle's draft
    needs: tuple[str, ...]  # the labels of executors
    terms: Terms
    by: str
    created_at: float  # trio's time
    on_wait: OnWait | None
    ended: Reply[RunRecord | None]
    uncommon: dict[str, Any] | None = None  # fields of its first event that few runs have (`fold.UNCOMMON`)
    priority: int | None = None  # if `None`, admission replaces it with the lane's
    key: str | None = None  # given with the submission
    reserves: bool = False  # whether a delayed run meets its handle at once, not at its time
    not_before: float | None = None  # in Unix seconds; the supervisor removes it when the run is due
    delay: float | None = None  # seconds from the submission to `not_before`, of a new delayed run
    due_at: float | None = None  # when a delayed run was due, in trio's time
    place: int | None = None  # set by the supervisor when the run enters its lane
    placed_at: float = 0.0  # trio's time when it got this place
    traced_place: int | None = None  # the place whose wait in the queue has its span
    memos: tuple[Memo, ...] = ()  # committed together with its creation
    events: tuple[Event, ...] = ()  # the same, after its first event
    stored: StoredRun | None = None  # the stored state, after a restart
    begun: bool = False  # set by the supervisor when the run is first granted a slot
    next_attempt: int = 1  # the attempt that the next slot is for; from the run's `Enter`
    body_waits: bool = False  # whether the next slot is for the run's existing body
    committed: bool = False  # set by the journal when its creation is committed
    over: bool = False  # set by the journal when the run's end is committed
    refused: bool = False  # set by the journal, with `over`, if the run could not be stored
    phase: Phase = Phase.WAITING  # set by the supervisor
    shared: Reply[RunRecord | None] | None = None  # answered at its end, for all callers who joined it
    cleared: bool = False  # set by the supervisor: cancelled before it began

    def about(self) -> dict[str, Any]:
        """The fields that every event of the run has; seq and time are set with the commit."""
        return {"seq": 0, "at": 0, "run": self.id, "handle": self.handle, "lane": self.lane}

    @property
    def waits_since(self) -> float:
        """Since when the run could have started, in trio's time."""
        return self.created_at if self.due_at is None else self.due_at

    @property
    def privileged(self) -> bool:
        """Whether the run can start while the engine drains, so that runs that have begun can finish."""
        return self.begun or bool(self.terms.ancestors)


class Accepted(msgspec.Struct, gc=False):
    """The answer to a submission: the run, and whether the submission joined an earlier one.

    `ended`, if set, is answered at the run's end instead of the submission's own reply. All callers who join
    a run share it.
    """

    run: str
    joined: bool
    ended: Reply[RunRecord | None] | None = None


# From callers (the embedding API, the gateway, a body that calls a child) to the supervisor.


class Submit(msgspec.Struct):
    """Submit a run. Answered when the run is created, or with the run that it joins."""

    submission: Submission
    on_conflict: OnConflict
    reply: Reply[Accepted]


class SubmitMany(msgspec.Struct):
    """Submit runs together. Answered when they are created, with the outcome of each, in order. With
    `all_or_nothing`, one refusal refuses all: then the reply fails, and nothing has changed."""

    submissions: Sequence[Submission]
    on_conflicts: Sequence[OnConflict]
    all_or_nothing: bool
    reply: Reply[Sequence[Accepted | GreenroomError]]


class Coalesced(msgspec.Struct):
    """From the journal to the supervisor: a waiting run has the parameters of this submission, or (`held` is
    false) it has ended instead, and nothing was changed."""

    submit: Submit
    run: str
    held: bool


class FindRequest(msgspec.Struct):
    """Find the run of a request id. Answered with its id, the fingerprint of its submission, and its parent
    if it is a pending child; or with `None` if the request id is free."""

    request_id: str
    reply: Reply[tuple[str, str | None, str | None] | None]


class Cancel(msgspec.Struct):
    """Cancel a run; forwarded to the run. Answered when the run is `cancelling` or cancelled, with its
    record; or with `None` if it is not pending."""

    run: str
    by: str
    reason: str
    files: FilesFate
    reply: Reply[RunRecord | None]


def cancel_replaced(run: str, by: str) -> Cancel:
    """The message that cancels a run because another run replaces it.

    No one waits for the reply: a run in post-processing refuses the cancel, and its end is awaited instead.
    """
    return Cancel(run, by, "replaced", "keep", Reply())


class Inject(msgspec.Struct):
    """Send a message to the body of a run, or of a handle's admitted run; forwarded to the run. Answered with
    `accepted` when the message is committed."""

    target: str
    message: Any
    by: str
    reply: Reply[str]


class SendSignal(msgspec.Struct):
    """Set a value in the shared state of a flow's run; forwarded to the run. Answered with `True` when it is
    committed, or with `None` if the run is not pending."""

    run: str
    key: str
    value: Any
    by: str
    reply: Reply[bool | None]


class AnswerInterrupt(msgspec.Struct):
    """Answer an interrupt; forwarded to the run. Answered with `resolved` when that is committed, with
    `already_resolved` or `not_found`, or with `None` if the run is not pending."""

    run: str
    interrupt: str
    data: Any
    by: str
    reply: Reply[str | None]


class SetParams(msgspec.Struct):
    """Set the draft of a handle. Answered when it is committed."""

    handle: str
    params: Any
    by: str
    reply: Reply[None]


class ReleaseHandle(msgspec.Struct):
    """Free a handle that is taken only by the abandoned body of an ended run. Answered with `True` when that
    is committed, or with `False` if there is no such body."""

    handle: str
    by: str
    reply: Reply[bool]


class SetConcurrency(msgspec.Struct):
    """Set the limit of a lane; `None` removes it. Answered when it is committed."""

    lane: str
    limit: int | None
    by: str
    reply: Reply[object]


class PauseLane(msgspec.Struct):
    """Pause a lane, or end its pause. Answered when it is committed."""

    lane: str
    paused: bool
    by: str
    reply: Reply[object]


class SetLane(msgspec.Struct):
    """Change rules of a lane; `changes` are the new values of some. Answered with the rules, when they are
    committed."""

    lane: str
    changes: dict[str, Any]
    by: str
    reply: Reply[LaneRules]


class SetPriority(msgspec.Struct):
    """Change the priority of a run that has not begun. Answered with `True` when it is committed, or with
    `None` if it is not pending."""

    run: str
    priority: int
    by: str
    reply: Reply[bool | None]


class SetMaxConcurrent(msgspec.Struct):
    """Set the global limit. Answered when it is committed."""

    limit: int
    by: str
    reply: Reply[object]


class Clear(msgspec.Struct):
    """Cancel the runs that are queued in a lane or wait in handles for it, or that wait in a handle. Answered
    with the number of cancelled runs, when all are cancelled."""

    reason: Literal["lane_cleared", "handle_cleared"]
    name: str
    by: str
    reply: Reply[int]


class ResetLanes(msgspec.Struct):
    """Free the slots of all executing runs. Answered when that is committed."""

    by: str
    reply: Reply[object]


class WaitForActive(msgspec.Struct):
    """Wait for the runs that hold a slot now. Answered when all of them have released it. `ending`: only for
    those whose bodies end with this process, not for those in attached executors."""

    reply: Reply[bool]
    ending: bool = False


class NotWaiting(msgspec.Struct):
    """The caller of `WaitForActive` no longer waits for this reply."""

    reply: Reply[bool]


class SetDraining(msgspec.Struct):
    """Refuse new runs and start none, or accept and start them again. Answered when it is committed."""

    draining: bool
    by: str
    reply: Reply[object]


class Closing(msgspec.Struct):
    """The engine shuts down: accept no new runs, and start only privileged ones; with `now`, start none.
    Answered when every earlier start is committed and its run has received it."""

    now: bool
    reply: Reply[object]


# From the registry of executors to the supervisor.


class ExecutorReady(msgspec.Struct, gc=False):
    """An executor has attached, or has changed. `slots` is `None` if it has no limit of its own. `draining`:
    it accepts no new bodies, because it drains or is disconnected; bodies that wait there can resume."""

    executor: str
    slots: int | None
    jobs: frozenset[str]
    labels: frozenset[str]
    draining: bool = False


class ExecutorRemoved(msgspec.Struct, gc=False):
    """An executor has ended or counts as lost. The runs that had bodies there report it themselves."""

    executor: str


class ExecutorUnfit(msgspec.Struct, gc=False):
    """An executor has refused a body of this job. It gets no other one until it is removed and attaches
    again. Sent before the run requests another slot."""

    executor: str
    job: str
    why: str


# From the journal to the supervisor.


class NotStored(msgspec.Struct, gc=False):
    """From the journal: a new run could not be stored, so it does not exist."""

    run: str


class StoreIsDown(msgspec.Struct, gc=False):
    """From the journal: the store is down or, with `down` false, is back."""

    down: bool


class Forget(msgspec.Struct, gc=False):
    """From the journal to a run: it could not be stored, so it does not exist."""


# Between supervisor and runs. Messages from the journal report committed changes.


class Started(msgspec.Struct, gc=False):
    """From the journal to a run: it has a slot and is `running`. `resumes`: the slot is for the body that the
    run had when it requested the slot. The seq of `event` is the fence of a new body."""

    attempt: int
    generation: int
    resumes: bool
    event: RunStateChanged


class Begun(msgspec.Struct, gc=False):
    """From the journal to the supervisor: the start of a run that has reserved a token of a rate is
    committed."""

    run: str


class NotStarted(msgspec.Struct, gc=False):
    """From the journal to the supervisor: the start was refused, so the slot must be released."""

    run: str
    generation: int


class Enter(msgspec.Struct, gc=False):
    """From a run that has begun to the supervisor: it requests a slot for this attempt, at its place or, for
    a retry, at a new one. `live_body`: for its existing body."""

    run: str
    attempt: int
    live_body: bool = False
    new_place: bool = False


class Suspect(msgspec.Struct, gc=False):
    """From a run to the supervisor, before its `Enter`: an executor process died while it executed the run.
    `deaths` is the number of processes that died in this way."""

    run: str
    deaths: int


class Leave(msgspec.Struct, gc=False):
    """From a run to the supervisor: it no longer requests a slot. `live_body`: it has a body."""

    run: str
    live_body: bool = False


class Left(msgspec.Struct, gc=False):
    """To the supervisor: the run has released its slot of this generation or, with `None`, has left the
    queue.

    `body_waits`: its body still executes. The run itself sends this for a slot, before the change that
    suspends or ends it is committed: the next run can then be started by the same commit. Otherwise the
    journal sends it.
    """

    run: str
    generation: int | None
    body_waits: bool = False


class Ended(msgspec.Struct, gc=False):
    """A run has ended. `body_remains`: its abandoned body still executes."""

    run: str
    body_remains: bool


class RunsEnded(msgspec.Struct, gc=False):
    """From the journal to the supervisor: these runs have ended in one commit."""

    runs: list[Ended]


class Cancelling(msgspec.Struct, gc=False):
    """From the journal to the supervisor: the run is being cancelled and can no longer be joined."""

    run: str


class BodyGone(msgspec.Struct, gc=False):
    """From a run to the supervisor: the abandoned body of an ended run has ended."""

    run: str
    handle: str


class Recover(msgspec.Struct, gc=False):
    """From the supervisor, at the engine's start, to a run that had begun: continue, or end.

    `children` are its pending child runs. `deaths` is the number of processes that died while it had a body,
    or 0 if it had none when the last one died.

    `awaits_executor`: its body can still execute at its executor. Then the run keeps its slot of this
    `generation` (`None` if it has none), waits for the executor, and does not answer with `Recovered`.
    """

    children: list[str]
    deaths: int = 0
    awaits_executor: bool = False
    generation: int | None = None


class Recovered(msgspec.Struct, gc=False):
    """From a run to the supervisor: its recovery is complete; it has ended, requests a slot, or waits."""


class Reject(msgspec.Struct, gc=False):
    """From the supervisor, at the engine's start, to a queued run: it can no longer be started."""

    why: str


class Evict(msgspec.Struct, gc=False):
    """From the registry of executors to a run: its executor drains, and its time limit has passed. The run
    continues elsewhere, if its job is resumable, or is cancelled."""


class KeepTime(msgspec.Struct, gc=False):
    """From the supervisor to a queued run: it has a deadline, so its actor must be awake. Sent to a delayed
    run when it is due."""


class Stop(msgspec.Struct, gc=False):
    """To a run, at the engine's shutdown: first it has time to finish; with `now`, end its execution."""

    now: bool
