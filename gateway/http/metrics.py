"""Figures for Prometheus. Counters and histograms follow the stream; gauges are set when they are asked
for."""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Sequence
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ...actors.engine.api import Engine
from ...protocol.events import Event, NodeRan, RunStateChanged
from ...protocol.flow.records import NodeStatus, WorkerState, WorkerStatus
from ...protocol.fold import Projection
from ...protocol.records import Counts, Snapshot
from ...protocol.states import ENDED, Status

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_WAITS = (0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200, 43_200)
_COMMITS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class Metrics:
    """The figures of one gateway and its engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._seq = engine.stream.last_seq
        self._queued_at: dict[str, float] = {}
        registry = self._registry = CollectorRegistry()
        self.resyncs = Counter(
            "greenroom_resyncs", "Snapshots sent to subscribers that had missed events", registry=registry
        )
        self.stalled = Counter(
            "greenroom_stalled_clients", "Clients dropped because they took nothing", registry=registry
        )
        self.websockets = Gauge("greenroom_websockets", "Open WebSocket connections", registry=registry)
        self.server_sent = Gauge(
            "greenroom_event_sources", "Clients that read server-sent events", registry=registry
        )
        self._lag = Gauge(
            "greenroom_lag_events",
            "Events that the subscriber furthest behind has not been sent",
            registry=registry,
        )
        self._events = Counter("greenroom_events", "Events, by type", ["type"], registry=registry)
        self._ended = Counter(
            "greenroom_runs_ended", "Runs that ended, by status", ["status"], registry=registry
        )
        self._waiting = Histogram(
            "greenroom_run_waiting_seconds",
            "From a run's submission to its first start",
            registry=registry,
            buckets=_WAITS,
        )
        self._commit_size = Histogram(
            "greenroom_commit_events", "Events in a commit", registry=registry, buckets=_SIZES
        )
        self._commit_time = Histogram(
            "greenroom_commit_seconds", "Time that a commit took", registry=registry, buckets=_COMMITS
        )
        self._runs = Gauge("greenroom_runs", "Pending runs, by status", ["status"], registry=registry)
        self._lane_queued = Gauge(
            "greenroom_lane_queued", "Runs queued in a lane", ["lane"], registry=registry
        )
        self._lane_executing = Gauge(
            "greenroom_lane_executing", "Slots that a lane's runs hold", ["lane"], registry=registry
        )
        self._lane_limit = Gauge(
            "greenroom_lane_limit", "The limit of a lane that has one", ["lane"], registry=registry
        )
        self._max_concurrent = Gauge("greenroom_max_concurrent", "The global limit", registry=registry)
        self._draining = Gauge("greenroom_draining", "1 while no new runs are taken", registry=registry)
        self._store_down = Gauge(
            "greenroom_store_down", "1 while the store can't be written", registry=registry
        )
        self._blocked = Counter(
            "greenroom_loop_blocked",
            "Times that the event loop stood still for 1 s or longer",
            registry=registry,
        )
        self._blocked_time = Counter(
            "greenroom_loop_blocked_seconds", "How long the event loop stood still then", registry=registry
        )
        self._blocked_before = engine.blocked
        self._last_seq = Gauge("greenroom_seq", "The number of the last event", registry=registry)
        self._node_runs = Counter(
            "greenroom_node_runs", "Tries of nodes of flows, by status", ["status"], registry=registry
        )
        self._workers = Gauge("greenroom_workers", "Workers, by status", ["status"], registry=registry)
        self._queue_items = Gauge(
            "greenroom_queue_items",
            "Work for workers that fetch it: waiting, or leased to one of them",
            ["state"],
            registry=registry,
        )
        for status in ENDED:
            self._ended.labels(status)
        for name in get_args(NodeStatus):
            self._node_runs.labels(name)

    def begin(self, snapshot: Snapshot) -> None:
        """Begin with what is queued already."""
        for run in snapshot.runs.values():
            if run.status is Status.QUEUED:
                self._queued_at[run.id] = run.created_at

    def committed(self) -> None:
        """Take a commit into account; the stream calls this after each."""
        size = self._engine.stream.last_seq - self._seq
        if size:
            self._seq += size
            self._commit_size.observe(size)
            self._commit_time.observe(self._engine.commit_seconds)

    def heard(self, event: Event) -> None:
        """Take an event into account."""
        self._events.labels(event.type).inc()
        if type(event) is NodeRan:
            self._node_runs.labels(event.status).inc()
        if type(event) is not RunStateChanged:
            return
        if event.from_ is None:
            self._queued_at[event.run] = event.at
        elif event.from_ is Status.QUEUED:
            since = self._queued_at.pop(event.run, None)
            if event.to is Status.RUNNING and since is not None:
                self._waiting.observe(max(0.0, event.at - since))  # the clock may have been set back
        if event.to in ENDED:
            self._ended.labels(event.to).inc()

    def exposition(self, shown: Counts | Snapshot, workers: Sequence[WorkerState], *, lag: int) -> bytes:
        """All figures as text. Counts are at hand; of a snapshot, the runs are counted."""
        counts = shown if isinstance(shown, Counts) else Projection.from_snapshot(shown).counts()
        standing = Count(worker.status for worker in workers)
        for name in get_args(WorkerStatus):
            self._workers.labels(name).set(standing[name])
        for place, count in zip(("waiting", "leased"), self._engine.workers.queued(), strict=True):
            self._queue_items.labels(place).set(count)
        for status, pending in counts.runs.items():
            self._runs.labels(status).set(pending)
        for gauge in (self._lane_queued, self._lane_executing, self._lane_limit):
            gauge.clear()
        for name, lane in counts.lanes.items():
            self._lane_queued.labels(name).set(lane.queued)
            self._lane_executing.labels(name).set(lane.executing)
            if lane.limit is not None:
                self._lane_limit.labels(name).set(lane.limit)
        self._max_concurrent.set(counts.engine.max_concurrent)
        self._draining.set(counts.engine.draining)
        self._store_down.set(self._engine.store_is_down)
        self._count_blockages()
        self._last_seq.set(counts.seq)
        self._lag.set(lag)
        return generate_latest(self._registry)

    def _count_blockages(self) -> None:
        times, seconds = self._engine.blocked
        times_before, seconds_before = self._blocked_before
        self._blocked.inc(times - times_before)
        self._blocked_time.inc(seconds - seconds_before)
        self._blocked_before = (times, seconds)
