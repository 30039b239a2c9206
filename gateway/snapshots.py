"""Snapshots for subscribers: under their filter, and shared by all who need one at the same time.

When a thousand clients come back at once, each needs a snapshot that the ring's events follow, but not each a
fresh one. So the latest is given out again for a moment.
"""

from __future__ import annotations

import trio
from msgspec.structs import replace

from ..actors.engine import Engine
from ..protocol.events import Filter
from ..protocol.names import MAIN
from ..protocol.records import EngineState, HandleState, LaneState, RunRecord, Snapshot, default_limit
from ..protocol.states import HandleStatus, Status

_FRESH_FOR = 0.1
"""For how many seconds a snapshot is given out again although there have been events since."""

_FRESH = 1024
"""How many events may follow it then; they must stay in the ring for long enough to be sent after it."""


class Snapshots:
    """The engine's snapshots."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._latest: Snapshot | None = None
        self._taken_at = 0.0

    async def recent(self) -> Snapshot:
        """One that is recent enough to go on from with the events after it."""
        if self._latest is not None:
            since = self._engine.stream.last_seq - self._latest.seq
            fresh = trio.current_time() - self._taken_at < _FRESH_FOR and since <= _FRESH
            if fresh or not since:
                return self._latest
        snapshot = self._latest = await self._engine.snapshot()
        self._taken_at = trio.current_time()
        return snapshot


def filtered(snapshot: Snapshot, filter: Filter | None) -> Snapshot:
    """What of a snapshot someone sees who gets only the events that pass: as if those had been folded."""
    if filter is None or (filter.handles is None and filter.lanes is None and filter.runs is None):
        return snapshot
    runs = {id: run for id, run in snapshot.runs.items() if _passes(filter, run)}
    lanes = {
        name: LaneState(
            lane.limit,
            lane.generation,
            [id for id in lane.executing if id in runs],
            [id for id in lane.queued if id in runs],
        )
        for name, lane in snapshot.lanes.items()
        if filter.lanes is None or name in filter.lanes
    }
    used = {run.lane for run in runs.values()} | {MAIN}
    lanes.setdefault(MAIN, LaneState(default_limit(MAIN), 0, [], []))  # every fold has it
    return Snapshot(
        epoch=snapshot.epoch,
        seq=snapshot.seq,
        engine=EngineState(
            snapshot.engine.max_concurrent,
            sum(len(lane.executing) for lane in lanes.values()),
            sum(run.status is Status.QUEUED for run in runs.values()),
            snapshot.engine.draining,
        ),
        lanes={
            name: lane
            for name, lane in lanes.items()
            if name in used or lane.generation or lane.limit != default_limit(name)
        },
        handles=_handles(snapshot, filter, runs),
        interrupts={id: one for id, one in snapshot.interrupts.items() if one.run in runs},
        runs=runs,
    )


def _passes(filter: Filter, run: RunRecord) -> bool:
    return (
        (filter.handles is None or run.handle in filter.handles)
        and (filter.lanes is None or run.lane in filter.lanes)
        and (filter.runs is None or run.id in filter.runs)
    )


def _handles(snapshot: Snapshot, filter: Filter, runs: dict[str, RunRecord]) -> dict[str, HandleState]:
    used = {run.handle for run in runs.values()}
    handles = {}
    for name, handle in snapshot.handles.items():
        if filter.handles is not None and name not in filter.handles:
            continue
        if name not in used and handle.params is None:
            continue
        seen = handle.active_run is None or handle.active_run in runs
        handles[name] = replace(
            handle,
            status=handle.status if seen and name in used else HandleStatus.IDLE,
            locked=handle.locked and seen,
            active_run=handle.active_run if seen else None,
            waiting=[id for id in handle.waiting if id in runs],
        )
    return handles
