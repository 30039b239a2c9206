"""The first runs of all lanes with room, by the executors that can serve them. A part of the order.

Queues and bundles offer their first run to their group, and groups that are not blocked offer theirs to one
heap. Entries that are outdated stay until they are reached, or are too many.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace

from .executor_pool import Able, Demand, Executor, ExecutorPool
from .lane_queues import SLACK, Bundle, Group, Lane, Queue, Sort
from .place_queue import Queued


class Offers:
    """See the module's docstring."""

    def __init__(self, pool: ExecutorPool) -> None:
        self.holding = False  # only privileged runs are offered
        self.first: list[tuple[Sort, int, Group]] = []  # groups with room, by first run; some outdated
        self.reported: set[str] = set()  # the queued runs that `take_blocked` has returned
        self._pool = pool
        self._groups: dict[Able, Group] = {}
        self._blockable: list[Group] = []  # the groups that can be blocked
        self._serial = 0

    def serial(self) -> int:
        """A new number, which makes the entries of heaps comparable."""
        self._serial += 1
        return self._serial

    def regroup(self) -> None:
        """The pool has changed: all queues are assigned to groups and offered again."""
        self._groups, self._blockable, self.first = {}, [], []

    def group_of(self, demand: Demand) -> Group:
        """The group of the runs with a demand."""
        able = self._pool.able(demand)
        group = self._groups.get(able)
        if group is None:
            group = self._groups[able] = Group(able, self._pool.local, self.serial())
            if group.can_block:
                self._blockable.append(group)
        return group

    def offer_all(self, lane: Lane) -> None:
        """Offer the first runs of a lane, which may have room."""
        for source in lane.sources:
            self.offer_source(source)

    def offer_queues(self, lane: Lane) -> None:
        """Offer all queues again, because the first runs of all can be others."""
        for queue in lane.queues.values():
            self.offer(queue)

    def offer(self, queue: Queue) -> None:
        """Add the queue's first run to the heads of its group, if its lane and its key have room."""
        bundle = queue.bundle
        if bundle is None:
            self.offer_source(queue)
        else:
            bundle.add(queue, self.holding)
            self.offer_source(bundle)

    def offer_source(self, source: Queue | Bundle) -> None:
        """Add the source's first run to the heads of its group, if its lane has room."""
        queued = source.first(self.holding)
        if queued is None or not source.lane.has_room(source.free):
            return
        group, sort = source.group, queued.sort
        if group.can_block and queued.run not in self.reported:
            group.unreported[source.lane.queue_of(queued)] = None
        if sort == source.offered:
            return
        source.offered = sort
        heappush(group.heads, (sort, source.serial, source))
        if group.offered is None or sort < group.offered:
            self.offer_group(group)

    def offer_group(self, group: Group) -> None:
        """Add the group's first run to the heap of groups, if it is not blocked."""
        if group.blocked or not group.heads:
            return
        sort = group.heads[0][0]
        if group.offered is None or sort < group.offered:
            group.offered = sort
            heappush(self.first, (sort, group.serial, group))

    def has_room_again(self, executor: Executor) -> None:
        """An executor has a free slot: the groups that it can serve are no longer blocked."""
        for group in self._blockable:
            if group.blocked and executor in group.able:
                group.blocked = False
                self.offer_group(group)

    def head(self, group: Group) -> Queued | None:
        """The first run of a group, if any; outdated heads are removed."""
        while group.heads:
            sort, _, source = group.heads[0]
            if source.offered == sort:
                queued = source.first(self.holding)
                if queued is None or not source.lane.has_room(source.free):
                    source.offered = None  # the lane offers it again when it has room
                elif queued.sort == sort:
                    return queued
                else:  # it is another key's turn
                    source.offered = queued.sort
                    heapreplace(group.heads, (queued.sort, source.serial, source))
                    continue
            heappop(group.heads)
        return None

    def withdraw(self, queue: Queue, queued: Queued) -> None:
        """A run leaves its queue. A group can be blocked for long: remove its outdated heads."""
        if queue.bundle is not None and queue.offered == queued.sort:
            queue.bundle.withdraw(queue)
        source = queue.bundle or queue
        group = queue.group
        if source.offered == queued.sort:
            source.offered = None
            group.outdated += 1
            if group.outdated > SLACK and group.outdated * 2 > len(group.heads):
                group.heads = [head for head in group.heads if head[2].offered == head[0]]
                heapify(group.heads)
                group.outdated = 0

    def take_blocked(self) -> list[str]:
        """Take the runs that only lack an executor: the first run of each blocked queue. Each is returned
        once."""
        found: list[tuple[Sort, str]] = []
        for group in self._blockable:
            if not (group.blocked and group.unreported):
                continue
            unreported, group.unreported = group.unreported, {}
            for queue in unreported:
                head = queue.first(self.holding)
                if head is None or head.run in self.reported:
                    continue
                if queue.lane.has_room(queue.free) and queue.key_has_room():
                    self.reported.add(head.run)
                    found.append((head.sort, head.run))
        return [run for _, run in sorted(found)]
