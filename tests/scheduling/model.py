"""The rules of scheduling in plain Python: what an engine may commit, and what of it together.

`Story` reads the events in the order in which they are committed, keeps its own small picture of runs,
handles and lanes (without `protocol.fold`, so that a mistake there shows), and writes down every event that
breaks a rule as a fault. `StoryStore` is a store in memory that has a story read what it commits.

An *instant* is what happens at one reading of the clock. The clock is a mock that moves on only when no task
has anything left to do, so at the end of an instant everything that was said in it has had its effect.

Most rules hold at every event, whatever races. These are the races, and all that is accepted of them:

- Limits hold when a slot is granted, and the run's event follows in the same instant. A limit that was
  lowered in this instant may come before the events of the runs that were granted their slots under the old
  one; so does a drain. At the next instant the new limit holds, and a draining engine starts nothing new:
  only what had begun goes on, and what that has called.
- Runs that are granted slots in the same instant may begin in either order. So order is judged when the
  instant is over: no run has begun while one with a lower place is left queued in the same lane.
- Among lanes, only the head of a lane counts that had room before any slot was free: the slot may have been
  granted before there was room. A run that was granted one and left the queue without beginning, because it
  was cancelled or timed out just then, or its lane was reset, may have taken up the room that the lane had.
- A clear leaves a run that was granted its slot before, although it may not have begun yet; it begins in the
  same instant.
- A reset frees the slots of all lanes at once; its events come lane by lane. Until the instant is over,
  what executed when the reset began may already not count.
- A submission may be refused for a run that was about to hold the handle, and was cancelled before it did.
- A change of place that belongs to a retry may be overtaken by the event that ends the run.
"""

from __future__ import annotations

import math
from typing import Any

import trio

from greenroom.persistence.memory import MemoryStore
from greenroom.persistence.store import Batch
from greenroom.protocol.events import (
    EngineChanged,
    Event,
    HandleChanged,
    InterruptClosed,
    InterruptOpened,
    LaneChanged,
    RunChanged,
    RunEvent,
    RunLog,
    RunProgress,
    RunStateChanged,
)
from greenroom.protocol.records import default_limit
from greenroom.protocol.states import ENDED, Status, allowed_from, rank

EXECUTES = frozenset({Status.RUNNING, Status.CANCELLING})


class ToldRun:
    """A run as far as the story has told of it."""

    def __init__(self, event: RunStateChanged) -> None:
        self.id = event.run
        self.handle = event.handle
        self.lane = event.lane
        self.params = event.params
        self.is_child = event.by.startswith("run:")
        self.status = event.to
        self.reason = event.reason
        self.attempt = 0
        self.place: int | None = None
        self.holds_slot = False
        self.history: list[Status] = [event.to]
        self.superseded = False  # a newer run came to replace the one that this one came to replace
        self.interrupts: set[str] = set()
        self.created_in = event.seq
        self.ended_in: int | None = None

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def stands_in_queue(self) -> bool:
        return self.status is Status.QUEUED and self.place is not None

    def __repr__(self) -> str:
        return f"run {self.id} ({self.status}, handle {self.handle}, lane {self.lane}, place {self.place})"


class ToldHandle:
    """A handle: who holds it, and who waits in it."""

    def __init__(self) -> None:
        self.holder: str | None = None
        self.waiting: list[str] = []
        self.replacing: list[str] = []  # those of them that came to replace the holder
        self.draft: Any = None
        self.holders: list[tuple[int, str | None]] = [(0, None)]  # who held it after which seq

    def hold(self, seq: int, run: str | None) -> None:
        self.holder = run
        self.holders.append((seq, run))

    def held_by(self, since: int, until: int) -> set[str | None]:
        """Who held it at some time between two seqs."""
        return _values(self.holders, since, until)


