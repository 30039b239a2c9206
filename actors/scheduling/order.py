"""The order in which runs start. One formula, evaluated in one turn of the supervisor:

    next = the queued run with the lowest place, among all runs whose lane has room, while
           fewer runs hold a slot than the global limit allows

A lane has room while fewer of its runs hold a slot than its own limit allows. While the engine drains, only
privileged runs count as queued: runs that have begun, and the children of executing runs. A run that is on
trial after a crash (`trials.py`) can be skipped until others have been tried.

So the order is strict by place within each lane and among the first runs of all lanes with room, and a full
lane never delays the runs of another lane. Priorities and fairness would replace the place as sort key, and
change nothing else.

Plain data: no messages, no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from heapq import heappop, heappush
from typing import Any, NamedTuple

from ...protocol.records import default_limit
from .place_queue import PlaceQueue
from .trials import Trials


class Slot(NamedTuple):
    """A slot granted to a run. A reset of the lane voids the slots of its older generations."""

    run: str
    generation: int


class Wait(NamedTuple):
    """Why a queued run waits: how many runs of its lane are ahead, and which runs hold the slots it needs."""

    ahead: int
    blockers: list[str]


class _Lane:
    """The state of a lane in which a run is queued or holds a slot."""

    __slots__ = ("executing", "generation", "limit", "offered", "privileged", "queue")

    def __init__(self, limit: int | None, generation: int) -> None:
        self.limit = limit
        self.generation = generation
        self.executing: dict[str, None] = {}
        self.queue = PlaceQueue()
        self.privileged: PlaceQueue | None = None  # the privileged runs of the queue, if any
        self.offered: int | None = None  # the place with which the lane is in the heap of heads

    def has_room(self) -> bool:
        return self.limit is None or len(self.executing) < self.limit

    def eligible(self, holding: bool) -> PlaceQueue | None:
        return self.privileged if holding else self.queue

    def take_out(self, run: str) -> None:
        if run in self.queue:
            self.queue.remove(run)
        if self.privileged is not None and run in self.privileged:
            self.privileged.remove(run)


class Order:
    """See the module's docstring."""

    def __init__(self) -> None:
        self.limit = 0
        self.executing: dict[str, int] = {}  # run: the generation of its slot
        self.limits: dict[str, int | None] = {}  # of the lanes with a limit set explicitly
        self.generations: dict[str, int] = {}  # of the lanes that were ever reset
        self.trials = Trials()
        self._holding = False
        self._lanes: dict[str, _Lane] = {}  # those with a queued run or a slot in use
        self._heads: list[tuple[int, str]] = []  # lanes with room, by their first place; some outdated

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
                "queued": len(lane.queue),
            }

    # Changes.

    def enter(self, run: str, lane: str, place: int, *, privileged: bool) -> None:
        """Queue a run in its lane at its place."""
        known = self._lanes.get(lane)
        if known is None:
            known = self._lanes[lane] = _Lane(self.limit_of(lane), self.generations.get(lane, 0))
        known.queue.add(run, place)
        if privileged:
            if known.privileged is None:
                known.privileged = PlaceQueue()
            known.privileged.add(run, place)
        self._offer(lane, known)

    def leave(self, run: str, lane: str) -> None:
        """Remove a run from the queue: it needs no slot now."""
        known = self._lanes.get(lane)
        if known is not None:
            known.take_out(run)
            self._forget_idle(lane, known)
        self.trials.leave(run)

    def release(self, run: str, lane: str, generation: int, now: float, *, body_waits: bool) -> None:
        """Release a run's slot. A slot of an older generation frees nothing."""
        if body_waits:
            self.trials.waits(run)
        else:
            self.trials.lost_body(run, now)
        if self.executing.get(run) != generation:
            return
        del self.executing[run]
        known = self._lanes[lane]
        del known.executing[run]
        self._offer(lane, known)
        self._forget_idle(lane, known)

    def set_limit(self, lane: str, limit: int | None) -> None:
        """Change a lane's own limit."""
        self.limits[lane] = limit
        known = self._lanes.get(lane)
        if known is not None:
            known.limit = limit
            self._offer(lane, known)

    def hold(self, holding: bool) -> None:
        """Grant slots to privileged runs only, or to all runs again."""
        if holding != self._holding:
            self._holding = holding
            for lane, known in self._lanes.items():
                self._offer(lane, known)

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
        self._offer(lane, known)
        self._forget_idle(lane, known)
        return detached

    # Decisions.

    def grants(self, now: float, is_due: Callable[[str], bool]) -> Iterator[Slot]:
        """Grant the free slots, in order of place. A run that `is_due` to end is removed without a slot."""
        while len(self.executing) < self.limit and self._heads:
            place, lane = heappop(self._heads)
            known = self._lanes.get(lane)
            if known is None or known.offered != place:
                continue  # the entry is outdated
            known.offered = None
            eligible = known.eligible(self._holding)
            head = None if eligible is None else eligible.at(0)
            if head is None or head[0] != place or not known.has_room():
                self._offer(lane, known)
                continue
            run = head[1]
            known.take_out(run)
            due = is_due(run)
            if due or self.trials.has_to_wait(run):
                if not due:
                    self.trials.set_aside(run)
                self._offer(lane, known)
                self._forget_idle(lane, known)
                continue
            self.trials.granted(run, now)
            known.executing[run] = None
            self.executing[run] = known.generation
            self._offer(lane, known)
            yield Slot(run, known.generation)

    def wait_of(self, run: str, lane: str) -> Wait | None:
        """Why a run waits; `None` if it is not queued."""
        known = self._lanes.get(lane)
        if known is None or run not in known.queue:
            return None
        blockers = self.executing if known.has_room() else known.executing
        return Wait(known.queue.ahead(run), list(blockers))

    def _offer(self, lane: str, known: _Lane) -> None:
        """Add the lane's first run to the heads, if the lane has room."""
        eligible = known.eligible(self._holding)
        head = None if eligible is None else eligible.at(0)
        if head is None or head[0] == known.offered or not known.has_room():
            return
        known.offered = head[0]
        heappush(self._heads, (head[0], lane))

    def _forget_idle(self, lane: str, known: _Lane) -> None:
        if not known.executing and not len(known.queue):
            del self._lanes[lane]
