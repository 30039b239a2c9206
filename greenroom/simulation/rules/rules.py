"""The engine's rules in plain Python: what an engine may commit.

`Rules` reads each batch when it becomes durable, keeps its own state of runs, handles and lanes
(`model/state.py`), and records each violation of a rule as a fault. Each topic has its module:

- `transitions.py`: the state machine, attempts, handles, interrupts and messages
- `order.py`: limits, and the order of places
- `time_limits.py`: timeouts and deadlines
- `recovery.py`: the state after a restart
- `retries.py`: what follows from the error of a body
- `replays.py`: the answers and children that a resumed body gets again
- `executors.py`: bodies in executors
- `batches.py`: batches of submissions
- `cluster.py`: leaders and their terms
- `observations.py`: bodies, files and clients
- `scenarios/flows/rules.py`: flows and workers

These modules do not use trio or the engine's code. Where the result depends on a race, the rules accept every
result that the design allows, and no other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ...persistence.store import (
    Batch,
    Checkpoint,
    Deaths,
    FileFinished,
    FilesDoomed,
    Memo,
    MessagesTaken,
    Requested,
    RunWrite,
)
from ...protocol.events import (
    EngineChanged,
    Event,
    EventBase,
    ExecutorChanged,
    HandleChanged,
    LaneChanged,
    RunEvent,
)
from ...protocol.states import Status
from ..model.state import ModelRun, ModelState
from ..scenarios.flows.rules import FlowRules
from .batches import BatchRules
from .cluster import ClusterRules
from .delays import DelayRules
from .executors import ExecutorRules
from .observations import ObservationRules
from .order import OrderRules
from .recovery import RecoveryRules
from .replays import ReplayRules
from .retries import RetryRules
from .schedules import ScheduleRules
from .time_limits import TimeLimitRules
from .transitions import TransitionRules


class Rules:
    """See the module's docstring. `faults` is empty as long as every rule is satisfied."""

    def __init__(
        self, now: Callable[[], float] = lambda: 0.0, wall: Callable[[], float] = lambda: 0.0
    ) -> None:
        self.faults: list[str] = []
        self.model = ModelState()
        self.order = OrderRules(self.model, self.faults.append)
        self.recovery = RecoveryRules(self.model, self.order, now, self.faults.append)
        self.observations = ObservationRules(self.model, self.faults.append)
        self.executors = ExecutorRules(self.model, now, self.observations.bodies_on, self.faults.append)
        self.observations.executors = self.executors
        self.batches = BatchRules(self._wrong)
        self.cluster = ClusterRules(self.faults.append)
        self.flows = FlowRules(self.model, lambda: self.observations.seen, self.faults.append)
        self.time_limits = TimeLimitRules(self.model, now, self._grace, self.faults.append)
        self.retries = RetryRules(
            lambda run: self.recovery.job(run).max_attempts, lambda: self.is_left, self.faults.append
        )
        self.delays = DelayRules(self.model, now, wall, self.faults.append)
        self.schedules = ScheduleRules(self.faults.append)
        self._transitions = TransitionRules(self)
        self.replays = ReplayRules(self.model, self.faults.append)
        self.cleared: dict[str, bool] = {}
        """Runs that a client has cleared; the value is true if only runs that wait in their handle are."""
        self.is_left = False
        self._last_memos: list[Memo] = []

    # The engine's lives.

    def opened(self, *args: Any, **options: Any) -> None:
        """An engine has opened the store; see `RecoveryRules.opened`."""
        self.is_left = False
        self.observations.takes_over()
        self.observations.new_life()
        self.flows.new_life()
        self.recovery.opened(*args, **options)
        self.delays.opened()
        self.schedules.opened(args[0].schedules)

    def leaving(self) -> None:
        """Record that the engine is shutting down, so that no run has to start."""
        self.executors.leaving()
        self.is_left = True

    def stopped(self) -> None:
        """Check the engine after its shutdown."""
        self.executors.end_life()
        self.recovery.stopped()
        self.observations.stopped()
        self.cleared.clear()

    def crashed(self) -> None:
        """Record that the engine's process has died, with all bodies."""
        self.is_left = True
        self.executors.end_life()
        self.observations.new_life()
        self.flows.new_life()
        self.cleared.clear()

    def end_instant(self, now: float) -> None:
        """Check the instant that ends: trio's clock is about to advance."""
        if not self.recovery.settled:
            self.recovery.settle(now)
        self.executors.end_instant()
        may_rest = self.is_left or self.recovery.patient
        awake = self.observations.awake(now) | self.flows.awake()
        self.order.end_instant(awake, self.time_limits.about_to_end(), leaving=may_rest)
        if not self.is_left:
            self.flows.end_instant()
            self.time_limits.end_instant()
            self.delays.end_instant()
            self.observations.end_instant(lambda run: self.recovery.job(run).cancel == "cooperative")
        for name, handle in self.model.handles.items():
            if handle.holder is None and handle.waiting and not self.is_left:
                self._wrong(f"handle {name} is free, but runs wait in it: {handle.waiting}")
            if handle.holder is not None and handle.replacing and not self.is_left:
                self._judge_replaced(self.model.runs[handle.holder])
        for id, in_handle in self.cleared.items():
            run = self.model.runs[id]
            if run.status is Status.QUEUED and (run.place is None or not in_handle):
                self._wrong(f"{run} was cleared, but is still queued")
        self.cleared.clear()

    def _grace(self, run: ModelRun) -> float:
        job = self.recovery.job(run)
        return 2 * job.grace if job.cancel == "cooperative" else job.grace

    def _judge_replaced(self, run: ModelRun) -> None:
        post_processing = self.observations.executes(run.id) and not run.flags["interactive"]
        if run.id in self.model.deleting:
            return
        if not run.ended and run.status is not Status.CANCELLING and not post_processing:
            self._wrong(f"{run} is to be replaced, but is not being cancelled")

    # Committed batches.

    def commit(self, batch: Batch) -> None:
        """Check a batch that has become durable."""
        if batch.before != self.model.seq:
            self._wrong(f"a batch was committed that follows seq {batch.before}")
        for memo in batch.memos:
            if isinstance(memo, Deaths) and memo.tried:  # then other suspects of the batch may start, too
                self.model.runs[memo.run].tried = True
        self.schedules.commit(batch)
        self.model.coming = {id: write.terms for id, write in batch.runs.items() if write.terms is not None}
        for event in batch.events:
            self.take(event)
        self.batches.commit(batch.events)
        repeated = not batch.events and batch.memos == self._last_memos
        for memo in batch.memos:
            self._remember(memo, repeated=repeated)
        if not repeated:
            self.flows.commit(batch.memos)
        self._last_memos = batch.memos
        for id, write in batch.runs.items():
            self._compare(self.model.runs[id], write)

    def take(self, event: Event) -> None:
        """Read the next event."""
        if event.seq != self.model.seq + 1:
            self._fault(event, f"the previous seq was {self.model.seq}")
        self.model.events.append(event)
        self.replays.take(event)
        self.schedules.take(event)
        if isinstance(event, RunEvent):
            self._transitions.take(event)
        elif isinstance(event, LaneChanged):
            self._lane_changed(event)
        elif isinstance(event, HandleChanged):
            self._handle_changed(event)
        elif isinstance(event, EngineChanged):
            self._engine_changed(event)
        elif isinstance(event, ExecutorChanged):
            self.executors.executor_changed(event)

    def _remember(self, memo: Any, *, repeated: bool) -> None:
        """Read a memo. `repeated`: the batch was committed again, after a commit with unknown outcome."""
        model = self.model
        if isinstance(memo, Checkpoint):
            model.checkpoints[memo.handle, memo.job] = (memo.run, memo.value)
            model.runs[memo.run].answers.clear()
        elif isinstance(memo, FileFinished):
            model.recorded.add((memo.run, memo.path))
        elif isinstance(memo, FilesDoomed):
            model.runs[memo.run].doomed = True
        elif isinstance(memo, MessagesTaken):
            for seq in memo.seqs:
                if model.runs[memo.run].messages.pop(seq, None) is None and not repeated:
                    self._wrong(f"message {seq} of {model.runs[memo.run]} was taken, but is not waiting")
        elif isinstance(memo, Deaths):
            run = model.runs[memo.run]
            expected = {run.counted, run.deaths, run.deaths + run.was_elsewhere}  # its executor may have died
            if memo.count not in expected and not (run.ended and not memo.count):
                self._wrong(f"{memo.count} deaths are stored for {run}, expected {run.counted}")
            run.deaths, run.tried, run.was_elsewhere = memo.count, memo.tried, False
        elif isinstance(memo, Requested):
            model.requests[memo.request_id] = memo.run

    def _compare(self, run: ModelRun, write: RunWrite) -> None:
        record, terms = write.record, write.terms
        written = (record.status, record.reason, record.attempt, record.place, record.params)
        if written != (run.status, run.reason, run.attempt, run.place, run.params):
            self._wrong(f"the record {record} was written for {run}")
        if terms is not None:
            self.time_limits.submitted(run, terms)
        if terms is not None and terms.request_id is not None:
            self.model.made_for.setdefault(terms.request_id, {})[run.id] = None
            known = self.model.requests.setdefault(terms.request_id, run.id)
            if known != run.id and not self.model.runs[known].ended:
                self._wrong(f"{run} has the same request id as run {known}, which is pending")
            self.model.requests[terms.request_id] = run.id

    # Lanes, handles, the engine.

    def _lane_changed(self, event: LaneChanged) -> None:
        lane = self.model.lane(event.lane)
        if event.generation not in (lane.generation, lane.generation + 1):
            self._fault(event, f"the generation was {lane.generation}")
        self.order.lane_changed(event, lane.generation)
        lane.limit, lane.generation = event.limit, event.generation
        lane.paused, lane.rules = event.paused, event.rules
        if event.by != "engine":
            self.recovery.overruled(event.lane)

    def _handle_changed(self, event: HandleChanged) -> None:
        handle = self.model.handle(event.handle)
        if event.params is not msgspec.UNSET:
            if handle.holder is not None:
                self._fault(event, f"the handle is locked by {self.model.runs[handle.holder]}")
            handle.draft = event.params
        if event.freed is not None:
            if handle.holder != event.freed or not self.model.runs[event.freed].ended:
                self._fault(event, f"the handle is held by {handle.holder}")
            if event.by == "engine" and self.observations.executes(event.freed):
                self._fault(event, "the body still executes")
            self.observations.released(event.freed)
            handle.hold(event.seq, None)

    def _engine_changed(self, event: EngineChanged) -> None:
        self.model.max_concurrent = event.max_concurrent
        if event.by != "engine":
            self.recovery.overruled(None)
        if event.draining != self.model.draining[-1][1]:
            self.model.draining.append((event.seq, event.draining))

    def _fault(self, event: EventBase, why: str) -> None:
        self.faults.append(f"{event}: {why}")

    def _wrong(self, what: str) -> None:
        self.faults.append(f"after {self.model.seq}, {what}")
