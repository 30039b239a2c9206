"""Metrics for Prometheus. Counters and histograms follow the stream; gauges are set at each scrape."""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Sequence
from functools import partial
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ...actors.engine.api import Engine
from ...persistence.webhooks import WebhookCounts
from ...protocol.events import Event, NodeRan, RunStateChanged, ScheduleFired, ScheduleMissed
from ...protocol.flow.records import NodeStatus, WorkerState, WorkerStatus
from ...protocol.fold import Projection
from ...protocol.records import Counts, ExecutorInfo, Snapshot
from ...protocol.schedules import ScheduleRecord
from ...protocol.states import ENDED, Status
from ..cluster.router import Router
from .cluster_metrics import ClusterMetrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_WAITS = (0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200, 43_200)
_COMMITS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_EXECUTOR_STATUSES = ("attached", "disconnected", "draining")
_OUTCOMES = ("succeeded", "failed")
_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class Metrics:
    """The metrics of one gateway and its engine; with `router`, also those of a node of a cluster.

    A node has another engine each time it leads, and none while it follows. What an engine counts begins
    again at 0.
    """

    def __init__(self, engine: Engine, router: Router | None = None) -> None:
        self._engine = engine
        self._router = router
        self._seq = engine.stream.last_seq
        self._queued_at: dict[str, float] = {}
        registry = self._registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self.resyncs = counter("greenroom_resyncs", "Snapshots sent to subscribers that had missed events")
        self.stalled = counter("greenroom_stalled_clients", "Clients disconnected as they did not read")
        self.websockets = gauge("greenroom_websockets", "Open WebSocket connections")
        self.server_sent = gauge("greenroom_event_sources", "Clients that read server-sent events")
        self._lag = gauge("greenroom_lag_events", "Events not yet sent to the slowest subscriber")
        self._events = counter("greenroom_events", "Events, by type", ["type"])
        self._ended = counter("greenroom_runs_ended", "Runs that ended, by status", ["status"])
        self._waiting = histogram(
            "greenroom_run_waiting_seconds",
            "Time from a run's submission, or from its time, to its first start",
            buckets=_WAITS,
        )
        self._commit_size = histogram("greenroom_commit_events", "Events in a commit", buckets=_SIZES)
        self._commit_time = histogram("greenroom_commit_seconds", "Duration of a commit", buckets=_COMMITS)
        self._runs = gauge("greenroom_runs", "Pending runs, by status", ["status"])
        self._delayed = gauge("greenroom_delayed_runs", "Queued runs that wait for their `not_before`")
        self._lane_queued = gauge("greenroom_lane_queued", "Runs queued in a lane", ["lane"])
        self._lane_executing = gauge("greenroom_lane_executing", "Slots in use by a lane's runs", ["lane"])
        self._lane_limit = gauge("greenroom_lane_limit", "The limit of a lane that has one", ["lane"])
        self._max_concurrent = gauge("greenroom_max_concurrent", "The global limit")
        self._draining = gauge("greenroom_draining", "1 while the engine drains and refuses new runs")
        self._store_down = gauge("greenroom_store_down", "1 while the store cannot be written")
        self._blocked = counter(
            "greenroom_loop_blocked", "Times that an event loop with bodies was blocked for 1 s or longer"
        )
        self._blocked_time = counter("greenroom_loop_blocked_seconds", "Total seconds of these blockages")
        self._last_seq = gauge("greenroom_seq", "The seq of the last event")
        self._node_runs = counter("greenroom_node_runs", "Attempts of nodes of flows, by status", ["status"])
        self._workers = gauge("greenroom_workers", "Workers, by status", ["status"])
        self._queue_items = gauge(
            "greenroom_queue_items",
            "Work items for polling workers: waiting, or leased to a worker",
            ["state"],
        )
        self._executors = gauge("greenroom_executors", "Executors, by status", ["status"])
        self._bodies = gauge("greenroom_executor_bodies", "Bodies that an executor executes", ["executor"])
        self._lost = counter("greenroom_executors_lost", "Executors that were lost without a drain")
        self._schedules = gauge("greenroom_schedules", "Schedules, by whether they are paused", ["state"])
        self._firings = counter("greenroom_schedule_firings", "Firings of schedules, by outcome", ["outcome"])
        self._missed = counter("greenroom_schedule_missed", "Due times that schedules have left out")
        self._webhooks = gauge("greenroom_webhooks", "Webhooks that fail, or are dead", ["state"])
        self._deliveries = counter(
            "greenroom_webhook_deliveries", "Attempts to deliver an event, by outcome", ["outcome"]
        )
        self._delivered_before = engine.webhooks.attempted
        self._counted = engine.executors
        self._lost_before = engine.executors.lost
        self._blocked_before = engine.blocked
        self._cluster = None if router is None else ClusterMetrics(router, registry)
        for status in ENDED:
            self._ended.labels(status)
        for name in get_args(NodeStatus):
            self._node_runs.labels(name)
        for outcome in ("submitted", "refused"):
            self._firings.labels(outcome)
        for outcome in _OUTCOMES:
            self._deliveries.labels(outcome)

    def begin(self, snapshot: Snapshot) -> None:
        """Start with the runs that are queued already."""
        for run in snapshot.runs.values():
            if run.status is Status.QUEUED:
                self._queued_at[run.id] = run.created_at

    def committed(self) -> None:
        """Record a commit; the stream calls this after each."""
        seq = self._engine.stream.last_seq
        size, self._seq = seq - self._seq, seq
        follows = self._router is not None and self._router.engine is None
        if size > 0 and not follows:
            self._commit_size.observe(size)
            self._commit_time.observe(self._engine.commit_seconds)

    def observe(self, event: Event) -> None:
        """Record an event."""
        self._events.labels(event.type).inc()
        if type(event) is NodeRan:
            self._node_runs.labels(event.status).inc()
        if isinstance(event, ScheduleFired):
            self._firings.labels("submitted" if event.refused is None else "refused").inc()
        elif isinstance(event, ScheduleMissed):
            self._missed.inc(event.count)
        if type(event) is not RunStateChanged:
            return
        if event.from_ is None:
            self._queued_at[event.run] = event.not_before or event.at
        elif event.from_ is Status.QUEUED:
            since = self._queued_at.pop(event.run, None)
            if event.to is Status.RUNNING and since is not None:
                self._waiting.observe(max(0.0, event.at - since))  # the clock may have been set back
        if event.to in ENDED:
            self._ended.labels(event.to).inc()

    def exposition(
        self,
        shown: Counts | Snapshot,
        workers: Sequence[WorkerState],
        executors: Sequence[ExecutorInfo],
        schedules: Sequence[ScheduleRecord],
        webhooks: WebhookCounts,
        *,
        lag: int,
    ) -> bytes:
        """All metrics as text. `shown` is the counts, or a snapshot to count."""
        counts = shown if isinstance(shown, Counts) else Projection.from_snapshot(shown).counts()
        by_status = Count(worker.status for worker in workers)
        for name in get_args(WorkerStatus):
            self._workers.labels(name).set(by_status[name])
        statuses = Count(executor.status for executor in executors)
        for name in _EXECUTOR_STATUSES:
            self._executors.labels(name).set(statuses[name])
        self._bodies.clear()
        for executor in executors:
            self._bodies.labels(executor.id).set(executor.bodies)
        paused = sum(schedule.paused for schedule in schedules)
        self._schedules.labels("paused").set(paused)
        self._schedules.labels("active").set(len(schedules) - paused)
        self._webhooks.labels("failing").set(webhooks.failing)
        self._webhooks.labels("dead").set(webhooks.dead)
        for place, count in zip(("waiting", "leased"), self._engine.workers.queued(), strict=True):
            self._queue_items.labels(place).set(count)
        for status, pending in counts.runs.items():
            self._runs.labels(status).set(pending)
        self._delayed.set(counts.delayed)
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
        self._count_faults()
        if self._cluster is not None:
            self._cluster.update()
        self._last_seq.set(counts.seq)
        self._lag.set(lag)
        return generate_latest(self._registry)

    def _count_faults(self) -> None:
        """Add what the engine has counted since the last time; or since its start, if it is another one."""
        executors = self._engine.executors
        if executors is not self._counted:
            self._counted, self._lost_before, self._blocked_before = executors, 0, (0, 0.0)
            self._delivered_before = (0, 0)
        self._lost.inc(executors.lost - self._lost_before)
        self._lost_before = executors.lost
        times, seconds = self._engine.blocked
        times_before, seconds_before = self._blocked_before
        self._blocked.inc(times - times_before)
        self._blocked_time.inc(seconds - seconds_before)
        self._blocked_before = (times, seconds)
        attempted = self._engine.webhooks.attempted
        for outcome, now, before in zip(_OUTCOMES, attempted, self._delivered_before, strict=True):
            self._deliveries.labels(outcome).inc(now - before)
        self._delivered_before = attempted