class ToldLane:
    """A lane, with what happened to it in this instant."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.generation = 0
        self.highest = limit
        self.full_until = -1  # the last seq of this instant after which it had no room
        self.lost_grant = False  # whether a run left its queue that may have been granted a slot just before


class Story:
    """See the module's text. `faults` is empty as long as every rule holds."""

    def __init__(self, *, max_concurrent: int) -> None:
        self.events: list[Event] = []
        self.runs: dict[str, ToldRun] = {}
        self.handles: dict[str, ToldHandle] = {}
        self.lanes: dict[str, ToldLane] = {}
        self.faults: list[str] = []
        self.max_concurrent = max_concurrent
        self.draining: list[tuple[int, bool]] = [(0, False)]
        self.cleared: set[str] = (
            set()
        )  # runs that someone cleared, or that had been granted their slots by then
        self.leaving = False  # set by a test that leaves the engine: nothing is started any more
        self._interrupts: dict[str, str] = {}
        self._last_place = 0
        self._now: float | None = None
        self._highest = max_concurrent
        self._drained_throughout = self._drained_sometime = False
        self._begun: list[tuple[int, int, ToldRun]] = []  # in this instant: seq, place and run
        self._reset_now = False
        self._free_since = 0.0  # the first seq of this instant after which a slot was free
        self._freed_by_reset: set[str] = set()

    @property
    def seq(self) -> int:
        return self.events[-1].seq if self.events else 0

    def handle(self, name: str) -> ToldHandle:
        return self.handles.setdefault(name, ToldHandle())

    def lane(self, name: str) -> ToldLane:
        return self.lanes.setdefault(name, ToldLane(default_limit(name)))

    def drained_between(self, since: int, until: int) -> set[bool]:
        """Whether the engine was draining at some time between two seqs."""
        return _values(self.draining, since, until)

    def holders(self, lane: str | None = None) -> list[ToldRun]:
        """The runs that hold a slot."""
        return [run for run in self.runs.values() if run.holds_slot and lane in (None, run.lane)]

    def queue(self, lane: str) -> list[ToldRun]:
        """The runs that stand in a lane's queue, in order of place."""
        queued = [run for run in self.runs.values() if run.stands_in_queue and run.lane == lane]
        return sorted(queued, key=lambda run: run.place or 0)

    def pending(self) -> list[ToldRun]:
        return [run for run in self.runs.values() if not run.ended]

    def take(self, event: Event) -> None:
        """Read the next event."""
        if event.seq != self.seq + 1:
            self._fault(event, f"the event before it was {self.seq}")
        if event.at != self._now:
            self.end_instant()
            self._now = event.at
        self.events.append(event)
        if isinstance(event, RunEvent):
            self._run_event(event)
        elif isinstance(event, LaneChanged):
            self._lane_changed(event)
        elif isinstance(event, HandleChanged):
            self._handle_changed(event)
        elif isinstance(event, EngineChanged):
            self._engine_changed(event)
        self._note_room()

    def end_instant(self) -> None:
        """The clock moves on: everything that was said has had its effect."""
        lanes = {run.lane: run for run in self.runs.values()}
        queues = {name: queue for name in lanes if (queue := self.queue(name))}
        if (
            self._drained_sometime or self.leaving
        ):  # what is new had to wait, but not what was called by what had begun
            queues = {name: called for name in queues if (called := [r for r in queues[name] if r.is_child])}
        for seq, place, begun in self._begun:
            for name, queue in queues.items():
                head = queue[0]
                if (head.place or 0) < place and (name == begun.lane or self._had_room_first(name)):
                    self.faults.append(f"at {seq}, {begun} began before {head}, which comes first")
        if not self.leaving and len(self.holders()) < self.max_concurrent:
            for name, queue in queues.items():
                if self._has_room(name):
                    self.faults.append(f"after {self.seq}, a slot is free, yet {queue[0]} is left queued")
        for name, handle in self.handles.items():
            if handle.holder is None and handle.waiting and not self.leaving:
                self.faults.append(f"after {self.seq}, handle {name} is free, yet {handle.waiting} wait")
        for id in self.cleared:
            if self.runs[id].status is Status.QUEUED:
                self.faults.append(f"{self.runs[id]} was queued when it was cleared, and is still queued")
        self.cleared.clear()
        self._begun.clear()
        self._freed_by_reset.clear()
        self._reset_now = False
        self._highest = self.max_concurrent
        self._drained_throughout = self._drained_sometime = self.draining[-1][1]
        for name, lane in self.lanes.items():
            lane.highest = lane.limit
            lane.lost_grant = False
            lane.full_until = -1 if self._has_room(name) else self.seq
        self._free_since = self.seq if len(self.holders()) < self.max_concurrent else math.inf

    # Events.

    def _run_event(self, event: RunEvent) -> None:
        run = self.runs.get(event.run)
        if run is None:
            if isinstance(event, RunStateChanged) and event.from_ is None:
                self._created(event)
            else:
                self._fault(event, "no event has created this run")
            return
        if (event.handle, event.lane) != (run.handle, run.lane):
            self._fault(event, f"it is about {run}")
        if run.ended:
            self._fault(event, f"it is about {run}, which ended with {run.ended_in}")
        if isinstance(event, RunStateChanged):
            self._transition(event, run)
        elif isinstance(event, RunChanged):
            self._changed(event, run)
        elif isinstance(event, RunProgress | RunLog):
            if event.attempt != run.attempt or run.status not in (Status.SUSPENDED, *EXECUTES):
                self._fault(event, f"a body reports, in attempt {run.attempt} of {run}")
        elif isinstance(event, InterruptOpened):
            if event.interrupt in self._interrupts:
                self._fault(event, "the question was open before")
            self._interrupts[event.interrupt] = event.run
            run.interrupts.add(event.interrupt)
        elif isinstance(event, InterruptClosed):
            if event.interrupt not in run.interrupts:
                self._fault(event, "the question is not open")
            run.interrupts.discard(event.interrupt)

    def _created(self, event: RunStateChanged) -> None:
        run = self.runs[event.run] = ToldRun(event)
        handle = self.handle(run.handle)
        if event.to is not Status.QUEUED or event.attempt != 0:
            self._fault(event, "a run begins queued, before its first attempt")
        if event.place is not None:
            if handle.waiting:
                self._fault(event, f"it overtakes {handle.waiting}, which wait in the handle")
            self._admit(event, run, event.place)
            return
        if event.front:
            handle.waiting.insert(0, run.id)
            for older in handle.replacing:
                self.runs[older].superseded = True
            handle.replacing.append(run.id)
        else:
            handle.waiting.append(run.id)

    def _admit(self, event: RunEvent, run: ToldRun, place: int) -> None:
        handle = self.handle(run.handle)
        if handle.holder is not None:
            self._fault(event, f"the handle is held by {self.runs[handle.holder]}")
        if run.superseded:
            self._fault(event, f"{run} was superseded by a newer replacement")
        handle.hold(event.seq, run.id)
        self._place(event, run, place)

    def _place(self, event: RunEvent, run: ToldRun, place: int) -> None:
        if place <= self._last_place:
            self._fault(event, f"places as high as {self._last_place} were drawn before")
        self._last_place = run.place = place

    def _transition(self, event: RunStateChanged, run: ToldRun) -> None:
        before, to = run.status, event.to
        if event.from_ != before:
            self._fault(event, f"the run was {before}")
        if before not in allowed_from(to) or rank(to) < rank(before):
            self._fault(event, f"the table allows no way from {before} to {to}")
        if event.attempt not in ((run.attempt, run.attempt + 1) if to is Status.RUNNING else (run.attempt,)):
            self._fault(event, f"the attempt was {run.attempt}")
        if before is Status.QUEUED and to is Status.RUNNING and event.attempt != 1:
            self._fault(event, "the first attempt is 1")
        if event.place != run.place and to not in ENDED:
            self._fault(event, f"the place was {run.place}")
        if to is Status.RUNNING:
            self._begins(event, run)
        elif before is Status.QUEUED:
            self.lane(run.lane).lost_grant = True
        run.status, run.attempt, run.reason = to, event.attempt, event.reason
        run.history.append(to)
        if to is not Status.CANCELLING and to is not Status.RUNNING:
            run.holds_slot = False
        if to in ENDED:
            self._ended(event, run)

    def _begins(self, event: RunStateChanged, run: ToldRun) -> None:
        lane, handle = self.lane(run.lane), self.handle(run.handle)
        holders = [other for other in self.holders() if other.id not in self._freed_by_reset]
        if len(holders) >= self._highest:
            self._fault(event, f"{len(holders)} execute, which is all that {self._highest} allows")
        in_lane = [other for other in holders if other.lane == run.lane]
        if lane.highest is not None and len(in_lane) >= lane.highest:
            self._fault(event, f"{len(in_lane)} execute in its lane, which is all that {lane.highest} allows")
        if handle.holder != run.id:
            self._fault(event, f"the handle is held by {handle.holder}")
        if run.place is None:
            self._fault(event, "it has no place")
        if self._drained_throughout and run.status is Status.QUEUED and not run.is_child:
            self._fault(event, "the engine is draining")
        run.holds_slot = True
        self._begun.append((event.seq, run.place or 0, run))

    def _ended(self, event: RunStateChanged, run: ToldRun) -> None:
        run.ended_in = event.seq
        handle = self.handle(run.handle)
        if run.interrupts:
            self._fault(event, f"questions are left open: {run.interrupts}")
        if handle.holder == run.id and not event.holds_handle:
            handle.hold(event.seq, None)
        for names in (handle.waiting, handle.replacing):
            if run.id in names:
                names.remove(run.id)

    def _changed(self, event: RunChanged, run: ToldRun) -> None:
        if event.place is not None:
            if run.status is Status.QUEUED:
                handle = self.handle(run.handle)
                if handle.waiting[:1] != [run.id]:
                    self._fault(event, f"first in the handle is the first of {handle.waiting}")
                handle.waiting = [id for id in handle.waiting if id != run.id]
                handle.replacing = [id for id in handle.replacing if id != run.id]
                self._admit(event, run, event.place)
            elif run.status is Status.SUSPENDED:
                self._place(event, run, event.place)
            else:
                self._fault(event, f"{run} draws a place")
        if event.detached:
            if not run.holds_slot:
                self._fault(event, f"{run} holds no slot that it could lose")
            run.holds_slot = False

    def _lane_changed(self, event: LaneChanged) -> None:
        lane = self.lane(event.lane)
        if event.generation not in (lane.generation, lane.generation + 1):
            self._fault(event, f"the generation was {lane.generation}")
        if event.generation != lane.generation:
            self._reset_now = True
            self._freed_by_reset.update(run.id for run in self.holders())
        lane.limit, lane.generation = event.limit, event.generation
        lane.highest = _higher(lane.highest, event.limit)

    def _handle_changed(self, event: HandleChanged) -> None:
        handle = self.handle(event.handle)
        if event.freed is None:
            if handle.holder is not None:
                self._fault(event, f"the handle is locked by {self.runs[handle.holder]}")
            handle.draft = event.params
        else:
            if handle.holder != event.freed or not self.runs[event.freed].ended:
                self._fault(event, f"the handle is held by {handle.holder}")
            handle.hold(event.seq, None)

    def _engine_changed(self, event: EngineChanged) -> None:
        self.max_concurrent = event.max_concurrent
        self._highest = max(self._highest, event.max_concurrent)
        if event.draining != self.draining[-1][1]:
            self.draining.append((event.seq, event.draining))
        self._drained_throughout = self._drained_throughout and event.draining
        self._drained_sometime = self._drained_sometime or event.draining

    def _has_room(self, lane: str) -> bool:
        limit = self.lane(lane).limit
        return limit is None or len(self.holders(lane)) < limit

    def _had_room_first(self, lane: str) -> bool:
        """Whether a lane had room before any slot was free that a run of another lane has got since."""
        told = self.lane(lane)
        return told.full_until < self._free_since and not told.lost_grant and not self._reset_now

    def _note_room(self) -> None:
        for name, lane in self.lanes.items():
            if not self._has_room(name):
                lane.full_until = self.seq
        if self._free_since == math.inf and len(self.holders()) < self._highest:
            self._free_since = self.seq

    def _fault(self, event: Event, why: str) -> None:
        self.faults.append(f"{event}: {why}")


class StoryStore(MemoryStore):
    """A store in memory that has a story read every batch, at the moment it is committed.

    `turns` says how many turns of the scheduler each commit takes, over and over again.
    """

    def __init__(self, story: Story, turns: list[int] | None = None) -> None:
        super().__init__()
        self.story = story
        self.commits = 0
        self._turns = turns or [0]

    async def commit(self, batch: Batch) -> None:
        for _ in range(self._turns[self.commits % len(self._turns)]):
            await trio.lowlevel.checkpoint()
        self.commits += 1
        if batch.before != self.story.seq:
            self.story.faults.append(f"a batch follows {batch.before}, but the last was {self.story.seq}")
        for event in batch.events:
            self.story.take(event)
        for id, write in batch.runs.items():
            told = self.story.runs[id]
            if write.record.status is not told.status or write.record.params != told.params:
                self.story.faults.append(f"{write.record} was written for {told}")
        await super().commit(batch)


def _values(changes: list[tuple[int, Any]], since: int, until: int) -> set[Any]:
    """The values of something that changed at some seqs, between two of them."""
    before = [value for seq, value in changes if seq <= since][-1:]
    return {*before, *(value for seq, value in changes if since < seq <= until)}


def _higher(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)
