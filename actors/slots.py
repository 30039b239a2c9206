"""The global slots: who holds one, who wants one, and who is next.

Kept by the supervisor; plain data without messages. A free slot goes to the lowest place that any lane asks
for. Lanes work beside the supervisor, so one of them may not have said yet that it has room for a run with a
lower place still; until every such lane has reported, no slot goes to a higher place. That is what keeps the
order strict among lanes, and the wait is one turn of the lane.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from .messages import Grant, LaneReport
from .suspects import Suspects


class Granting(NamedTuple):
    """A slot for a run, and the lane to tell."""

    lane: str
    grant: Grant


class SetAside(NamedTuple):
    """A run that has to wait although there is a slot for it: its lane is to pass it over."""

    lane: str
    run: str


class _Unsettled:
    """A lane that has been told of changes which it hasn't reported on yet."""

    __slots__ = ("entering", "next_place", "resetting", "settling")

    def __init__(self, next_place: float) -> None:
        self.next_place = next_place  # the lowest place that it may turn out to have room for
        self.entering: deque[int] = deque()
        self.settling = 0
        self.resetting = False  # it was reset, and any of the runs that it gave room may want a new slot

    def lowest(self) -> float:
        if self.resetting:
            return -math.inf
        # Not sorted: a run that comes back has an old place, and a restart takes them as submitted.
        return min(self.next_place, min(self.entering, default=math.inf))


class Slots:
    """See the module's text."""

    def __init__(self) -> None:
        self.limit = 0
        self.executing: dict[str, int] = {}  # run: the generation of its slot
        self.generations: dict[str, int] = {}  # lane: how often it was reset, where it ever was
        self._asked: dict[int, tuple[str, str]] = {}
        self._heap: list[int] = []  # the asked places, and some that are asked for no longer
        self._next_places: dict[str, int] = {}
        self._unsettled: dict[str, _Unsettled] = {}
        self.suspects = Suspects()

    def entering(self, lane: str, place: int) -> None:
        """The lane is being told of a run that enters it."""
        self._await_report(lane).entering.append(place)

    def settling(self, lane: str) -> None:
        """The lane is being told of something that may give it room."""
        self._await_report(lane).settling += 1

    def left(self, run: str, lane: str, generation: int | None, now: float) -> None:
        """A run gave its slot back, or left the queue; an older generation frees nothing."""
        self.settling(lane)
        self.suspects.gave_back(run, now)
        if generation is not None and self.executing.get(run) == generation:
            del self.executing[run]

    def report(self, report: LaneReport, now: float) -> None:
        """Take a lane's word for what it wants."""
        for place, run in report.wants.items():
            if run is None:
                self._asked.pop(place, None)
            else:
                if place not in self._asked:
                    heappush(self._heap, place)
                self._asked[place] = (report.lane, run)
        for grant in report.returned:
            self.suspects.gave_back(grant.run, now)
            if self.executing.get(grant.run) == grant.generation:
                del self.executing[grant.run]
        if report.next_place is None:
            self._next_places.pop(report.lane, None)
        else:
            self._next_places[report.lane] = report.next_place
        waiting = self._unsettled.get(report.lane)
        if waiting is not None:
            waiting.next_place = math.inf if report.next_place is None else report.next_place
            waiting.settling -= report.settled
            if report.generation == self.generations.get(report.lane, 0):
                waiting.resetting = False
            for _ in range(report.entered):
                waiting.entering.popleft()
            if not waiting.settling and not waiting.entering:
                del self._unsettled[report.lane]

    def any_unsettled(self) -> bool:
        """Whether a lane has yet to report on what it was told."""
        return bool(self._unsettled)

    def reset(self, lanes: list[str]) -> None:
        """Take every slot away; the generations of these lanes rise."""
        self.executing.clear()
        self.suspects.reset()
        for lane in lanes:
            self.generations[lane] = self.generations.get(lane, 0) + 1
            self.settling(lane)
            self._await_report(lane).resetting = True

    def grants(self, now: float) -> Iterator[Granting | SetAside]:
        """Give the free slots away, in order of place."""
        if len(self.executing) >= self.limit or not self._heap:
            return
        bar = min((waiting.lowest() for waiting in self._unsettled.values()), default=math.inf)
        while len(self.executing) < self.limit and self._heap:
            place = self._heap[0]
            asked = self._asked.get(place)
            if asked is not None and place > bar:
                return
            heappop(self._heap)
            if asked is not None:
                del self._asked[place]
                lane, run = asked
                if self.suspects.has_to_wait(run):
                    self.suspects.set_aside(run, lane)
                    self.settling(lane)
                    bar = min(bar, self._unsettled[lane].lowest())
                    yield SetAside(lane, run)
                    continue
                self.suspects.granted(run, now)
                generation = self.generations.get(lane, 0)
                self.executing[run] = generation
                yield Granting(lane, Grant(run, generation))

    def _await_report(self, lane: str) -> _Unsettled:
        waiting = self._unsettled.get(lane)
        if waiting is None:
            waiting = self._unsettled[lane] = _Unsettled(self._next_places.get(lane, math.inf))
        return waiting
