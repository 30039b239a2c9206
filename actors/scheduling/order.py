"""The order in which runs start. One formula, evaluated in one turn of the supervisor:

    next = the queued run with the lowest place, among all runs whose lane has room and for which
           an executor has room, while fewer runs hold a slot than the global limit allows

A lane has room while fewer of its runs hold a slot than its own limit allows. An executor has room for a run
while it has a free slot, if it can execute the run (`executor_pool.py`). While the engine drains, only
privileged runs count as queued: runs that have begun, and the children of executing runs. A run that is on
trial after a crash (`trials.py`) can be skipped until others have been tried.

So the order is strict by place within each lane and among the first runs of all lanes with room, and a full
lane never delays the runs of another lane. Likewise, a run without an executor keeps its place and never
delays a run that another executor can take. Priorities and fairness would replace the place as sort key, and
change nothing else.

The runs of a lane that have the same demand form one queue, and the queues that the same executors can serve
form one group. While these executors have no room, the whole group is blocked: its runs cost nothing until
one of the executors has room.

Plain data: no messages, no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from ...protocol.records import default_limit
from .executor_pool import IN_PROCESS, Able, Demand, Executor, ExecutorPool, choose
from .place_queue import PlaceQueue
from .trials import Trials

_SLACK = 64


class Slot(NamedTuple):
    """A slot granted to a run, and the executor of its body; `None` for the engine's own process. A reset of
    the lane voids the slots of its older generations."""

    run: str
    generation: int
    executor: str | None = None


class Wait(NamedTuple):
    """Why a queued run waits: how many runs of its lane are ahead, which runs hold the slots it needs, and
    why no executor has room for it, if that is the case."""

    ahead: int
    blockers: list[str]
    reason: str | None = None


class _Lane:
    """The state of a lane in which a run is queued or holds a slot."""

    __slots__ = ("executing", "generation", "limit", "queued", "queues")

    def __init__(self, limit: int | None, generation: int) -> None:
        self.limit = limit
        self.generation = generation
        self.executing: dict[str, None] = {}
        self.queues: dict[Demand, _Queue] = {}
        self.queued = 0  # the number of runs in the queues

    def has_room(self) -> bool:
        return self.limit is None or len(self.executing) < self.limit

    def queue_of(self, run: str) -> _Queue | None:
        if self.queued:
            for queue in self.queues.values():
                if run in queue.runs:
                    return queue
        return None


class _Queue:
    """The queued runs of a lane that have the same demand."""

    __slots__ = ("demand", "group", "lane", "lane_name", "offered", "privileged", "runs", "serial")

    def __init__(self, demand: Demand, lane_name: str, lane: _Lane, group: _Group, serial: int) -> None:
        self.demand = demand
        self.lane_name = lane_name
        self.lane = lane
        self.group = group
        self.serial = serial
        self.runs = PlaceQueue()
        self.privileged: PlaceQueue | None = None  # the privileged runs of the queue, if any
        self.offered: int | None = None  # the place with which the queue is in the heads of its group

    def head(self, holding: bool) -> tuple[int, str] | None:
        eligible = self.privileged if holding else self.runs
        return None if eligible is None else eligible.first()

    def remove(self, run: str) -> None:
        self.lane.queued -= 1
        self.runs.remove(run)
        if self.privileged is not None and run in self.privileged:
            self.privileged.remove(run)


class _Group:
    """The queues that the same executors can serve."""

    __slots__ = (
        "able",
        "blocked",
        "can_block",
        "heads",
        "offered",
        "only",
        "outdated",
        "serial",
        "unreported",
    )

    def __init__(self, able: Able, local: Executor, serial: int) -> None:
        self.able = able
        self.serial = serial
        # While fewer runs hold a slot than the global limit allows, the engine's own process has room.
        self.can_block = local not in able
        self.only = local if able == (local,) else None
        self.blocked = False
        self.heads: list[tuple[int, int, _Queue]] = []  # queues of lanes with room, by place; some outdated
        self.outdated = 0  # the heads that are outdated because a run left its queue
        self.offered: int | None = None  # the place with which the group is in the heap of groups
        self.unreported: dict[_Queue, None] = {}  # the queues whose first run was not reported yet


class Order:
    """See the module's docstring. `local_jobs` are the jobs that the engine's own process executes."""

    def __init__(self, local_jobs: Container[str] = ()) -> None:
        self.limit = 0
        self.executing: dict[str, int] = {}  # run: the generation of its slot
        self.limits: dict[str, int | None] = {}  # of the lanes with a limit set explicitly
        self.generations: dict[str, int] = {}  # of the lanes that were ever reset
        self.trials = Trials()
        self.pool = ExecutorPool(local_jobs)
        self._holding = False
        self._lanes: dict[str, _Lane] = {}  # those with a queued run or a slot in use
        self._groups: dict[Able, _Group] = {}
        self._blockable: list[_Group] = []  # the groups that can be blocked
        self._first: list[tuple[int, int, _Group]] = []  # groups with room, by first place; some outdated
        self._serial = 0  # makes the entries of heaps comparable
        self._reported: set[str] = set()  # the queued runs that `take_blocked` has returned

    @property
    def lanes(self) -> Collection[str]:
        """The lanes in which a run is queued or holds a slot."""
        return self._lanes.keys()

    def limit_of(self, lane: str) -> int | None:
        """A lane's own limit."""
        return self.limits.get(lane, default_limit(lane))

    def reports(self) -> Iterator[dict[str, Any]]:
        """The reports of all lanes in which a run is queued or holds a slot."""
        for name, lane in self._lanes.items():
            yield {
                "kind": "lane",
                "name": name,
                "limit": lane.limit,
                "generation": lane.generation,
                "executing": list(lane.executing),
                "queued": lane.queued,
            }

    # Changes.

    def enter(
        self, run: str, lane: str, place: int, *, privileged: bool, demand: Demand = IN_PROCESS
    ) -> None:
        """Queue a run in its lane at its place."""
        known = self._lanes.get(lane) or self._lane(lane)
        queue = known.queues.get(demand)
        if queue is None:
            self._serial += 1
            queue = known.queues[demand] = _Queue(demand, lane, known, self._group_of(demand), self._serial)
        known.queued += 1
        queue.runs.add(run, place)
        if privileged:
            if queue.privileged is None:
                queue.privileged = PlaceQueue()
            queue.privileged.add(run, place)
        self._offer(queue)

    def leave(self, run: str, lane: str) -> None:
        """Remove a run from the queue: it needs no slot now."""
        known = self._lanes.get(lane)
        queue = None if known is None else known.queue_of(run)
        if queue is not None:
            self._remove(queue, run)
            self._offer(queue)
            self._forget_idle(queue)
        if self._reported:
            self._reported.discard(run)
        if self.trials.has_suspects:
            self.trials.leave(run)

    def forget(self, run: str) -> None:
        """A run that neither is queued nor holds a slot has ended."""
        if self.trials.has_suspects:
            self.trials.forget(run)
        if self.pool.bodies:
            self.pool.lose_body(run)

    def release(self, run: str, lane: str, generation: int, now: float, *, body_waits: bool) -> None:
        """Release a run's slot. A slot of an older generation frees nothing."""
        held = self.executing.get(run)
        if body_waits:
            self.trials.waits(run)
        else:
            if self.trials.has_suspects:
                self.trials.lost_body(run, now)
            if self.pool.bodies and (held is None or held == generation):
                self.pool.lose_body(run)
        if held != generation:
            return
        del self.executing[run]
        known = self._lanes[lane]
        del known.executing[run]
        executor = self.pool.release(run)
        if executor is not None:
            self._has_room_again(executor)
        if known.limit is not None:  # otherwise, its queues have been offered
            self._offer_all(known)
        if not known.executing:
            self._forget_idle_lane(lane, known)

    def restore_slot(self, run: str, lane: str, executor: str) -> int:
        """Restore the slot of a run whose body can still execute at an executor; returns its generation."""
        known = self._lane(lane)
        known.executing[run] = None
        self.executing[run] = known.generation
        self.pool.restore(run, executor, has_slot=True)
        return known.generation

    def set_limit(self, lane: str, limit: int | None) -> None:
        """Change a lane's own limit."""
        self.limits[lane] = limit
        known = self._lanes.get(lane)
        if known is not None:
            known.limit = limit
            self._offer_all(known)

    def hold(self, holding: bool) -> None:
        """Grant slots to privileged runs only, or to all runs again."""
        if holding != self._holding:
            self._holding = holding
            for known in self._lanes.values():
                self._offer_all(known)

    def reset(self, lane: str) -> list[str]:
        """Void the slots of a lane and begin its next generation; returns the runs that held the slots."""
        self.generations[lane] = self.generations.get(lane, 0) + 1
        known = self._lanes.get(lane)
        if known is None:
            return []
        known.generation += 1
        detached, known.executing = list(known.executing), {}
        for run in detached:
            del self.executing[run]
            executor = self.pool.release(run)
            if executor is not None:
                self._has_room_again(executor)
        self._offer_all(known)
        self._forget_idle_lane(lane, known)
        return detached

    def regroup(self) -> None:
        """The pool has changed: find out again which executors can serve each queue."""
        self._groups, self._blockable, self._first = {}, [], []
        for known in self._lanes.values():
            for demand, queue in known.queues.items():
                queue.group, queue.offered = self._group_of(demand), None
                self._offer(queue)

    # Decisions.

    def grants(self, now: float, is_due: Callable[[str], bool]) -> Iterator[Slot]:
        """Grant the free slots, in order of place. A run that `is_due` to end is removed without a slot."""
        self.pool.local.slots = self.limit
        has_suspects = self.trials.has_suspects
        while len(self.executing) < self.limit and self._first:
            place, _, group = heappop(self._first)
            if group.offered != place:
                continue  # the entry is outdated
            group.offered = None
            head = self._head(group)
            if head is None:
                continue
            if head[0] != place:
                self._offer_group(group)
                continue
            _, run, queue = head
            executor = group.only or choose(group.able)
            if executor is None:
                group.blocked = True
                continue
            heappop(group.heads)
            queue.offered = None
            queue.remove(run)
            concerned = has_suspects and self.trials.concerns(run)
            due = is_due(run)
            if concerned and not due:
                executor = self._permitted(run, group.able, executor, now)
            if due or executor is None:
                self._offer(queue)
                self._offer_group(group)
                self._forget_idle(queue)
                continue
            if concerned:
                self.trials.granted(run, now, executor.id)
            self.pool.take(run, executor)
            if self._reported:
                self._reported.discard(run)
            lane = queue.lane
            lane.executing[run] = None
            self.executing[run] = lane.generation
            if group.heads:
                self._offer_group(group)
            if lane.queued:
                self._offer(queue)
            if len(lane.queues) > 1:
                self._forget_empty(queue)
            yield Slot(run, lane.generation, executor.id)

    def take_blocked(self) -> list[str]:
        """Take the runs that only lack an executor: the first run of each blocked queue. Each is returned
        once."""
        if not self._blockable or len(self.executing) >= self.limit:
            return []
        found: list[tuple[int, str]] = []
        for group in self._blockable:
            if not (group.blocked and group.unreported):
                continue
            unreported, group.unreported = group.unreported, {}
            for queue in unreported:
                head = queue.head(self._holding)
                if head is not None and queue.lane.has_room() and head[1] not in self._reported:
                    self._reported.add(head[1])
                    found.append(head)
        return [run for _, run in sorted(found)]

    def wait_of(self, run: str, lane: str) -> Wait | None:
        """Why a run waits; `None` if it is not queued."""
        known = self._lanes.get(lane)
        queue = None if known is None else known.queue_of(run)
        if known is None or queue is None:
            return None
        place = queue.runs.place_of(run)
        ahead = sum(each.runs.before(place) for each in known.queues.values())
        reason = None
        if queue.group.can_block and choose(queue.group.able) is None:
            reason = self.pool.why_blocked(queue.demand)
        if not known.has_room():
            blockers = list(known.executing)
        elif reason is None or len(self.executing) >= self.limit:
            blockers = list(self.executing)
        else:
            blockers = self.pool.users(queue.group.able)
        return Wait(ahead, blockers, reason)

    # Lanes, queues and groups.

    def _remove(self, queue: _Queue, run: str) -> None:
        """Remove a run that leaves its queue. A group can be blocked for long: remove its outdated heads."""
        if queue.offered == queue.runs.place_of(run):
            queue.offered = None
            group = queue.group
            group.outdated += 1
            if group.outdated > _SLACK and group.outdated * 2 > len(group.heads):
                group.heads = [head for head in group.heads if head[2].offered == head[0]]
                heapify(group.heads)
                group.outdated = 0
        queue.remove(run)

    def _lane(self, lane: str) -> _Lane:
        known = self._lanes.get(lane)
        if known is None:
            known = self._lanes[lane] = _Lane(self.limit_of(lane), self.generations.get(lane, 0))
        return known

    def _group_of(self, demand: Demand) -> _Group:
        able = self.pool.able(demand)
        group = self._groups.get(able)
        if group is None:
            self._serial += 1
            group = self._groups[able] = _Group(able, self.pool.local, self._serial)
            if group.can_block:
                self._blockable.append(group)
        return group

    def _permitted(self, run: str, able: Able, chosen: Executor, now: float) -> Executor | None:
        """The executor that a run can use now, with regard to trials; else the run is set aside."""
        if self.trials.has_to_wait(run):
            self.trials.set_aside(run)
            return None
        avoid = self.trials.avoid(run)
        executor = chosen if not avoid else choose(able, avoid)
        if executor is None:
            self.trials.delay(run, now)
        return executor

    def _head(self, group: _Group) -> tuple[int, str, _Queue] | None:
        """The first run of a group, if any; outdated heads are removed."""
        while group.heads:
            place, _, queue = group.heads[0]
            if queue.offered == place:
                eligible = queue.privileged if self._holding else queue.runs
                head = None if eligible is None else eligible.first()
                if head is not None and head[0] == place and queue.lane.has_room():
                    return place, head[1], queue
                queue.offered = None  # the lane offers it again when it has room
            heappop(group.heads)
        return None

    def _offer_all(self, known: _Lane) -> None:
        for queue in known.queues.values():
            self._offer(queue)

    def _offer(self, queue: _Queue) -> None:
        """Add the queue's first run to the heads of its group, if its lane has room."""
        eligible = queue.privileged if self._holding else queue.runs
        head = None if eligible is None else eligible.first()
        lane = queue.lane
        if head is None or not (lane.limit is None or len(lane.executing) < lane.limit):
            return
        group = queue.group
        if group.can_block and head[1] not in self._reported:
            group.unreported[queue] = None
        if head[0] == queue.offered:
            return
        queue.offered = head[0]
        heappush(group.heads, (head[0], queue.serial, queue))
        if group.offered is None or head[0] < group.offered:
            self._offer_group(group)

    def _offer_group(self, group: _Group) -> None:
        """Add the group's first place to the heap of groups, if it is not blocked."""
        if group.blocked or not group.heads:
            return
        place = group.heads[0][0]
        if group.offered is None or place < group.offered:
            group.offered = place
            heappush(self._first, (place, group.serial, group))

    def _has_room_again(self, executor: Executor) -> None:
        """An executor has a free slot: the groups that it can serve are no longer blocked."""
        for group in self._blockable:
            if group.blocked and executor in group.able:
                group.blocked = False
                self._offer_group(group)

    def _forget_empty(self, queue: _Queue) -> None:
        """Forget an empty queue, unless it is the lane's only one, which is likely to be used again."""
        queues = queue.lane.queues
        if len(queues) > 1 and not len(queue.runs):
            del queues[queue.demand]
            queue.group.unreported.pop(queue, None)

    def _forget_idle(self, queue: _Queue) -> None:
        self._forget_empty(queue)
        self._forget_idle_lane(queue.lane_name, queue.lane)

    def _forget_idle_lane(self, lane: str, known: _Lane) -> None:
        if not known.executing and not known.queued:
            del self._lanes[lane]
            for queue in known.queues.values():
                queue.group.unreported.pop(queue, None)
