"""The fold: a snapshot and the events after it give the next snapshot, field by field.

`Projection` is its mutable state. The journal keeps one of the committed state, and clients keep one of what
they have received. Both are equal at the same `seq`, because no other code turns events into state.

The size of a snapshot is bounded here, too. It keeps the last `KEPT_ENDED_RUNS` ended runs. It keeps a handle
while it keeps one of its runs, and while the handle is taken or has a draft. It keeps a lane while it keeps
one of its runs, and while the lane's limit or generation is not the default.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, cast

from msgspec import UNSET
from msgspec.structs import replace

from .events import (
    EngineChanged,
    Event,
    EventBase,
    ExecutorChanged,
    HandleChanged,
    InterruptClosed,
    InterruptOpened,
    LaneChanged,
    RunChanged,
    RunEvent,
    RunProgress,
    RunStateChanged,
    ScheduleChanged,
    ScheduleFired,
    ScheduleMissed,
)
from .handles import Handles
from .lanes import DEFAULT_RULES, LaneRules
from .names import MAIN
from .records import (
    KEPT_ENDED_RUNS,
    UNTIL_HANDLE_FREE,
    UNTIL_TIME,
    Counts,
    EngineState,
    ExecutorState,
    InterruptState,
    LaneCounts,
    LaneState,
    RunRecord,
    Snapshot,
    default_limit,
)
from .schedules import ScheduleRecord, after_firing, after_missing
from .states import ENDED, Status, handle_status

# A lookup in an enum is slow.
_QUEUED, _RUNNING, _CANCELLING = Status.QUEUED, Status.RUNNING, Status.CANCELLING

UNCOMMON = ("tags", "priority", "key", "not_before", "parent")
"""Fields of a new run that few runs have. Python builds a dict for a call with more than 15 keywords, so they
are set apart from the others."""


def next_record(run: RunRecord | None, event: RunEvent) -> RunRecord:
    """Return the run after the event. `run` is `None` only for the event that creates the run."""
    kind = type(event)
    if kind is RunStateChanged:
        return _after_transition(run, cast(RunStateChanged, event))
    assert run is not None, f"{event.type} {event.seq} for run {event.run}, which no event has created"
    if kind is RunProgress:
        return replace(run, progress=cast(RunProgress, event).progress, updated_at=event.at)
    if kind is RunChanged:
        return _after_change(run, cast(RunChanged, event))
    return replace(run, updated_at=event.at)


def _after_transition(run: RunRecord | None, event: RunStateChanged) -> RunRecord:
    at = event.at
    if run is None:
        created = RunRecord(
            id=event.run,
            handle=event.handle,
            lane=event.lane,
            job=event.job or "",
            kind=event.kind or "start",
            params=event.params,
            needs=event.needs,
            status=event.to,
            reason=event.reason,
            attempt=event.attempt,
            place=event.place,
            created_at=at,
            updated_at=at,
        )
        if not (event.tags or event.priority or event.key or event.not_before or event.parent):
            return created
        fields = {name: getattr(event, name) for name in UNCOMMON}
        return replace(created, waiting_for=event.waiting_for, **fields)
    # Python builds a dict for a call with more than 15 keywords, and this is the most frequent event. So each
    # case lists only the fields that can change.
    to = event.to
    if to in ENDED:
        return replace(
            run,
            status=to,
            reason=event.reason,
            attempt=event.attempt,
            place=event.place,
            detached=False,
            interactive=False,
            streaming=False,
            compacting=False,
            waiting_for=event.waiting_for,
            result=event.result,
            error=event.error,
            ended_at=at,
            updated_at=at,
        )
    if to is _RUNNING and event.interactive is not None:  # a new body
        return replace(
            run,
            status=to,
            reason=event.reason,
            attempt=event.attempt,
            place=event.place,
            detached=False,
            interactive=event.interactive,
            streaming=False,
            compacting=False,
            waiting_for=event.waiting_for,
            executor=event.executor,
            fence=event.seq,
            started_at=at if run.started_at is None else run.started_at,
            updated_at=at,
        )
    cancelling, same_body = to is _CANCELLING, event.interactive is None
    return replace(
        run,
        status=to,
        reason=event.reason,
        attempt=event.attempt,
        place=event.place,
        detached=run.detached and cancelling,
        interactive=run.interactive if same_body else event.interactive,
        streaming=run.streaming and same_body,
        compacting=run.compacting and same_body,
        waiting_for=run.waiting_for if cancelling else event.waiting_for,  # that is the slot's
        updated_at=at,
    )


def _after_change(run: RunRecord, event: RunChanged) -> RunRecord:
    changes: dict[str, Any] = {"updated_at": event.at}
    if event.place is not None:  # it is in its lane: the delay of a retry ended, or a queued run is admitted
        changes["waiting_for"] = "slot" if run.status is Status.SUSPENDED else None
        changes["placed_at"] = event.at
    for name in ("place", "priority", "waiting_for", "detached", "interactive", "streaming", "compacting"):
        value = getattr(event, name)
        if value is not None:
            changes[name] = value
    if event.params is not UNSET:
        changes["params"] = event.params
    return replace(run, **changes)


class _Lane:
    """A lane in the projection; `runs` counts its runs in the projection.

    Runs are nearly always queued in the order of their places, so `queued` is sorted only if one was not."""

    __slots__ = (
        "_highest",
        "_sorted",
        "executing",
        "generation",
        "limit",
        "paused",
        "queued",
        "rules",
        "runs",
    )

    def __init__(self, limit: int | None, generation: int = 0) -> None:
        self.limit = limit
        self.generation = generation
        self.paused = False
        self.rules = DEFAULT_RULES
        self.executing: dict[str, None] = {}
        self.queued: dict[str, None] = {}
        self.runs = 0
        self._highest = -1
        self._sorted = True

    def queue(self, id: str, place: int) -> None:
        """Add a queued run."""
        self.queued[id] = None
        if place < self._highest:
            self._sorted = False
        else:
            self._highest = place

    def state(self, runs: dict[str, RunRecord]) -> LaneState:
        """Return the lane as in a snapshot."""

        def place(id: str) -> int:
            return cast(int, runs[id].place)

        if not self._sorted:
            self.queued = dict.fromkeys(sorted(self.queued, key=place))
            self._sorted = True
        executing = sorted(self.executing, key=place)
        return LaneState(self.limit, self.generation, executing, list(self.queued), self.paused, self.rules)

    def counts(self) -> LaneCounts:
        """Return the number of executing and of queued runs."""
        return LaneCounts(self.limit, self.generation, len(self.executing), len(self.queued), self.paused)


class Projection:
    """State that follows the events: `apply` them in order, without a gap; call `snapshot` at any time."""

    def __init__(self, epoch: str, *, max_concurrent: int, seq: int = 0) -> None:
        self.epoch = epoch
        self.seq = seq
        self.max_concurrent = max_concurrent
        self.draining = False
        self.runs: dict[str, RunRecord] = {}
        self.interrupts: dict[str, InterruptState] = {}
        self.executors: dict[str, ExecutorState] = {}
        self.schedules: dict[str, ScheduleRecord] = {}
        self._executing = 0
        self._pending = dict.fromkeys((status for status in Status if status not in ENDED), 0)
        self._delayed = 0
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._lanes: dict[str, _Lane] = {MAIN: _Lane(default_limit(MAIN))}
        self._handles = Handles()

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> Projection:
        """Return a projection that continues from a snapshot."""
        self = cls(snapshot.epoch, max_concurrent=snapshot.engine.max_concurrent, seq=snapshot.seq)
        self.draining = snapshot.engine.draining
        self.runs = dict(snapshot.runs)
        self.interrupts = dict(snapshot.interrupts)
        self.executors = dict(snapshot.executors)
        self.schedules = dict(snapshot.schedules)
        self._executing = snapshot.engine.executing
        for name, lane_state in snapshot.lanes.items():
            lane = self._lanes[name] = _Lane(lane_state.limit, lane_state.generation)
            lane.paused, lane.rules = lane_state.paused, lane_state.rules
            lane.executing = dict.fromkeys(lane_state.executing)
            for id in lane_state.queued:
                lane.queue(id, cast(int, snapshot.runs[id].place))
        for name, handle_state in snapshot.handles.items():
            self._handles.begin(name, handle_state)
        for run in snapshot.runs.values():
            self._handles.add_run(run.handle)
            self._lanes[run.lane].runs += 1
            if run.ended:
                self._ended[run.id] = None
                if run.place is not None:
                    self._handles.end_run(run.handle, run.id)
            else:
                self._pending[run.status] += 1
                self._delayed += run.delayed
        return self

    def apply(self, event: Event, record: RunRecord | None = None) -> None:
        """Apply the next event. `record` is the run after the event, if the caller already has it."""
        if event.seq != self.seq + 1:
            raise ValueError(f"event {event.seq} does not follow {self.seq}: an event was lost or repeated")
        self.seq = event.seq
        if isinstance(event, RunEvent):
            if record is None:
                record = next_record(self.runs.get(event.run), event)
            if self._delayed or record.not_before is not None:
                self._count_delayed(self.runs.get(event.run), record)
            self.runs[event.run] = record
        handler = _APPLY.get(type(event))
        if handler is not None:
            handler(self, event)

    def _count_delayed(self, before: RunRecord | None, after: RunRecord) -> None:
        self._delayed += after.delayed - (before is not None and before.delayed)

    def rules(self, lane: str) -> LaneRules:
        """Return the rules of a lane."""
        found = self._lanes.get(lane)
        return DEFAULT_RULES if found is None else found.rules

    def snapshot(self) -> Snapshot:
        """Return the state as of `seq`. Copies dicts, but not the records in them, which never change."""
        runs = self.runs.copy()
        for id in self._ended:  # ended runs follow the pending ones, in the order in which they ended
            runs[id] = runs.pop(id)
        return Snapshot(
            epoch=self.epoch,
            seq=self.seq,
            engine=self._engine(),
            lanes={name: lane.state(runs) for name, lane in self._lanes.items()},
            handles=self._handles.copy(),
            interrupts=self.interrupts.copy(),
            runs=runs,
            executors=self.executors.copy(),
            schedules=self.schedules.copy(),
        )

    def counts(self) -> Counts:
        """Return the numbers of runs as of `seq`, in constant time per lane."""
        lanes = {name: lane.counts() for name, lane in self._lanes.items()}
        return Counts(self.seq, self._engine(), lanes, self._pending.copy(), self._delayed)

    def lane(self, name: str) -> LaneState:
        """Return one lane as in a snapshot."""
        return (self._lanes.get(name) or _Lane(default_limit(name))).state(self.runs)

    def _engine(self) -> EngineState:
        queued = self._pending[Status.QUEUED]
        return EngineState(self.max_concurrent, self._executing, queued, self.draining)

    def draft(self, handle: str) -> Any:
        """Return the draft parameters of a handle."""
        held = self._handles.get(handle)
        return held.params if held is not None else None

    def generation(self, lane: str) -> int:
        """Return the generation of a lane: the number of its resets."""
        held = self._lanes.get(lane)
        return held.generation if held is not None else 0

    def active_run(self, handle: str) -> str | None:
        """Return the run that holds a handle."""
        held = self._handles.get(handle)
        return held.active_run if held is not None else None

    # What each type of event changes in addition to its run's record.

    def _transition(self, event: RunStateChanged) -> None:
        id, before, to = event.run, event.from_, event.to
        handles, lane = self._handles, self._lane(event.lane)
        if to not in ENDED:
            self._pending[to] += 1
        if before is None:
            handles.add_run(event.handle)
            lane.runs += 1
            delayed = event.waiting_for == UNTIL_TIME
            if event.place is not None:
                handles.admit(event.handle, id)
                if not delayed:
                    lane.queue(id, event.place)
            elif not delayed:
                handles.wait(event.handle, id, front=event.front)
            return
        self._pending[before] -= 1
        if before is _QUEUED:
            lane.queued.pop(id, None)
            handles.stop_waiting(event.handle, id)
        if to is _RUNNING:
            lane.executing[id] = None
            self._executing += 1
        elif to is not _CANCELLING:
            self._release_slot(lane, id)
        ends = to in ENDED
        handles.advance(event.handle, id, handle_status(before, to), frees=ends and not event.holds_handle)
        if ends:
            if event.place is not None:
                handles.end_run(event.handle, id)
            self._end(id)

    def _change(self, event: RunChanged) -> None:
        lane = self._lane(event.lane)
        if event.detached:
            self._release_slot(lane, event.run)
        if event.place is None and event.waiting_for is None:
            return
        if self.runs[event.run].status is _QUEUED:
            self._wait_changed(event, lane)

    def _wait_changed(self, event: RunChanged, lane: _Lane) -> None:
        """A queued run is admitted by its handle, or waits for something else."""
        id, handles = event.run, self._handles
        delayed = event.waiting_for == UNTIL_TIME
        if event.place is not None:
            handles.stop_waiting(event.handle, id)
            handles.admit(event.handle, id)
            if not delayed:
                lane.queue(id, event.place)
        elif event.waiting_for == UNTIL_HANDLE_FREE:
            handles.wait(event.handle, id, front=event.front)
            self.runs[id] = self.runs.pop(id)  # it counts as submitted now

    def _interrupt_opened(self, event: InterruptOpened) -> None:
        self.interrupts[event.interrupt] = InterruptState(
            event.run, event.key, event.data, event.at, event.deadline
        )

    def _interrupt_closed(self, event: InterruptClosed) -> None:
        self.interrupts.pop(event.interrupt, None)

    def _lane_changed(self, event: LaneChanged) -> None:
        lane = self._lane(event.lane)
        lane.limit, lane.generation = event.limit, event.generation
        lane.paused, lane.rules = event.paused, event.rules
        self._forget_lane(event.lane)

    def _handle_changed(self, event: HandleChanged) -> None:
        if event.params is not UNSET:
            self._handles.set_params(event.handle, event.params)
        if event.freed is not None:
            self._handles.free(event.handle, event.freed)

    def _engine_changed(self, event: EngineChanged) -> None:
        self.max_concurrent = event.max_concurrent
        self.draining = event.draining

    def _executor_changed(self, event: ExecutorChanged) -> None:
        if event.state is not None:
            self.executors[event.executor] = event.state
        else:
            self.executors.pop(event.executor, None)

    def _schedule_changed(self, event: ScheduleChanged) -> None:
        if event.state is not None:
            self.schedules[event.schedule] = event.state
        else:
            self.schedules.pop(event.schedule, None)

    def _schedule_fired(self, event: ScheduleFired) -> None:
        schedule = self.schedules.get(event.schedule)
        if schedule is not None:  # else it was triggered and deleted at the same time
            self.schedules[event.schedule] = after_firing(schedule, event)

    def _schedule_missed(self, event: ScheduleMissed) -> None:
        self.schedules[event.schedule] = after_missing(self.schedules[event.schedule], event)

    # Lanes, and eviction.

    def _lane(self, name: str) -> _Lane:
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane(default_limit(name))
        return lane

    def _release_slot(self, lane: _Lane, id: str) -> None:
        if id in lane.executing:
            del lane.executing[id]
            self._executing -= 1

    def _end(self, id: str) -> None:
        self._ended[id] = None
        if len(self._ended) <= KEPT_ENDED_RUNS:
            return
        oldest, _ = self._ended.popitem(last=False)
        run = self.runs.pop(oldest)
        self._lanes[run.lane].runs -= 1
        self._forget_lane(run.lane)
        self._handles.remove_run(run.handle, oldest)

    def _forget_lane(self, name: str) -> None:
        lane = self._lanes[name]
        if not lane.runs and name != MAIN and lane.state({}).is_as_new(name):
            del self._lanes[name]


_APPLY: dict[type[EventBase], Callable[[Projection, Any], None]] = {
    RunStateChanged: Projection._transition,
    RunChanged: Projection._change,
    InterruptOpened: Projection._interrupt_opened,
    InterruptClosed: Projection._interrupt_closed,
    LaneChanged: Projection._lane_changed,
    HandleChanged: Projection._handle_changed,
    EngineChanged: Projection._engine_changed,
    ExecutorChanged: Projection._executor_changed,
    ScheduleChanged: Projection._schedule_changed,
    ScheduleFired: Projection._schedule_fired,
    ScheduleMissed: Projection._schedule_missed,
}


def fold(snapshot: Snapshot, events: Iterable[Event]) -> Snapshot:
    """Return the snapshot after the events, which must follow `snapshot` without a gap."""
    projection = Projection.from_snapshot(snapshot)
    for event in events:
        projection.apply(event)
    return projection.snapshot()
