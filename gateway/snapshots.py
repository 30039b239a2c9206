"""Snapshots for subscribers: under their filter, and shared by all who need one at the same time.

When a thousand clients come back at once, each needs a snapshot that the ring's events follow, but not each a
fresh one, nor one that was encoded for it alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from ..actors.engine import Engine
from ..actors.stream import RING_SIZE
from ..protocol.events import Filter
from ..protocol.names import MAIN
from ..protocol.records import EngineState, HandleState, LaneState, RunRecord, Snapshot, default_limit
from ..protocol.states import HandleStatus, Status, handle_status
from .feeds import Form
from .replies import resyncs

_FRESH = RING_SIZE // 2
"""How many events may follow a snapshot that is given out again: they must stay in the ring while it is
sent."""

_FEW = 4


class Taken:
    """A snapshot that is being sent to subscribers."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._made: dict[Form, list[bytes]] = {}
        self._making: dict[Form, Iterator[bytes]] = {}

    def messages(self, form: Form, filter: Filter | None) -> Iterator[bytes]:
        """What tells a subscriber to begin again from here. Without a filter it is made once for all in the
        same form, and no further than the first of them has come."""
        whole = filtered(self.snapshot, filter)
        if whole is not self.snapshot:
            yield from self._make(form, whole)
            return
        if form not in self._made:
            self._made[form] = []
            self._making[form] = self._make(form, whole)
        made, making = self._made[form], self._making[form]
        index = 0
        while True:
            if index == len(made):
                message = next(making, None)
                if message is None:
                    return
                made.append(message)
            yield made[index]
            index += 1

    def _make(self, form: Form, snapshot: Snapshot) -> Iterator[bytes]:
        for payload in resyncs(snapshot, form.codec):
            yield form.resync(snapshot.seq, payload)


class Snapshots:
    """The engine's snapshots."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._latest: Taken | None = None
        self._in_use = 0

    @asynccontextmanager
    async def recent(self) -> AsyncIterator[Taken]:
        """A snapshot that the events after it still follow: a fresh one, or while several are being sent, the
        latest of those. So a crowd of slow clients holds a few snapshots in memory and not one for each."""
        latest = self._latest
        since = 0 if latest is None else self._engine.stream.last_seq - latest.snapshot.seq
        if latest is None or since > _FRESH or (since and self._in_use < _FEW):
            latest = self._latest = Taken(await self._engine.snapshot())
        self._in_use += 1
        try:
            yield latest
        finally:
            self._in_use -= 1
            if not self._in_use:
                self._latest = None


def filtered(snapshot: Snapshot, filter: Filter | None) -> Snapshot:
    """What of a snapshot someone sees who gets only the events that pass: as if those had been folded."""
    if filter is None or (filter.handles is None and filter.lanes is None and filter.runs is None):
        return snapshot
    runs = {id: run for id, run in snapshot.runs.items() if filter.sees(run)}
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


def _handles(snapshot: Snapshot, filter: Filter, runs: dict[str, RunRecord]) -> dict[str, HandleState]:
    used = {run.handle for run in runs.values()}
    partly = {run.handle for id, run in snapshot.runs.items() if id not in runs}
    shown = _shown(runs)
    handles = {}
    for name, handle in snapshot.handles.items():
        if filter.handles is not None and name not in filter.handles:
            continue
        if name not in used and handle.params is None:
            continue
        seen = handle.active_run is None or handle.active_run in runs
        status = handle.status if seen and name in used else HandleStatus.IDLE
        if name in partly and (handle.active_run is None or not seen):
            status = shown.get(name, HandleStatus.IDLE)  # what it shows may come of a run that isn't seen
        handles[name] = replace(
            handle,
            status=status,
            locked=handle.locked and seen,
            active_run=handle.active_run if seen else None,
            waiting=[id for id in handle.waiting if id in runs],
        )
    return handles


def _shown(runs: dict[str, RunRecord]) -> dict[str, HandleStatus]:
    """What handles show after the last end of these runs. One that never left its handle's queue changes
    nothing."""
    shown = {}
    for run in runs.values():
        if run.ended and not (run.place is None and run.started_at is None):
            before = Status.QUEUED if run.started_at is None else Status.RUNNING
            shown[run.handle] = handle_status(before, run.status)
    return shown
