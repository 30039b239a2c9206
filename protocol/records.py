"""The records of a snapshot. They are frozen, so a record never changes after it was passed to a caller.

The garbage collector does not track records (`gc=False`): they contain only JSON values, which have no
cycles, and an engine can keep very many of them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .lanes import DEFAULT_RULES, LaneRules
from .schedules import ScheduleRecord
from .states import ENDED, HandleStatus, Status

KEPT_ENDED_RUNS = 1000
"""The number of ended runs in a snapshot; older ones are only in the store."""


UNTIL_TIME = "time"
"""What a queued run waits for (`waiting_for`) until its time."""
UNTIL_HANDLE_FREE = "handle"
"""What a delayed run waits for if its handle is taken at its time."""


class RunRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One run, as clients see it. Times are Unix seconds.

    `fence` is the seq of the event with which its last body started; it only grows for a handle. `executor`
    is where that body executes; `None` for the engine's own process. `needs` are the labels that an executor
    must have to execute the run: those of the job and of the submission. `key` is what a lane's fairness and
    limits per key tell its runs apart by. The run does not start before `not_before`; until then, a queued
    run has `waiting_for` `time`. `parent` is the run whose body called it. `placed_at` is when it got its
    place, if that was not when it was created.
    """

    id: str
    handle: str
    lane: str
    job: str
    kind: str
    params: Any
    needs: tuple[str, ...] = ()
    tags: dict[str, str] = {}
    priority: int = 0
    key: str | None = None
    not_before: float | None = None
    parent: str | None = None
    status: Status
    reason: str | None = None
    attempt: int = 0
    place: int | None = None
    placed_at: float | None = None
    detached: bool = False
    interactive: bool = False
    streaming: bool = False
    compacting: bool = False
    waiting_for: str | None = None
    executor: str | None = None
    fence: int | None = None
    progress: dict[str, Any] | None = None
    result: Any = None
    error: str | None = None
    created_at: float
    started_at: float | None = None
    ended_at: float | None = None
    updated_at: float

    @property
    def ended(self) -> bool:
        """Whether the status is final."""
        return self.status in ENDED

    @property
    def delayed(self) -> bool:
        """Whether the run waits for its `not_before`. It has a place only if it holds its handle."""
        return self.status is Status.QUEUED and self.waiting_for == UNTIL_TIME


class RunFile(msgspec.Struct, frozen=True, gc=False):
    """A file that a run has finished, by its path in the handle's folder. `folder` is the id of the data
    folder that has it; it is empty for the engine's own, and only there is the `size` in bytes known."""

    path: str
    size: int | None
    folder: str


class EngineState(msgspec.Struct, frozen=True, gc=False):
    """The engine as a whole. `executing` counts the slots in use, `queued` the queued runs."""

    max_concurrent: int
    executing: int
    queued: int
    draining: bool


class LaneState(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A lane. `limit` is `None` if only the global limit applies; `queued` is in order of place, whatever the
    priorities. `rules` are those by which the lane chooses its next run."""

    limit: int | None
    generation: int
    executing: list[str]
    queued: list[str]
    paused: bool = False
    rules: LaneRules = DEFAULT_RULES

    def is_as_new(self, name: str) -> bool:
        """Whether the lane of this name is as a lane that was never used."""
        as_new = self.limit == default_limit(name) and not self.generation and not self.paused
        return as_new and self.rules == DEFAULT_RULES


class HandleState(msgspec.Struct, frozen=True, gc=False):
    """A handle: its status, its admitted run, the runs that wait in it, and its draft."""

    status: HandleStatus
    locked: bool
    active_run: str | None
    waiting: list[str]
    params: Any = None


class InterruptState(msgspec.Struct, frozen=True, gc=False):
    """An open interrupt."""

    run: str
    key: str
    data: Any
    opened_at: float
    deadline: float | None


class ExecutorState(msgspec.Struct, frozen=True, gc=False):
    """An executor: `attached`, `disconnected` or `draining`, its limit of bodies (`None` for no limit of its
    own), its labels, its jobs, the ttl of its lease in seconds, and the start id of its process, which is
    another one after each start of a process under the same id."""

    status: str
    slots: int | None
    labels: tuple[str, ...]
    jobs: tuple[str, ...]
    ttl: float | None = None
    start: str = ""


class ExecutorInfo(msgspec.Struct, frozen=True, gc=False):
    """An executor with its id and the number of its bodies, for `engine.executors.list()`; the other fields
    are those of `ExecutorState`."""

    id: str
    status: str
    slots: int | None
    bodies: int
    labels: tuple[str, ...]
    jobs: tuple[str, ...]
    start: str = ""


class JobInfo(msgspec.Struct, frozen=True):
    """A job that can be submitted: its name, and the lane of its runs that are submitted without one.

    `params` is the JSON Schema of its parameters, without fields for a job that takes none, and null for a
    job whose type of parameters names no fields."""

    name: str
    lane: str
    params: dict[str, Any] | None


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node of a cluster. Its `role` is `leader`, `follower`, `looking` for a leader, or `unknown` while no
    leader is known. `seq` is the last event that it has, and `lag` the age of its state in seconds; both are
    0 if they are not known."""

    id: str
    address: str
    role: str
    version: str = ""
    seq: int = 0
    lag: float = 0.0


class LeaderInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The leader: its node, its address, and the term of its lease."""

    id: str
    address: str
    term: int


class ClusterInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A cluster as one node, `node`, knows it. `leader` is null while none is known. Only the leader knows
    all followers."""

    node: str
    role: str
    leader: LeaderInfo | None
    nodes: list[NodeInfo]


class LaneCounts(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The counts of a lane: slots in use, and runs queued in it."""

    limit: int | None
    generation: int
    executing: int
    queued: int
    paused: bool = False


class Counts(msgspec.Struct, frozen=True, gc=False):
    """The counts of a snapshot. `runs` counts the pending runs by status; `delayed` counts the queued runs
    that wait for their `not_before`."""

    seq: int
    engine: EngineState
    lanes: dict[str, LaneCounts]
    runs: dict[Status, int]
    delayed: int = 0


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """Everything that clients follow, exactly as of `seq`.

    `runs` contains the pending runs in order of submission, then the last ended runs in the order in which
    they ended. A delayed run that has to wait in its handle at its time counts as submitted at that time.
    """

    epoch: str
    seq: int
    engine: EngineState
    lanes: dict[str, LaneState]
    handles: dict[str, HandleState]
    interrupts: dict[str, InterruptState]
    runs: dict[str, RunRecord]
    executors: dict[str, ExecutorState] = {}
    schedules: dict[str, ScheduleRecord] = {}

    @property
    def type(self) -> str:
        """`snapshot`, where an event has its type: for what `events()` yields. It is not a field."""
        return "snapshot"


def default_limit(lane: str) -> int | None:
    """Return the default limit of a lane: `main` has only the global limit, any other lane has one slot."""
    return None if lane == "main" else 1


class Refusal(msgspec.Struct, frozen=True):
    """A run on which a bulk operation failed, with the error's code and message."""

    run: str
    code: str
    message: str


class BulkResult(msgspec.Struct, frozen=True):
    """The result of a bulk operation: how many runs matched its filter, for how many it was carried out, and
    how many were refused. `refusals` are the first of these. A dry run only counts the matches."""

    matched: int
    done: int = 0
    refused: int = 0
    refusals: tuple[Refusal, ...] = ()
