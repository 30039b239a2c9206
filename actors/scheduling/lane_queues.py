"""What the order keeps of a lane: its queued runs in queues, its slots in use, and the turns of its keys.

The runs of a lane that have the same demand, priority and key form one queue, in which they are in the order
of their places. A lane without rules has one queue for each demand. Where a lane has priorities or keys, the
queues that the same executors can serve form a bundle, which is offered as one.

Plain data, which belongs to `order.py`.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from ...protocol.lanes import LaneRules, rank
from .executor_pool import Able, Demand, Executor
from .place_queue import PlaceQueue, Queued

SLACK = 64
"""Outdated entries that a heap may have before they are removed."""

QueueId = tuple[Demand, int, str | None, bool]
"""Where a lane has a queue: the demand, priority and key of its runs, and whether they are free."""

Sort = tuple[float, int]
"""The rank and the place of a run: the order of all runs that could start."""


class Key:
    """A key of a lane: its turn in the ring, and its slots in use."""

    __slots__ = ("executing", "held", "in_ring", "left", "name", "queues", "turn")

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.turn = 0
        self.left = 0  # how many more runs it starts in this turn
        self.executing = 0
        self.held = False  # whether its bucket is empty
        self.queues: dict[Queue, None] = {}
        self.in_ring = 0  # the number of these queues that take turns


class Lane:
    """The state of a lane in which a run is queued or holds a slot."""

    __slots__ = (
        "bundles",
        "entries",
        "executing",
        "former",
        "generation",
        "held",
        "keys",
        "limit",
        "name",
        "paused",
        "queues",
        "rules",
        "sources",
        "turns",
    )

    def __init__(
        self, name: str, limit: int | None, generation: int, rules: LaneRules, *, paused: bool
    ) -> None:
        self.name = name
        self.limit = limit
        self.generation = generation
        self.paused = paused
        self.rules = rules
        self.held = False  # whether its bucket is empty
        self.executing: dict[str, str | None] = {}  # run: its key
        self.entries: dict[str, Queued] = {}  # the queued runs
        self.queues: dict[QueueId, Queue] = {}
        self.bundles: dict[tuple[Able, bool], Bundle] = {}
        self.sources: dict[Queue | Bundle, None] = {}  # the bundles, and the queues that are in none
        self.keys: dict[str | None, Key] = {}
        self.former: dict[str | None, Key] = {}  # the keys before a change of rules that keeps their turns
        self.turns = 0  # the last turn that was given to a key

    def has_room(self, free: bool = False) -> bool:
        """Whether the lane lets another run start. A `free` run takes neither turn nor token."""
        if self.paused or (self.held and not free):
            return False
        return self.limit is None or len(self.executing) < self.limit

    def queue_of(self, queued: Queued) -> Queue:
        """The queue that a run is in."""
        assert queued.queue_id is not None, "the lane has queued it"
        return self.queues[queued.queue_id]

    def key(self, name: str | None) -> Key:
        """A key of the lane."""
        key = self.keys.get(name)
        if key is None:
            key = self.keys[name] = Key(name)
        return key

    def key_has_room(self, key: Key, free: bool) -> bool:
        """Whether the key of a run lets it start."""
        if key.held and not free:
            return False
        limit = self.rules.limit_per_key
        return limit is None or key.name is None or key.executing < limit

    def forget_unused(self, key: Key) -> None:
        """Forget a key without runs."""
        if not key.queues and not key.executing and not key.held:
            self.keys.pop(key.name, None)

    def gives_turn(self, key: Key) -> None:
        """The key goes to the end of the ring."""
        self.turns += 1
        key.turn, key.left = self.turns, self.weight_of(key)

    def joins_ring(self, key: Key) -> None:
        """The key has a queued run: it joins the ring at its end."""
        former = self.former.get(key.name)
        if former is None:
            self.gives_turn(key)
        else:
            key.turn, key.left = former.turn, min(former.left, self.weight_of(key))

    def weight_of(self, key: Key) -> int:
        """How many runs the key starts in its turn."""
        return self.rules.weights.get(key.name or "", 1)


class Queue:
    """The queued runs of a lane that have the same demand, priority and key."""

    __slots__ = (
        "bundle",
        "demand",
        "free",
        "group",
        "id",
        "key",
        "lane",
        "offered",
        "priority",
        "privileged",
        "runs",
        "serial",
    )

    def __init__(self, id: QueueId, lane: Lane, key: Key | None, serial: int) -> None:
        self.id = id
        self.demand, self.priority, _, self.free = id
        self.lane = lane
        self.key = key
        self.serial = serial
        self.group: Group
        self.bundle: Bundle | None = None
        self.runs = PlaceQueue()
        self.privileged: PlaceQueue | None = None  # the privileged runs of the queue, if any
        self.offered: Sort | None = (
            None  # the run with which the queue is in the heads of its group or bundle
        )

    def first(self, holding: bool) -> Queued | None:
        """The first run that could start; only privileged runs while the engine is `holding`."""
        eligible = self.privileged if holding else self.runs
        return None if eligible is None else eligible.first

    def key_has_room(self) -> bool:
        """Whether the key of these runs lets one start."""
        return self.key is None or self.lane.key_has_room(self.key, self.free)

    def sort_of(self, queued_at: float, place: int) -> Sort:
        """The position of a run of this queue."""
        if not self.priority:  # nearly always
            return queued_at, place
        return rank(queued_at, self.priority, self.lane.rules), place

    def add(self, run: Queued) -> None:
        """Add a run."""
        run.queue_id = self.id
        self.runs.add(run)
        if run.privileged:
            if self.privileged is None:
                self.privileged = PlaceQueue()
            self.privileged.add(run)

    def remove(self, run: Queued) -> None:
        """Remove a run."""
        self.runs.remove(run)
        if run.privileged and self.privileged is not None:
            self.privileged.remove(run)

    def ahead_of(self, sort: Sort) -> int:
        """The number of runs before a position."""
        first = self.runs.first
        if first is None or first.sort > sort:
            return 0
        return self.runs.count_before(lambda run: run.sort < sort)


class Bundle:
    """The queues of a lane with priorities or keys that the same executors can serve."""

    __slots__ = ("_heads", "_outdated", "free", "group", "lane", "offered", "serial")

    def __init__(self, lane: Lane, group: Group, serial: int, *, free: bool) -> None:
        self.lane = lane
        self.group = group
        self.serial = serial
        self.free = free
        self.offered: Sort | None = None  # the run with which the bundle is in the heads of its group
        self._heads: list[tuple[int, Sort, int, Queue]] = []  # the queues with their turns; some outdated
        self._outdated = 0

    def add(self, queue: Queue, holding: bool) -> None:
        """Add a queue that has a run, unless its key has no room; it is added again when it has."""
        run = queue.first(holding)
        if run is None or run.sort == queue.offered or not queue.key_has_room():
            return
        queue.offered = run.sort
        heappush(self._heads, (_turn(queue), run.sort, queue.serial, queue))

    def withdraw(self, queue: Queue) -> None:
        """The first run of a queue left: its entry is outdated."""
        queue.offered = None
        self._outdated += 1
        if self._outdated > SLACK and self._outdated * 2 > len(self._heads):
            self._heads = [head for head in self._heads if head[3].offered == head[1]]
            heapify(self._heads)
            self._outdated = 0

    def first(self, holding: bool) -> Queued | None:
        """The run whose turn it is."""
        while self._heads:
            turn, sort, _, queue = self._heads[0]
            if queue.offered == sort:
                run = queue.first(holding)
                if run is not None and run.sort == sort and turn == _turn(queue) and queue.key_has_room():
                    return run
                heappop(self._heads)
                queue.offered = None
                self.add(queue, holding)
            else:
                heappop(self._heads)
        return None


def _turn(queue: Queue) -> int:
    return 0 if queue.key is None or queue.free or queue.lane.rules.fair_by is None else queue.key.turn


class Group:
    """The queues and bundles that the same executors can serve."""

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
        self.heads: list[tuple[Sort, int, Queue | Bundle]] = []  # those of lanes with room; some outdated
        self.outdated = 0  # the heads that are outdated because a run left its queue
        self.offered: Sort | None = None  # the run with which the group is in the heap of groups
        self.unreported: dict[Queue, None] = {}  # the queues whose first run was not reported yet
