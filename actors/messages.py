"""What the actors say to each other. Each message says who sends it, and what is true when it arrives.

The journal's messages stand in `journalmessages.py`, those of a body to its run in `run/body_messages.py`:
nobody else speaks them. A `reply` is answered exactly once, and never before the state it names is committed.

Messages of plain values are not tracked by the garbage collector (`gc=False`): they live for one hop. Those
with a reply or a submission may come to stand in a cycle, through an error's traceback or a job's closure.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal

import msgspec

from ..persistence.store import Memo, StoredRun, Terms
from ..protocol.records import RunRecord
from ..protocol.submission import OnConflict, OnWait
from ..protocol.validation import FilesFate
from .channel import Reply
from .jobs import Job


class Phase(Enum):
    """Where a pending run waits, or has waited, for its start."""

    WAITING = "it waits in its handle"
    QUEUED = "it has entered its lane"


class Submission(msgspec.Struct):
    """A run as it was submitted. It goes from the caller through supervisor and handle to lane and run."""

    id: str
    job: Job
    handle: str
    lane: str
    kind: str
    params: Any  # `None` until the handle has put its draft here, if none were given
    terms: Terms
    by: str
    created_at: float  # trio's time
    on_wait: OnWait | None
    ended: Reply[RunRecord | None]
    place: int | None = None  # set by the supervisor when it lets the run into its lane
    memos: tuple[Memo, ...] = ()  # what is committed together with its creation
    stored: StoredRun | None = None  # what the store held of it, if it goes on after a restart
    begun: bool = False  # set by the supervisor when it gives the run a slot for the first time
    next_attempt: int = 1  # the attempt that the next slot is for, as the run has told the supervisor
    body_waits: bool = False  # whether the next slot is for a body that the run has
    committed: bool = False  # set by the journal the moment that its creation is committed
    over: bool = False  # set by the journal the moment that the run's end is committed
    refused: bool = False  # set by the journal if the run could not be stored; it is `over` then, too
    phase: Phase = Phase.WAITING  # set by the supervisor
    shared: Reply[RunRecord | None] | None = None  # what its end answers to all callers who have joined it
    cleared: bool = False  # set by the supervisor: it has not begun, and is being cancelled

    def about(self) -> dict[str, Any]:
        """What every event of the run begins with; number and time come when it is committed."""
        return {"seq": 0, "at": 0, "run": self.id, "handle": self.handle, "lane": self.lane}

    @property
    def privileged(self) -> bool:
        """Whether the run may execute while the engine drains: without it, something that has begun could
        not finish."""
        return self.begun or bool(self.terms.ancestors)


class Accepted(msgspec.Struct):
    """The answer to a submission: the run, and whether it was there before. `ended` is what its end answers
    instead of the submission's own reply: the same for all callers who join it, so that none costs more."""

    run: str
    joined: bool
    ended: Reply[RunRecord | None] | None = None


# From callers (the embedding API, the gateway, a body that calls a child) to the supervisor.


class Submit(msgspec.Struct):
    """Take a run. The supervisor passes it on to the handle."""

    submission: Submission
    on_conflict: OnConflict
    reply: Reply[Accepted]


class FindRequest(msgspec.Struct):
    """Which run a request id has made: answered with its id, the fingerprint of what was submitted, and the
    run's parent if it is a pending child; `None` if the request id is free."""

    request_id: str
    reply: Reply[tuple[str, str | None, str | None] | None]


class Cancel(msgspec.Struct):
    """Cancel a run; passed on to it. Answered with the run as it then is, or `None` if it isn't pending."""

    run: str
    by: str
    reason: str
    files: FilesFate
    reply: Reply[RunRecord | None]


def cancel_replaced(run: str, by: str) -> Cancel:
    """Another run came to replace this one. Nobody waits for the reply: post-processing refuses a cancel, and
    is waited for instead."""
    return Cancel(run, by, "replaced", "keep", Reply())


class Inject(msgspec.Struct):
    """A message for the body of a run, or of a handle's admitted run; passed on to handle and run."""

    target: str
    message: Any
    by: str
    reply: Reply[str]


class SendSignal(msgspec.Struct):
    """A value for what a flow's run shares; passed on to the run. Answered with `True` when it is
    committed, or `None` if the run isn't pending."""

    run: str
    key: str
    value: Any
    by: str
    reply: Reply[bool | None]


class AnswerInterrupt(msgspec.Struct):
    """An answer to an open interrupt; passed on to the run. `None` if the run isn't pending."""

    run: str
    interrupt: str
    data: Any
    by: str
    reply: Reply[str | None]


class SetParams(msgspec.Struct):
    """A new draft for a handle; passed on to it."""

    handle: str
    params: Any
    by: str
    reply: Reply[None]


