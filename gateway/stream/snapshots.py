"""Snapshots for clients, filtered, and shared by all clients that need one at the same time.

When a thousand clients reconnect at the same time, each needs a snapshot that the ring's events follow. They
share recent snapshots and their encoded bytes. While there is no new event, all requests receive the same
snapshot.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

import msgspec
import trio
from msgspec.structs import replace

from ...actors.engine.api import Engine
from ...protocol.codec import Codec
from ...protocol.events import Filter
from ...protocol.fold import Projection
from ...protocol.names import MAIN
from ...protocol.records import EngineState, HandleState, LaneState, RunRecord, Snapshot, default_limit
from ...protocol.states import HandleStatus, Status, handle_status
from ..websocket.replies import encoded_parts, resyncs
from .feeds import Form
from .filters import ScopedFilter, ViewerFilter
from .receivers import of_snapshot

T = TypeVar("T")

_FEW = 4
_SLICE = 1000
"""The number of records to filter before a checkpoint."""


class _Shared(Generic[T]):
    """Items of an iterator, produced when the first reader needs them, and kept for the other readers."""

    def __init__(self, making: Iterator[T]) -> None:
        self._made: list[T] = []
        self._making = making

    def __iter__(self) -> Iterator[T]:
        index = 0
        while True:
            if index == len(self._made):
                try:
                    self._made.append(next(self._making))
                except StopIteration:
                    return
            yield self._made[index]
            index += 1


class View:
    """A snapshot under one filter. Each encoding of it is made once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.users = 0
        self._messages: dict[Form, _Shared[bytes]] = {}
        self._parts: dict[str, _Shared[tuple[msgspec.Raw, bool]]] = {}

    def messages(self, form: Form) -> Iterator[bytes]:
        """The `resync` messages for a subscriber."""
        if form not in self._messages:
            seq, payloads = self.snapshot.seq, resyncs(self.snapshot, form.codec)
            self._messages[form] = _Shared(form.resync(seq, payload) for payload in payloads)
        return iter(self._messages[form])

    def parts(self, codec: Codec) -> Iterator[tuple[msgspec.Raw, bool]]:
        """The encoded parts, each with whether another part follows."""
        if codec.name not in self._parts:
            self._parts[codec.name] = _Shared(encoded_parts(self.snapshot, codec))
        return iter(self._parts[codec.name])


class Taken:
    """A snapshot with its views under different filters."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.whole = View(snapshot)
        self._of_viewers: View | None = None
        self._views: dict[Filter, View] = {}
        self._filtering: dict[Filter, trio.Event] = {}

    @property
    def of_viewers(self) -> View:
        """The snapshot without the receivers of webhooks."""
        if self._of_viewers is None:
            self._of_viewers = View(of_snapshot(self.snapshot))
        return self._of_viewers

    @asynccontextmanager
    async def view(self, filter: Filter | None) -> AsyncIterator[View]:
        """The snapshot under a filter. It is kept while a client with an equal filter uses it."""
        if filter is None:
            yield self.whole
            return
        view = await self._view(filter)
        view.users += 1
        try:
            yield view
        finally:
            view.users -= 1
            if not view.users and self._views.get(filter) is view:
                del self._views[filter]

    async def _view(self, filter: Filter) -> View:
        while (view := self._views.get(filter)) is None:
            in_progress = self._filtering.get(filter)
            if in_progress is not None:
                await in_progress.wait()
                continue
            done = self._filtering[filter] = trio.Event()
            try:
                snapshot = await filtered_in_slices(self.snapshot, filter)
                self._views[filter] = self.whole if snapshot is self.snapshot else View(snapshot)
            finally:
                del self._filtering[filter]
                done.set()
        return view


class Snapshots:
    """Takes snapshots of the engine, and shares them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._latest: Taken | None = None
        self._in_use = 0

    @property
    def seq(self) -> int:
        """The number of the last event."""
        return self._engine.stream.last_seq

    def forget(self) -> None:
        """Drop the snapshot unless it is in use, because an event has made it out of date."""
        if not self._in_use:
            self._latest = None

    async def now(self) -> Taken:
        """The current snapshot; the same object for all callers until the next event."""
        return await self._engine.look(self._take)

    def _take(self, committed: Projection) -> Taken:
        latest = self._latest
        if latest is None or latest.snapshot.seq != committed.seq:
            latest = self._latest = Taken(committed.snapshot())
        return latest

    @asynccontextmanager
    async def recent(self) -> AsyncIterator[Taken]:
        """A snapshot whose following events are still in the ring: a new one, or while several are being
        sent, the latest of them. So many slow clients keep only a few snapshots in memory, not one each."""
        latest, stream = self._latest, self._engine.stream
        if latest is None or self._in_use < _FEW or not stream.holds_well(latest.snapshot.seq):
            latest = await self.now()
        self._in_use += 1
        try:
            yield latest
        finally:
            self._in_use -= 1
            if self._latest is not None and self._latest.snapshot.seq != self.seq:
                self.forget()


