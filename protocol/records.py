"""The records of a snapshot. They are frozen, so a record never changes after it was passed to a caller.

The garbage collector does not track records (`gc=False`): they contain only JSON values, which have no
cycles, and an engine can keep very many of them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .schedules import ScheduleRecord
from .states import ENDED, HandleStatus, Status

KEPT_ENDED_RUNS = 1000
"""The number of ended runs in a snapshot; older ones are only in the store."""


class RunRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One run, as clients see it. Times are Unix seconds.

    `fence` is the seq of the event with which its last body started; it only grows for a handle. `executor`
    is where that body executes; `None` for the engine's own process. `needs` are the labels that an executor
    must have to execute the run: those of the job and of the submission. `key` is what a lane's fairness and
    limits per key tell its runs apart by. The run does not start before `not_before`.
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
    status: Status
    reason: str | None = None
    attempt: int = 0
    place: int | None = None
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


class EngineState(msgspec.Struct, frozen=True, gc=False):
    """The engine as a whole. `executing` counts the slots in use, `queued` the queued runs."""

    max_concurrent: int
    executing: int
    queued: int
    draining: bool


class LaneState(msgspec.Struct, frozen=True, gc=False):
    """A lane. `limit` is `None` if only the global limit applies; `queued` is in order of place."""

    limit: int | None
    generation: int
    executing: list[str]
    queued: list[str]


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


class LaneCounts(msgspec.Struct, frozen=True, gc=False):
    """The counts of a lane: slots in use, and runs queued in it."""

    limit: int | None
    generation: int
    executing: int
    queued: int


class Counts(msgspec.Struct, frozen=True, gc=False):
    """The counts of a snapshot. `runs` counts the pending runs by status."""

    seq: int
    engine: EngineState
    lanes: dict[str, LaneCounts]
    runs: dict[Status, int]


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """Everything that clients follow, exactly as of `seq`.

    `runs` contains the pending runs in order of submission, then the last ended runs in the order in which
    they ended.
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
