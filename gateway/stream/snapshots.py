"""Snapshots for clients: under their filter, and shared by all who need one at the same time.

When a thousand clients come back at once, each needs a snapshot that the ring's events follow, but not each a
fresh one, nor one that was encoded for it alone. And as long as nothing happens, whoever asks for a snapshot
gets the one that was made for the last.
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

T = TypeVar("T")

_FEW = 4
_SLICE = 1000
"""So many records are looked through before others get their turn."""


class _Shared(Generic[T]):
    """What is made one by one as the first of its readers comes to it, and kept for the others."""

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
    """A snapshot as those see it who have the same filter. What it is made into is made once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.users = 0
        self._messages: dict[Form, _Shared[bytes]] = {}
        self._parts: dict[str, _Shared[tuple[msgspec.Raw, bool]]] = {}

    def messages(self, form: Form) -> Iterator[bytes]:
        """What tells a subscriber to begin again from here."""
        if form not in self._messages:
            seq, payloads = self.snapshot.seq, resyncs(self.snapshot, form.codec)
            self._messages[form] = _Shared(form.resync(seq, payload) for payload in payloads)
        return iter(self._messages[form])

    def parts(self, codec: Codec) -> Iterator[tuple[msgspec.Raw, bool]]:
        """The parts, and with each whether another one follows."""
        if codec.name not in self._parts:
            self._parts[codec.name] = _Shared(encoded_parts(self.snapshot, codec))
        return iter(self._parts[codec.name])


class Taken:
    """A snapshot that is being sent."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.whole = View(snapshot)
        self._views: dict[Filter, View] = {}
        self._filtering: dict[Filter, trio.Event] = {}

    @asynccontextmanager
    async def view(self, filter: Filter | None) -> AsyncIterator[View]:
        """What someone with this filter sees; it is kept for as long as anyone with an equal one uses it."""
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
            going_on = self._filtering.get(filter)
            if going_on is not None:
                await going_on.wait()
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
    """The engine's snapshots."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._latest: Taken | None = None
        self._in_use = 0

    @property
    def seq(self) -> int:
        """The number of the last event."""
        return self._engine.stream.last_seq

    def forget(self) -> None:
        """Something has happened, so there will be another snapshot: keep this one only while it is used."""
        if not self._in_use:
            self._latest = None

    async def now(self) -> Taken:
        """The snapshot as of now; the same for all, until something happens."""
        return await self._engine.look(self._take)

    def _take(self, committed: Projection) -> Taken:
        latest = self._latest
        if latest is None or latest.snapshot.seq != committed.seq:
            latest = self._latest = Taken(committed.snapshot())
        return latest

    @asynccontextmanager
    async def recent(self) -> AsyncIterator[Taken]:
        """A snapshot that the events after it still follow: a fresh one, or while several are being sent, the
        latest of those. So a crowd of slow clients holds a few snapshots in memory and not one for each."""
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
    """What of a snapshot someone sees who gets only the events that pass: as if those had been folded."""
    return next(step for step in filtering(snapshot, filter) if step is not None)


async def filtered_in_slices(snapshot: Snapshot, filter: Filter | None) -> Snapshot:
    """The same, with a turn for everyone else after each thousand records."""
    steps = filtering(snapshot, filter)
    while (seen := next(steps)) is None:
        await trio.lowlevel.checkpoint()
    return seen


def filtering(snapshot: Snapshot, filter: Filter | None) -> Generator[Snapshot | None, None, None]:
    """The same in steps, the last of which is the result."""
    if filter is None or (filter.handles is None and filter.lanes is None and filter.runs is None):
        yield snapshot
        return
    runs: dict[str, RunRecord] = {}
    partly: set[str] = set()  # the handles with runs that aren't seen
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
            lanes[name] = LaneState(lane.limit, lane.generation, executing, queued)
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
        wanted = filter.handles is None or name in filter.handles
        taken = _taken_by_forgotten(handle, snapshot.runs, filter)
        if wanted and (taken or name in used_handles or handle.params is not None):
            seen = _seen(handle, runs, taken)
            if name in partly and seen.active_run is None:
                status = shown.get(name, HandleStatus.IDLE)  # its own may come of a run that isn't seen
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
        lanes={
            name: lane
            for name, lane in lanes.items()
            if name in used_lanes or lane.generation or lane.limit != default_limit(name)
        },
        handles=handles,
        interrupts={id: one for id, one in snapshot.interrupts.items() if one.run in runs},
        runs=runs,
    )


def _after(run: RunRecord) -> HandleStatus:
    """What a handle shows after the end of this run."""
    before = Status.QUEUED if run.started_at is None else Status.RUNNING
    return handle_status(before, run.status)


def _taken_by_forgotten(handle: HandleState, runs: Mapping[str, RunRecord], filter: Filter) -> bool:
    """Whether the handle is taken by the body of a run that is seen, but that left `runs` because so many
    have ended since. The lane of such a run is not known."""
    run = handle.active_run
    if run is None or run in runs or filter.lanes is not None:
        return False
    return filter.runs is None or run in filter.runs


def _seen(handle: HandleState, runs: Mapping[str, RunRecord], taken: bool) -> HandleState:
    """A handle as someone sees it who sees only these runs, and, if so, the one that it is `taken` by."""
    seen = taken or handle.active_run is None or handle.active_run in runs
    return HandleState(
        handle.status if seen else HandleStatus.IDLE,
        handle.locked and seen,
        handle.active_run if seen else None,
        [id for id in handle.waiting if id in runs],
        handle.params,
    )