class ReleaseHandle(msgspec.Struct):
    """Free a handle whose ended run left a body behind; passed on to it. Answers whether it was taken so."""

    handle: str
    by: str
    reply: Reply[bool]


class SetConcurrency(msgspec.Struct):
    """A new limit for a lane, `None` for none of its own."""

    lane: str
    limit: int | None
    by: str
    reply: Reply[object]


class SetMaxConcurrent(msgspec.Struct):
    """A new global limit."""

    limit: int
    by: str
    reply: Reply[object]


class Clear(msgspec.Struct):
    """Cancel what is queued in a lane (and waits in handles for it), or waits in a handle. Answers how
    many."""

    reason: Literal["lane_cleared", "handle_cleared"]
    name: str
    by: str
    reply: Reply[int]


class ResetLanes(msgspec.Struct):
    """Free the slots of everything that executes."""

    by: str
    reply: Reply[object]


class WaitForActive(msgspec.Struct):
    """Answered when every run that holds a slot now has given it back."""

    reply: Reply[bool]


class NotWaiting(msgspec.Struct):
    """Nobody waits for this reply to a `WaitForActive` any more."""

    reply: Reply[bool]


class SetDraining(msgspec.Struct):
    """Refuse new runs and start none, or do so again."""

    draining: bool
    by: str
    reply: Reply[object]


class Closing(msgspec.Struct):
    """The engine is being left: take nothing new, and start only what is privileged; `now`, nothing at all.
    Answered when every start before is committed, and its run told."""

    now: bool
    reply: Reply[object]


# From the journal to the supervisor.


class NotStored(msgspec.Struct, gc=False):
    """From the journal: a new run could not be stored, so there is none."""

    run: str


class StoreIsDown(msgspec.Struct, gc=False):
    """From the journal: nothing can be committed just now, or (`down` false) it can again."""

    down: bool


class Forget(msgspec.Struct, gc=False):
    """From the journal to a run: it could not be stored, so there is none."""


# Between supervisor and runs. What the journal tells is committed.


class Started(msgspec.Struct, gc=False):
    """From the journal to a run: it has a slot, and is `running`. `resumes`: for the body that it had when it
    asked for the slot."""

    attempt: int
    generation: int
    resumes: bool


class NotStarted(msgspec.Struct, gc=False):
    """From the journal to the supervisor: the run was not there to start; its slot is free."""

    run: str
    generation: int


class Enter(msgspec.Struct, gc=False):
    """From a run that has begun to the supervisor: it wants a slot for this attempt, at the place that it has
    or, for a retry, at a new one. `live_body`: for the body that it has."""

    run: str
    attempt: int
    live_body: bool = False
    new_place: bool = False


class Leave(msgspec.Struct, gc=False):
    """From a run to the supervisor: it wants no slot any more, or not now. `live_body`: it has a body."""

    run: str
    live_body: bool = False


class Left(msgspec.Struct, gc=False):
    """To the supervisor: the run has given back its slot of that generation, or its place in the queue where
    that is `None`. `body_waits`: its body lives on. The run itself gives back a slot, together with the
    change that says so: whoever gets it can then be started by the same commit."""

    run: str
    generation: int | None
    body_waits: bool = False


class Ended(msgspec.Struct, gc=False):
    """A run has ended, and needs neither slot nor place any more. `body_remains`: its abandoned body still
    executes."""

    run: str
    body_remains: bool


class RunsEnded(msgspec.Struct, gc=False):
    """From the journal to the supervisor: these runs have ended, by one commit."""

    runs: list[Ended]


class Cancelling(msgspec.Struct, gc=False):
    """From the journal to the supervisor: the run is being cancelled, so nobody can join it any more."""

    run: str


class BodyGone(msgspec.Struct, gc=False):
    """From a run to the supervisor: the abandoned body of an ended run has ended, too."""

    run: str
    handle: str


class Recover(msgspec.Struct, gc=False):
    """To a run that had begun, at the start: go on, or end. `children` are the runs that it waited for;
    `deaths` how many processes have died while it had a body, if it had one when the last one did."""

    children: list[str]
    deaths: int = 0


class Recovered(msgspec.Struct, gc=False):
    """From a run to the supervisor: it has ended, or wants a slot again, or waits for something."""


class Reject(msgspec.Struct, gc=False):
    """To a queued run, at the start: it can't be started any more."""

    why: str


class KeepTime(msgspec.Struct, gc=False):
    """From the supervisor: the run has a deadline to watch while it is queued."""


class Stop(msgspec.Struct, gc=False):
    """To a run, at the engine's end: first a word to finish, then `now`."""

    now: bool
