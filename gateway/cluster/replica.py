"""`Replica`: the state of the leader at a follower, kept by its events.

The replica has the same epoch, events and seqs as the leader, so clients of this node follow it like the
leader, and can change between nodes without missing an event. It reads history from the store.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import trio

from ...actors.engine.reads import Reads
from ...actors.journal.stream import Stream
from ...persistence.store import Store
from ...persistence.webhooks import WebhookCounts
from ...protocol.cluster import Joined, no_leader
from ...protocol.events import Event
from ...protocol.flow.records import WorkerState
from ...protocol.fold import Projection
from ...protocol.records import ExecutorInfo, NodeInfo, Snapshot
from ...protocol.states import Status

T = TypeVar("T")

MOST_LAG = 1.0
"""Seconds by which the replica of a ready node can be behind the leader."""

_EXECUTING = frozenset({Status.RUNNING, Status.CANCELLING})


class Replica(Reads):
    """See the module's docstring. `stream` is that of the node: its subscribers are those of the gateway."""

    def __init__(self, stream: Stream, store: Store, max_value_bytes: int) -> None:
        super().__init__(store)
        self.stream = stream
        self.max_value_bytes = max_value_bytes
        self.executors = _ReplicatedExecutors(self)
        self.workers = _NoWorkers()
        self.webhooks = _NoWebhooks()
        self.epoch = ""
        self.nodes: Sequence[NodeInfo] = ()
        """The nodes of the cluster, as the leader has last listed them."""
        self.addresses: dict[str, str] = {}
        """The addresses of all nodes that this one has heard of, by id: also of those that have left, because
        they can have left this node's leader only."""
        self._projection: Projection | None = None
        self.confirmed_at = -math.inf
        """The replica contains everything that the leader had committed at this time."""
        self._news = trio.lowlevel.ParkingLot()

    @property
    def seq(self) -> int:
        """The last event that the replica contains."""
        return self.stream.last_seq

    @property
    def is_empty(self) -> bool:
        """Whether the replica has no state yet."""
        return self._projection is None

    @property
    def lag(self) -> float:
        """Seconds by which the replica can be older than the leader's state."""
        return max(0.0, trio.current_time() - self.confirmed_at)

    # From the leader.

    def adopt(self, epoch: str, projection: Projection) -> None:
        """Continue from the state of an engine of this node, which keeps it up to date together with the
        stream."""
        self.epoch = epoch
        self._projection = projection
        self.confirmed_at = -math.inf
        self.wake()

    def engine_failed(self) -> None:
        """An engine of this node has ended before the node led. If it has published events that the replica
        does not contain, the replica needs a new state."""
        if self._projection is not None and self._projection.seq != self.stream.last_seq:
            self._projection = None

    def begin(self, joined: Joined) -> None:
        """This node has joined a leader. A state that is not the leader's, or later than it, as after a store
        was restored from a backup, is dropped: the leader then sends a snapshot."""
        self.list_nodes(joined.nodes)
        if joined.epoch != self.epoch or self.seq > joined.seq:
            self.epoch = joined.epoch
            self._projection = None
        self.confirmed_at = -math.inf

    def list_nodes(self, nodes: Sequence[NodeInfo]) -> None:
        """The leader lists the nodes."""
        self.nodes = nodes
        self.addresses.update({node.id: node.address for node in nodes})

    def apply(self, events: Sequence[Event]) -> None:
        """Add the next events. Raises `trio.BrokenResourceError` if they do not follow."""
        projection = self._projection
        if projection is None or not events or events[0].seq != projection.seq + 1:
            raise trio.BrokenResourceError("the leader sent events that do not follow the last ones")
        for event in events:
            projection.apply(event)
        self.stream.publish(events)
        self.wake()

    def replace(self, snapshot: Snapshot) -> None:
        """Replace the state; subscribers that are behind it get a snapshot, too."""
        self._projection = Projection.from_snapshot(snapshot)
        self.stream.continue_at(snapshot.seq, ())
        self.wake()

    def confirmed(self, sent: float) -> None:
        """The replica contains everything that the leader had committed at this time."""
        self.confirmed_at = sent
        self.wake()

    def wake(self) -> None:
        """There are news, or this node leads."""
        self._news.unpark_all()

    async def wait_for_news(self) -> None:
        """Wait for events, a state or a confirmation, or until this node leads."""
        await self._news.park()

    # For the gateway.

    def check_open(self) -> None:
        if self._projection is None:
            raise no_leader("this node has no state yet")

    async def look(self, read: Callable[[Projection], T]) -> T:
        await trio.lowlevel.checkpoint()
        self.check_open()
        return self.look_now(read)

    def look_now(self, read: Callable[[Projection], T]) -> T:
        """The same, without a checkpoint. Not for an empty replica."""
        assert self._projection is not None, "the replica has a state"
        return read(self._projection)

    # What the gateway shows of an engine, as far as a follower knows it.

    commit_seconds = 0.0
    blocked = (0, 0.0)
    store_is_down = False

    def check_ready(self) -> None:
        """Raise `Unavailable` unless the replica is less than `MOST_LAG` behind the leader."""
        self.check_open()
        if self.lag >= MOST_LAG:
            raise no_leader("the state of this node is not up to date with a leader")

    def job_of(self, run_id: str) -> str | None:
        """The job of a run that is in memory."""
        run = None if self._projection is None else self._projection.runs.get(run_id)
        return None if run is None else run.job


class _ReplicatedExecutors:
    """The executors of the leader. Bodies are counted by the executing runs."""

    lost = 0

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    async def list(self) -> Sequence[ExecutorInfo]:
        """The executors, as in a snapshot."""
        return await self._replica.look(_executors)


class _NoWorkers:
    """Workers are known only to the leader."""

    async def list(self) -> Sequence[WorkerState]:
        """No workers."""
        await trio.lowlevel.checkpoint()
        return ()

    def queued(self) -> tuple[int, int]:
        """No work items."""
        return 0, 0


class _NoWebhooks:
    """Webhooks are known only to the leader."""

    attempted = (0, 0)

    async def counts(self) -> WebhookCounts:
        """No webhooks."""
        await trio.lowlevel.checkpoint()
        return WebhookCounts(failing=0, dead=0)


def _executors(committed: Projection) -> Sequence[ExecutorInfo]:
    bodies = dict.fromkeys(committed.executors, 0)
    for run in committed.runs.values():
        if run.status in _EXECUTING and run.executor in bodies:
            bodies[run.executor] += 1
    return [
        ExecutorInfo(id, state.status, state.slots, bodies[id], state.labels, state.jobs, state.start)
        for id, state in committed.executors.items()
    ]