def filtered(snapshot: Snapshot, filter: Filter | None) -> Snapshot:
    """A snapshot under a filter: the same as folding only the events that pass the filter."""
    return next(step for step in filtering(snapshot, filter) if step is not None)


async def filtered_in_slices(snapshot: Snapshot, filter: Filter | None) -> Snapshot:
    """The same as `filtered`, with a checkpoint after every `_SLICE` records."""
    steps = filtering(snapshot, filter)
    while (seen := next(steps)) is None:
        await trio.lowlevel.checkpoint()
    return seen


def filtering(snapshot: Snapshot, filter: Filter | None) -> Generator[Snapshot | None, None, None]:
    """The same as `filtered`, in steps: yields `None` until the last step, which yields the result."""
    if isinstance(filter, ViewerFilter):
        snapshot = of_snapshot(snapshot)
    if filter is None or (filter.handles is None and filter.lanes is None and filter.runs is None):
        yield snapshot
        return
    runs: dict[str, RunRecord] = {}
    partly: set[str] = set()  # the handles with runs that the filter excludes
    for count, (id, run) in enumerate(snapshot.runs.items(), 1):
        if filter.sees(run):
            runs[id] = run
        else:
            partly.add(run.handle)
        if count % _SLICE == 0:
            yield None
    lanes: dict[str, LaneState] = {}
    for name, lane in snapshot.lanes.items():
        if filter.lanes is None or name in filter.lanes:
            queued: list[str] = []
            for start in range(0, len(lane.queued), _SLICE):
                queued += [id for id in lane.queued[start : start + _SLICE] if id in runs]
                yield None
            executing = [id for id in lane.executing if id in runs]
            lanes[name] = replace(lane, executing=executing, queued=queued)
    used_lanes, used_handles = {MAIN}, set()
    shown: dict[str, HandleStatus] = {}
    count_queued = 0
    for count, run in enumerate(runs.values(), 1):
        used_lanes.add(run.lane)
        used_handles.add(run.handle)
        count_queued += run.status is Status.QUEUED
        if run.ended and not (run.place is None and run.started_at is None):  # it left its handle's queue
            shown[run.handle] = _after(run)
        if count % _SLICE == 0:
            yield None
    handles: dict[str, HandleState] = {}
    for count, (name, handle) in enumerate(snapshot.handles.items(), 1):
        included = filter.handles is None or name in filter.handles
        taken = _taken_by_forgotten(handle, snapshot.runs, filter)
        if included and (taken or name in used_handles or handle.params is not None):
            seen = _seen(handle, runs, taken)
            if name in partly and seen.active_run is None:
                status = shown.get(name, HandleStatus.IDLE)  # the real status may come from an excluded run
                seen = replace(seen, status=status)
            elif name not in used_handles and not taken:
                seen = replace(seen, status=HandleStatus.IDLE)
            handles[name] = seen
        if count % _SLICE == 0:
            yield None
    lanes.setdefault(MAIN, LaneState(default_limit(MAIN), 0, [], []))  # every fold has it
    yield Snapshot(
        epoch=snapshot.epoch,
        seq=snapshot.seq,
        engine=EngineState(
            snapshot.engine.max_concurrent,
            sum(len(lane.executing) for lane in lanes.values()),
            count_queued,
            snapshot.engine.draining,
        ),
        lanes={name: lane for name, lane in lanes.items() if name in used_lanes or not lane.is_as_new(name)},
        handles=handles,
        interrupts={id: one for id, one in snapshot.interrupts.items() if one.run in runs},
        runs=runs,
        executors={} if isinstance(filter, ScopedFilter) else snapshot.executors,
        schedules={} if isinstance(filter, ScopedFilter) else snapshot.schedules,
    )


def _after(run: RunRecord) -> HandleStatus:
    """The status of a handle after the end of this run."""
    before = Status.QUEUED if run.started_at is None else Status.RUNNING
    return handle_status(before, run.status)


def _taken_by_forgotten(handle: HandleState, runs: Mapping[str, RunRecord], filter: Filter) -> bool:
    """Whether the handle is taken by the body of a run that the filter includes, but that was evicted from
    `runs`. The lane of such a run is unknown."""
    run = handle.active_run
    if run is None or run in runs or filter.lanes is not None:
        return False
    return filter.runs is None or run in filter.runs


def _seen(handle: HandleState, runs: Mapping[str, RunRecord], taken: bool) -> HandleState:
    """A handle reduced to these runs, and, if `taken`, to the evicted run that takes it."""
    seen = taken or handle.active_run is None or handle.active_run in runs
    return HandleState(
        handle.status if seen else HandleStatus.IDLE,
        handle.locked and seen,
        handle.active_run if seen else None,
        [id for id in handle.waiting if id in runs],
        handle.params,
    )
