"""What a snapshot is made of. Frozen, so that a record which someone holds never changes under them.

Records are not tracked by the garbage collector (`gc=False`): they hold only JSON values, which have no
cycles, and an engine may hold a great many.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .states import ENDED, HandleStatus, Status

KEPT_ENDED_RUNS = 1000
"""How many ended runs a snapshot holds; older ones are found in the store."""


class RunRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One run, as anyone may see it. Times are Unix seconds."""

    id: str
    handle: str
    lane: str
    job: str
    kind: str
    params: Any
    status: Status
    reason: str | None = None
    attempt: int = 0
    place: int | None = None
    detached: bool = False
    interactive: bool = False
    streaming: bool = False
    compacting: bool = False
    waiting_for: str | None = None
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
    """The engine as a whole. `executing` counts held slots, `queued` every run of that status."""

    max_concurrent: int
    executing: int
    queued: int
    draining: bool


class LaneState(msgspec.Struct, frozen=True, gc=False):
    """A lane: `limit` is `None` where only the global limit holds; `queued` is in order of place."""

    limit: int | None
    generation: int
    executing: list[str]
    queued: list[str]


class HandleState(msgspec.Struct, frozen=True, gc=False):
    """A handle: what to show for it, its admitted run, the runs that wait in it, and its draft."""

    status: HandleStatus
    locked: bool
    active_run: str | None
    waiting: list[str]
    params: Any = None


class InterruptState(msgspec.Struct, frozen=True, gc=False):
    """An interrupt that is open."""

    run: str
    key: str
    data: Any
    opened_at: float
    deadline: float | None


class LaneCounts(msgspec.Struct, frozen=True, gc=False):
    """A lane in numbers: held slots, and runs that are queued in it."""

    limit: int | None
    generation: int
    executing: int
    queued: int


class Counts(msgspec.Struct, frozen=True, gc=False):
    """What a snapshot shows, in numbers. `runs` counts the pending runs, by status."""

    seq: int
    engine: EngineState
    lanes: dict[str, LaneCounts]
    runs: dict[Status, int]


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """Everything that clients follow, exactly as of `seq`.

    `runs` holds the pending runs in the order they were submitted, then the last ended ones in the order
    they ended.
    """

    epoch: str
    seq: int
    engine: EngineState
    lanes: dict[str, LaneState]
    handles: dict[str, HandleState]
    interrupts: dict[str, InterruptState]
    runs: dict[str, RunRecord]


def default_limit(lane: str) -> int | None:
    """The limit of a lane for which nobody set one: `main` has only the global limit, any other one slot."""
    return None if lane == "main" else 1
