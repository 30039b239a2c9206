"""Rules 2 and 3 (and of 7, that no slot is lost): limits at the grant, and the order of places.

An *instant* is what happens at one reading of the clock. The clock of a simulation moves on only when no task
has anything left to do, so at the end of an instant everything that was said in it has had its effect. These
are the races within one, and all that is accepted of them:

- Limits hold when a slot is granted, and the run's event follows in the same instant. A limit that was
  lowered in this instant may come before the events of the runs that were granted their slots under the old
  one; so does a drain. At the next instant the new limit holds, and a draining engine starts nothing new:
  only what had begun goes on, and what that has called.
- Runs that are granted slots in the same instant may begin in either order, if one of them was not in its
  queue before, or a limit was changed. So order is judged when the instant is over: no run has begun while
  one with a lower place is left queued in the same lane.
- Among lanes, only the head of a lane counts that had room before any slot was free: the slot may have been
  granted before there was room. A run that was granted one and left the queue without beginning, because it
  was cancelled or timed out just then, or its lane was reset, may have taken up the room that the lane had.
- A run whose wait ended in this instant may have asked for its slot behind others; at the next it has not.
  One that began in this instant, and waits again, may have done so, too; and one whose body had to go because
  the lease was lost: a slot may have been granted while that was being committed.
- A run of which files are being deleted is about to end, or has to wait for that before it executes. It may
  be passed over, and it holds up nobody.
- Of the suspects (runs that executed when a process died, and have not been tried since) one at a time
  executes. While one does, or has done so in this instant, the others may be passed over.
- A reset frees the slots of all lanes at once; its events come lane by lane. Until the instant is over,
  what executed when the reset began may already not count. So it is with a restart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from ..protocol.events import LaneChanged, RunStateChanged
from ..protocol.states import Status
from .told import Told, ToldRun


class Order:
    """Judges who begins, and who is left waiting. `fault` is told of what is wrong."""

    def __init__(self, told: Told, fault: Callable[[str], None]) -> None:
        self._told = told
        self._fault = fault
        self._begun: list[tuple[int, int, ToldRun]] = []  # in this instant: seq, place and run
        self._tried_one = False  # whether a suspect has executed in this instant
        self._freed: set[str] = set()  # runs that a reset or restart of this instant has taken the slots of
        self._awake: set[str] = set()  # runs whose waits were over when the instant began
        self._queued: set[str] = set()  # all that stood in queues then
        self._limits_changed = False
        self._highest = 0  # the highest global limit of this instant, and those of the lanes
        self._lane_highest: dict[str, int | None] = {}
        self._full_until: dict[str, int] = {}  # by lane: the last seq after which it had no room
        self._lost_grant: set[str] = set()  # lanes that a run left that may have been granted a slot
        self._free_since: float = 0  # the first seq of this instant after which a slot was free
        self._just_back: set[str] = set()  # runs that gave their slot back in this instant and want another
        self._reset_now = False
        self._drained_throughout = self._drained_sometime = False

    def opened(self, max_concurrent: int, limits: Mapping[str, int | None]) -> None:
        """A restart: the limits are those that were configured, and nobody executes any more."""
        self._queued.clear()
        self._awake.clear()
        self._new_instant()
        self._freed.update(run.id for run in self._told.holders())
        self._highest = max_concurrent
        self._lane_highest.update(limits)
        self._drained_throughout = self._drained_sometime = False
        self._full_until.clear()
        self._free_since = self._told.seq

    def begins(self, event: RunStateChanged, run: ToldRun) -> str | None:
        """A run is granted a slot: why it may not be, or `None`."""
        holders = [other for other in self._told.holders() if other.id not in self._freed]
        in_lane = [other for other in holders if other.lane == run.lane]
        limit = self._highest_of(run.lane)
        self._begun.append((event.seq, run.place or 0, run))
        self._tried_one = self._tried_one or run.is_suspect
        self._freed.discard(run.id)
        if len(holders) >= self._highest:
            return f"{len(holders)} execute, which is all that {self._highest} allows"
        if limit is not None and len(in_lane) >= limit:
            return f"{len(in_lane)} execute in its lane, which is all that {limit} allows"
        if self._drained_throughout and not _privileged(run):
            return "the engine is draining"
        return None

    def left_queue(self, run: ToldRun) -> None:
        """A run left its lane's queue without beginning."""
        self._lost_grant.add(run.lane)

    def comes_back(self, run: ToldRun) -> None:
        """A run gave its slot back, and wants another one."""
        self._just_back.add(run.id)

    def lane_changed(self, event: LaneChanged, generation: int) -> None:
        """A lane is about to get another limit, or was reset."""
        self._limits_changed = True
        if event.generation != generation:
            self._reset_now = True
            self._freed.update(run.id for run in self._told.holders())
        self._lane_highest[event.lane] = _higher(self._highest_of(event.lane), event.limit)

    def engine_changed(self, max_concurrent: int, draining: bool) -> None:
        """The global limit is about to change, or whether the engine drains."""
        self._limits_changed = True
        self._highest = max(self._highest, max_concurrent)
        self._drained_throughout = self._drained_throughout and draining
        self._drained_sometime = self._drained_sometime or draining

    def note_room(self) -> None:
        """After each event: which lanes have no room, and whether a slot is free."""
        for name in self._told.lanes:
            if not self._has_room(name):
                self._full_until[name] = self._told.seq
        if self._free_since == math.inf and len(self._holders()) < self._highest:
            self._free_since = self._told.seq

    def end_instant(self, awake: set[str], *, leaving: bool) -> None:
        """The clock moves on. `awake` are suspended runs whose waits are over."""
        self._freed.clear()
        for id in awake:
            self._told.pending[id].waits_for_slot = True
        queues = self._told.queues()
        queues = _only(queues, lambda run: run.id not in self._told.deleting)
        if self._drained_sometime:
            queues = _only(queues, _privileged)
        suspects = [run for run in self._holders() if run.is_suspect]
        if len(suspects) > 1:
            self._fault(f"after {self._told.seq}, {suspects} execute beside each other, after a death")
        if not leaving:
            compared = _only(queues, lambda run: not (self._tried_one and run.is_suspect))
            just_woken = (awake - self._awake) | self._just_back | {run.id for _, _, run in self._begun}
            self._judge_order(compared, just_woken)
            self._judge_free_slots(_only(queues, lambda run: not (suspects and run.is_suspect)))
        self._queued = {run.id for queue in self._told.queues().values() for run in queue}
        for id in awake:
            self._told.pending[id].waits_for_slot = False
        self._awake = awake
        self._new_instant()

    def _judge_order(self, queues: dict[str, list[ToldRun]], just_woken: set[str]) -> None:
        for seq, place, begun in self._begun:
            for name, queue in queues.items():
                head = next((run for run in queue if run.id not in just_woken), None)
                if head is None or (head.place or 0) > place:
                    continue
                if name == begun.lane or self._had_room_first(name):
                    self._fault(f"at {seq}, {begun} began before {head}, which comes first")

        highest: dict[str, int] = {}  # by lane: the place of the last that began
        for seq, place, begun in self._begun:
            if begun.id in self._queued and not self._limits_changed and not begun.is_suspect:
                self._queued.discard(begun.id)  # it may have waited since, and begun again
                if place < highest.get(begun.lane, 0):
                    self._fault(f"at {seq}, {begun} began, after one with a higher place")
                highest[begun.lane] = place

    def _judge_free_slots(self, queues: dict[str, list[ToldRun]]) -> None:
        if len(self._holders()) < self._told.max_concurrent:
            for name, queue in queues.items():
                if self._has_room(name):
                    self._fault(f"after {self._told.seq}, a slot is free, yet {queue[0]} is left waiting")

    def _new_instant(self) -> None:
        told = self._told
        self._begun.clear()
        self._tried_one = any(run.is_suspect for run in told.holders())
        self._freed.clear()
        self._lost_grant.clear()
        self._just_back.clear()
        self._lane_highest.clear()
        self._reset_now = self._limits_changed = False
        self._highest = told.max_concurrent
        self._drained_throughout = self._drained_sometime = told.draining[-1][1]
        self._full_until = {name: told.seq for name in told.lanes if not self._has_room(name)}
        self._free_since = told.seq if len(told.holders()) < told.max_concurrent else math.inf

    def _holders(self, lane: str | None = None) -> list[ToldRun]:
        return [run for run in self._told.holders(lane) if run.id not in self._freed]

    def _highest_of(self, lane: str) -> int | None:
        return self._lane_highest.get(lane, self._told.lane(lane).limit)

    def _has_room(self, lane: str) -> bool:
        limit = self._told.lane(lane).limit
        return limit is None or len(self._holders(lane)) < limit

    def _had_room_first(self, lane: str) -> bool:
        """Whether a lane had room before any slot was free that a run of another lane has got since."""
        told = self._told
        first = self._full_until.get(lane, -1) < self._free_since
        refuses = any(run.id in told.deleting for run in told.pending.values() if run.lane == lane)
        return first and not refuses and lane not in self._lost_grant and not self._reset_now


def _only(queues: dict[str, list[ToldRun]], wanted: Callable[[ToldRun], object]) -> dict[str, list[ToldRun]]:
    return {name: left for name, queue in queues.items() if (left := [run for run in queue if wanted(run)])}


def _privileged(run: ToldRun) -> bool:
    """Whether it may start while the engine drains: it had begun, or it was called by one that has."""
    return run.status is Status.SUSPENDED or run.parent is not None


def _higher(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)
