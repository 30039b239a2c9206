"""The order in which runs start. One formula, evaluated in one turn of the supervisor:

    next = the queued run with the lowest rank, and of these the one with the lowest place, among the first
           runs of all lanes with room for which an executor has room, while fewer runs hold a slot than the
           global limit allows

The rank of a run follows from the time at which it got its place, and from its priority; the formula, and
those of fairness and rates, are in `protocol/lanes.py`. The ranks of runs with equal priority are in the
order of their places, so that without priorities, the order is strictly by place.

A lane has room while it is not paused, fewer of its runs hold a slot than its own limit allows, and its rate
has a token. The first run of a lane is the one with the lowest rank, then place, whose key has room; in a
lane with fairness it is that of the key whose turn it is. An executor has room for a run while it has a free
slot, if it can execute the run (`executor_pool.py`). While the engine drains, only privileged runs count as
queued: runs that have begun, and the children of executing runs. A run that is on trial after a crash
(`trials.py`) can be skipped until others have been tried.

So a full lane never delays the runs of another lane. Likewise, a run without an executor keeps its place and
never delays a run that another executor can take. Turns are taken among the runs of a lane that the same
executors can serve.

The queues that the same executors can serve form one group. While these executors have no room, the whole
group is blocked: its runs cost nothing until one of the executors has room.

Plain data: no messages, no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator
from heapq import heappop
from typing import Any, NamedTuple

from ...protocol.lanes import DEFAULT_RULES, LaneRules
from ...protocol.records import default_limit
from .executor_pool import IN_PROCESS, Able, Demand, Executor, ExecutorPool, choose
from .lane_queues import Bundle, Key, Lane, Queue, QueueId
from .offers import Offers
from .place_queue import Queued
from .rates import Taken
from .tokens import Tokens
from .trials import Trials


class Slot(NamedTuple):
    """A slot granted to a run, and the executor of its body; `None` for the engine's own process. A reset of
    the lane voids the slots of its older generations. `taken` is the token that it took."""

    run: str
    generation: int
    executor: str | None = None
    taken: Taken | None = None


class Wait(NamedTuple):
    """Why a queued run waits: how many runs of its lane are ahead, which runs hold the slots it needs, and
    what else it lacks, if that is the case: an executor, a token, or a lane that is not paused."""

    ahead: int
    blockers: list[str]
    reason: str | None = None


class Order:
    """See the module's docstring. `local_jobs` are the jobs that the engine's own process executes."""

    def __init__(self, local_jobs: Container[str] = ()) -> None:
        self.limit = 0
        self.executing: dict[str, int] = {}  # run: the generation of its slot
        self.limits: dict[str, int | None] = {}  # of the lanes with a limit set explicitly
        self.generations: dict[str, int] = {}  # of the lanes that were ever reset
        self.rules: dict[str, LaneRules] = {}  # of the lanes with rules
        self.paused: set[str] = set()  # lanes
        self.trials = Trials()
        self.pool = ExecutorPool(local_jobs)
        self._lanes: dict[str, Lane] = {}  # those with a queued run or a slot in use
        self._tokens = Tokens()
        self._offers = Offers(self.pool)

    @property
    def lanes(self) -> Collection[str]:
        """The lanes in which a run is queued or holds a slot."""
        return self._lanes.keys()

    def limit_of(self, lane: str) -> int | None:
        """A lane's own limit."""
        return self.limits.get(lane, default_limit(lane))

    def rules_of(self, lane: str) -> LaneRules:
        """A lane's rules."""
        return self.rules.get(lane, DEFAULT_RULES)

    def reports(self) -> Iterator[dict[str, Any]]:
        """The reports of all lanes in which a run is queued or holds a slot."""
        for name, lane in self._lanes.items():
            yield {
                "kind": "lane",
                "name": name,
                "limit": lane.limit,
                "paused": lane.paused,
                "generation": lane.generation,
                "executing": list(lane.executing),
                "queued": len(lane.entries),
            }

    # Changes.

    def enter(
        self,
        run: str,
        lane: str,
        place: int,
        *,
        privileged: bool,
        demand: Demand = IN_PROCESS,
        queued_at: float = 0.0,
        priority: int = 0,
        key: str | None = None,
        has_body: bool = False,
    ) -> None:
        """Queue a run in its lane at its place, which it got at `queued_at`."""
        known = self._lanes.get(lane) or self._lane(lane)
        queued = Queued(run, place, queued_at, demand, priority, key, privileged, has_body)
        self._offers.offer(self._enter(known, queued))

    def leave(self, run: str, lane: str) -> None:
        """Remove a run from the queue: it needs no slot now."""
        known = self._lanes.get(lane)
        queued = None if known is None else known.entries.get(run)
        if known is not None and queued is not None:
            queue = known.queue_of(queued)
            self._remove(queue, queued)
            self._offers.offer(queue)
            self._forget_idle(queue)
        if self._offers.reported:
            self._offers.reported.discard(run)
        if self.trials.has_suspects:
            self.trials.leave(run)

    def set_priority(self, run: str, lane: str, priority: int) -> None:
        """Change the priority of a run, if it is queued."""
        known = self._lanes.get(lane)
        queued = None if known is None else known.entries.get(run)
        if known is not None and queued is not None:
            self._move(known, queued, priority, queued.key)

    def set_key(self, run: str, lane: str, key: str | None) -> None:
        """Change the key of a run, if it is queued."""
        known = self._lanes.get(lane)
        queued = None if known is None else known.entries.get(run)
        if known is not None and queued is not None and queued.key != key:
            self._move(known, queued, queued.priority, key)

    def _move(self, lane: Lane, queued: Queued, priority: int, key: str | None) -> None:
        queue = lane.queue_of(queued)
        self._remove(queue, queued)
        self._offers.offer(queue)
        queued.priority, queued.key = priority, key
        self._offers.offer(self._enter(lane, queued))
        self._forget_empty(queue)  # only now, so that its key stays in the ring

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
        key = known.executing.pop(run)
        executor = self.pool.release(run)
        if executor is not None:
            self._offers.has_room_again(executor)
        if known.keys:
            self._release_key(known, key)
        if known.limit is not None:  # otherwise, its queues have been offered
            self._offers.offer_all(known)
        if not known.executing:
            self._forget_idle_lane(known)

    def restore_slot(self, run: str, lane: str, executor: str, key: str | None = None) -> int:
        """Restore the slot of a run whose body can still execute at an executor; returns its generation."""
        known = self._lane(lane)
        known.executing[run] = key
        if known.rules.has_keys:
            known.key(key).executing += 1
        self.executing[run] = known.generation
        self.pool.restore(run, executor, has_slot=True)
        return known.generation

    def restore_buckets(
        self, buckets: list[tuple[str, str | None, float]], now: float
    ) -> dict[str, list[str | None]]:
        """Restore the buckets of lanes, or of their keys, each with the time at which it is full. Returns
        those that are not used."""
        unused = self._tokens.restore(buckets, self.rules_of, now)
        for lane in self._tokens.lanes:
            known = self._lane(lane)
            self._hold_back_all(known, now)
            self._forget_idle_lane(known)
        return unused

    def set_limit(self, lane: str, limit: int | None) -> None:
        """Change a lane's own limit."""
        self.limits[lane] = limit
        known = self._lanes.get(lane)
        if known is not None:
            known.limit = limit
            self._offers.offer_all(known)

    def pause(self, lane: str, *, paused: bool) -> None:
        """Grant no slots in a lane, or grant them again."""
        if paused:
            self.paused.add(lane)
        else:
            self.paused.discard(lane)
        known = self._lanes.get(lane)
        if known is not None:
            known.paused = paused
            self._offers.offer_all(known)

    def set_rules(
        self, lane: str, rules: LaneRules, now: float, key_of: Callable[[str], str | None]
    ) -> tuple[str | None, ...]:
        """Change the rules of a lane. `key_of` returns the key that a run has with these rules. Returns the
        keys of buckets that are no longer used."""
        before = self.rules_of(lane)
        if rules == before:
            return ()
        self.rules[lane] = rules
        if rules == DEFAULT_RULES:
            del self.rules[lane]
        unused = self._tokens.change_rules(lane, before, rules, now)
        if lane in self._lanes or lane in self._tokens.lanes:
            self._rebuild(self._lane(lane), now, key_of)
        return unused

    def hold(self, holding: bool) -> None:
        """Grant slots to privileged runs only, or to all runs again."""
        if holding != self._offers.holding:
            self._offers.holding = holding
            for known in self._lanes.values():
                self._offers.offer_queues(known)

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
                self._offers.has_room_again(executor)
        for key in list(known.keys.values()):
            key.executing = 0
            self._offer_key(key)
            known.forget_unused(key)
        self._offers.offer_all(known)
        self._forget_idle_lane(known)
        return detached

    def regroup(self) -> None:
        """The pool has changed: find out again which executors can serve each queue."""
        self._offers.regroup()
        for known in self._lanes.values():
            known.bundles, known.sources = {}, {}
            for queue in known.queues.values():
                queue.offered = None
                self._assign(queue)
            self._offers.offer_queues(known)

    # Decisions.

    def deadline(self) -> float:
        """When the next empty bucket gets a token, for which `grants` must be called."""
        return self._tokens.deadline()

    def grants(self, now: float, is_due: Callable[[str], bool]) -> Iterator[Slot]:
        """Grant the free slots, in order. A run that `is_due` to end is removed without a slot."""
        offers = self._offers
        self.pool.local.slots = self.limit
        has_suspects = self.trials.has_suspects
        if self._tokens.opens:
            self._open_buckets(now)
        while len(self.executing) < self.limit and offers.first:
            sort, _, group = heappop(offers.first)
            if group.offered != sort:
                continue  # the entry is outdated
            group.offered = None
            queued = offers.head(group)
            if queued is None:
                continue
            if queued.sort != sort:
                offers.offer_group(group)
                continue
            executor = group.only or choose(group.able)
            if executor is None:
                group.blocked = True
                continue
            _, _, source = heappop(group.heads)
            source.offered = None
            run, lane = queued.run, source.lane
            queue = lane.queue_of(queued)
            if queue.bundle is not None:
                queue.bundle.withdraw(queue)
            del lane.entries[run]
            queue.remove(queued)
            concerned = has_suspects and self.trials.concerns(run)
            due = is_due(run)
            if concerned and not due:
                executor = self._permitted(run, group.able, executor, now)
            if due or executor is None:
                offers.offer(queue)
                offers.offer_group(group)
                self._forget_idle(queue)
                continue
            if concerned:
                self.trials.granted(run, now, executor.id)
            self.pool.take(run, executor)
            if offers.reported:
                offers.reported.discard(run)
            lane.executing[run] = queued.key
            self.executing[run] = lane.generation
            taken = None
            if lane.rules is not DEFAULT_RULES:
                taken = self._granted(lane, queue, queued, now)
            if group.heads:
                offers.offer_group(group)
            if lane.entries:
                offers.offer(queue)
            if queue.key is not None or len(lane.queues) > 1:
                self._forget_empty(queue)
            yield Slot(run, lane.generation, executor.id, taken)

    def take_blocked(self) -> list[str]:
        """Take the runs that only lack an executor: the first run of each blocked queue. Each is returned
        once."""
        return [] if len(self.executing) >= self.limit else self._offers.take_blocked()

    def wait_of(self, run: str, lane: str, now: float) -> Wait | None:
        """Why a run waits; `None` if it is not queued."""
        known = self._lanes.get(lane)
        queued = None if known is None else known.entries.get(run)
        if known is None or queued is None:
            return None
        queue = known.queue_of(queued)
        ahead = sum(each.ahead_of(queued.sort) for each in known.queues.values())
        reason = self._why_held(known, queue, now)
        if reason is not None:
            return Wait(ahead, [], reason)
        key = queue.key
        if key is not None and not queue.key_has_room():
            return Wait(ahead, [run for run, name in known.executing.items() if name == key.name])
        if queue.group.can_block and choose(queue.group.able) is None:
            reason = self.pool.why_blocked(queue.demand)
        if not known.has_room(queue.free):
            blockers = list(known.executing)
        elif reason is None or len(self.executing) >= self.limit:
            blockers = list(self.executing)
        else:
            blockers = self.pool.users(queue.group.able)
        return Wait(ahead, blockers, reason)

    def _why_held(self, lane: Lane, queue: Queue, now: float) -> str | None:
        if lane.paused:
            return f"lane {lane.name!r} is paused"
        rules, key = lane.rules, queue.key
        if rules.rate is None or queue.free:
            return None
        if lane.held or (key is not None and key.held):
            name = None if key is None or rules.rate_per == "lane" else key.name
            of = "" if name is None else f" of key {name!r}"
            opens_in = self._tokens.opens_at(lane.name, name, rules) - now
            return (
                f"the rate {rules.rate}{of} in lane {lane.name!r} has a token in {max(0.0, opens_in):.1f} s"
            )
        return None

    # Rates and keys.

    def _granted(self, lane: Lane, queue: Queue, queued: Queued, now: float) -> Taken | None:
        """A run of a lane with rules got a slot: it takes its token and its turn."""
        key, rules = queue.key, lane.rules
        if key is not None:
            key.executing += 1
        if queue.free:
            return None
        if key is not None:
            key.left -= 1
            if not key.left:
                lane.gives_turn(key)
        if rules.rate is None:
            return None
        name = queued.key if rules.rate_per == "key" else None
        if rules.rate_per == "key" and name is None:
            return None
        taken = self._tokens.reserve(queued.run, lane.name, name, rules, now)
        self._hold_back(lane, key, now)
        return taken

    def settle(self, run: str, now: float, *, starts: bool) -> None:
        """The start of a run is committed, and takes its token; or it does not start, and gives it back."""
        bucket = self._tokens.settle(run, self.rules_of, now, starts=starts)
        if bucket is not None and bucket[0] in self._lanes:
            self._open_bucket(self._lanes[bucket[0]], bucket[1], now)

    def _hold_back(self, lane: Lane, key: Key | None, now: float) -> None:
        """If the bucket of a lane, or of a key, is empty, nothing starts until it has a token."""
        rules = lane.rules
        if rules.rate is None:
            return
        if rules.rate_per == "lane":
            opens_at = self._tokens.opens_at(lane.name, None, rules)
            if opens_at > now and not lane.held:
                lane.held = True
                self._tokens.open_later(lane.name, None, opens_at)
        elif key is not None and key.name is not None:
            opens_at = self._tokens.opens_at(lane.name, key.name, rules)
            if opens_at > now and not key.held:
                key.held = True
                self._tokens.open_later(lane.name, key.name, opens_at)

    def _hold_back_all(self, lane: Lane, now: float) -> None:
        for name in self._tokens.names(lane.name):
            key = None if name is None else lane.key(name)
            self._hold_back(lane, key, now)
            if key is not None:
                lane.forget_unused(key)

    def _open_buckets(self, now: float) -> None:
        for name, key_name in self._tokens.opened(now):
            if name in self._lanes:
                self._open_bucket(self._lanes[name], key_name, now)

    def _open_bucket(self, lane: Lane, key_name: str | None, now: float) -> None:
        """A bucket may have a token: grant slots for it, or hold its runs back until it has one."""
        key = None if key_name is None else lane.keys.get(key_name)
        held = lane if key_name is None else key
        if held is None or not held.held:
            return
        held.held = False
        self._hold_back(lane, key, now)
        if key is not None:
            self._offer_key(key)
            lane.forget_unused(key)
        self._offers.offer_all(lane)
        self._forget_idle_lane(lane)

    def _release_key(self, lane: Lane, name: str | None) -> None:
        key = lane.keys.get(name)
        if key is not None and key.executing:
            key.executing -= 1
            self._offer_key(key)
            lane.forget_unused(key)

    def _offer_key(self, key: Key) -> None:
        for queue in key.queues:
            self._offers.offer(queue)

    def _rebuild(self, lane: Lane, now: float, key_of: Callable[[str], str | None]) -> None:
        """Queue the runs of a lane again, by its new rules."""
        entries = sorted(lane.entries.values(), key=lambda queued: queued.place)
        sources: list[Queue | Bundle] = [*lane.queues.values(), *lane.bundles.values()]
        for source in sources:
            source.offered = None  # what is in the heads of groups is outdated
        for queue in lane.queues.values():
            queue.group.unreported.pop(queue, None)
        before, rules = lane.rules, self.rules_of(lane.name)
        if before.has_keys and before.fair_by == rules.fair_by:
            lane.former = {name: key for name, key in lane.keys.items() if key.in_ring}
        lane.queues, lane.bundles, lane.sources, lane.keys, lane.entries = {}, {}, {}, {}, {}
        lane.rules, lane.held = rules, False
        for run in lane.executing:
            lane.executing[run] = key_of(run)
            if rules.has_keys:
                lane.key(lane.executing[run]).executing += 1
        self._hold_back_all(lane, now)
        for queued in entries:
            queued.key = key_of(queued.run)
            self._offers.offer(self._enter(lane, queued))
        lane.former = {}
        self._forget_idle_lane(lane)

    # Lanes, queues and groups.

    def _enter(self, lane: Lane, queued: Queued) -> Queue:
        """Add a run to its queue."""
        rules = lane.rules
        if rules is DEFAULT_RULES:
            id: QueueId = (queued.demand, queued.priority, None, False)
        else:
            key = queued.key if rules.has_keys else None
            free = queued.has_body and (rules.rate is not None or rules.fair_by is not None)
            id = (queued.demand, queued.priority, key, free)
        queue = lane.queues.get(id)
        if queue is None:
            queue = self._add_queue(lane, id)
        queued.sort = queue.sort_of(queued.queued_at, queued.place)
        lane.entries[queued.run] = queued
        queue.add(queued)
        return queue

    def _add_queue(self, lane: Lane, id: QueueId) -> Queue:
        key = None
        if lane.rules.has_keys:
            key = lane.key(id[2])
            if not id[3]:
                if not key.in_ring:
                    lane.joins_ring(key)
                key.in_ring += 1
        queue = lane.queues[id] = Queue(id, lane, key, self._offers.serial())
        if key is not None:
            key.queues[queue] = None
        self._assign(queue)
        return queue

    def _assign(self, queue: Queue) -> None:
        """Assign a queue to its group and, if its lane has priorities or keys, to its bundle."""
        group, lane = self._offers.group_of(queue.demand), queue.lane
        queue.group, queue.bundle = group, None
        if queue.key is not None or queue.priority:
            where = (group.able, queue.free)
            bundle = lane.bundles.get(where)
            if bundle is None:
                bundle = lane.bundles[where] = Bundle(lane, group, self._offers.serial(), free=queue.free)
                lane.sources[bundle] = None
            queue.bundle = bundle
        else:
            lane.sources[queue] = None

    def _remove(self, queue: Queue, queued: Queued) -> None:
        """Remove a run that leaves its queue."""
        self._offers.withdraw(queue, queued)
        del queue.lane.entries[queued.run]
        queue.remove(queued)

    def _lane(self, name: str) -> Lane:
        known = self._lanes.get(name)
        if known is None:
            known = self._lanes[name] = Lane(
                name,
                self.limit_of(name),
                self.generations.get(name, 0),
                self.rules_of(name),
                paused=name in self.paused,
            )
        return known

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

    def _forget_empty(self, queue: Queue) -> None:
        """Forget an empty queue, unless it is the lane's only one, which is likely to be used again."""
        lane, key = queue.lane, queue.key
        if len(queue.runs) or (key is None and len(lane.queues) == 1):
            return
        if lane.queues.pop(queue.id, None) is not None:
            queue.group.unreported.pop(queue, None)
            lane.sources.pop(queue, None)
            if key is not None:
                del key.queues[queue]
                key.in_ring -= not queue.free
                lane.forget_unused(key)

    def _forget_idle(self, queue: Queue) -> None:
        self._forget_empty(queue)
        self._forget_idle_lane(queue.lane)

    def _forget_idle_lane(self, lane: Lane) -> None:
        if lane.executing or lane.entries or lane.held or lane.keys:
            return
        if self._lanes.pop(lane.name, None) is not None:
            for queue in lane.queues.values():
                queue.group.unreported.pop(queue, None)
