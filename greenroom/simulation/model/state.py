"""The state that follows from the committed events: runs, handles and lanes as plain data.

The rules read and write it; this module checks nothing. It does not use `protocol.fold`, so that a bug in the
fold shows up as a difference.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from ...persistence.store import Terms
from ...protocol.events import Event, RunStateChanged
from ...protocol.lanes import DEFAULT_RULES
from ...protocol.records import default_limit
from ...protocol.states import ENDED, Status

EXECUTES = frozenset({Status.RUNNING, Status.CANCELLING})


class ModelRun:
    """The state of one run, derived from its events."""

    def __init__(self, event: RunStateChanged) -> None:
        self.id = event.run
        self.handle = event.handle
        self.lane = event.lane
        self.job = event.job or ""
        self.kind = event.kind or "start"
        self.params = event.params
        self.parent = event.by.removeprefix("run:") if event.by.startswith("run:") else None
        self.status = event.to
        self.reason = event.reason
        self.attempt = 0
        self.next_attempts: Collection[int] = (1,)  # the allowed numbers of the next attempt
        self.place: int | None = None
        self.not_before = event.not_before
        self.delayed = False  # queued, and outside its lane until its time
        self.was_due = False  # whether the engine's clock has ever shown its time
        self.due_since: float | None = None  # since when it has shown that, in trio's time
        self.executor: str | None = None  # which has its body, if that is not in the engine's own process
        self.was_elsewhere = False  # whether it has lost a body at an executor, whose death may be counted
        self.fence = 0  # of its last body
        self.holds_slot = False
        self.has_body = False  # or had one until the process died, and nothing was committed since
        self.waits_for_slot = False  # suspended, and waits for nothing except a slot
        self.drew_place = False  # for a retry that has not started yet
        self.called = False  # it has called a child in this execution
        self.restored = False  # by a restart, and has not executed since
        self.superseded = False  # a newer run replaces the run that this one was to replace
        self.flags = {"interactive": False, "streaming": False, "compacting": False}
        self.interrupt_ids: list[str] = []  # of all interrupts that it has opened
        self.interrupts: dict[str, str] = {}  # the key of each open interrupt, by id
        self.answers: dict[str, Any] = {}  # by key; those since the last checkpoint
        self.data: dict[str, Any] = {}  # of all interrupts
        self.messages: dict[int, Any] = {}  # those that its body has not taken: by seq
        self.deaths = 0  # how many processes died while they executed it, as far as the store counts them
        self.tried = False  # executed again since the last of these deaths
        self.counted = 0  # its deaths, including the one that the last restart must count
        self.doomed = False  # its finished files are to be deleted
        self.fate: Collection[tuple[Status, str | None]] | None = None  # what a restart must make of it
        self.created_in = event.seq
        self.ended_in: int | None = None
        self.terms = Terms()
        self.needs = event.needs
        self.priority = event.priority
        self.key = event.key
        self.placed_at = event.at
        self.tags = event.tags
        self.created_at = event.at
        self.error: str | None = None  # since its end
        self.submitted_at = self.attempt_at = 0.0  # trio's time
        self.delay = 0.0 if event.not_before is None else max(0.0, event.not_before - event.at)
        self.executed = 0.0  # seconds that this attempt has executed, without the time in its present slot
        self.executes_since: float | None = None
        self.aged = False  # submitted before a restart, or possibly before an outage
        self.statuses: list[tuple[int, Status]] = [(event.seq, event.to)]
        self._params: list[tuple[int, Any]] = [(event.seq, event.params)]

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def is_elsewhere(self) -> bool:
        """Whether it has a body at an executor, which continues when the engine ends."""
        return self.executor is not None and (self.has_body or self.status is Status.CANCELLING)

    @property
    def is_suspect(self) -> bool:
        """Whether it may be the reason that a process died. Only one such run may execute at a time."""
        return self.deaths > 0 and not self.tried and not self.ended

    @property
    def walks(self) -> bool:
        """Whether it walks a flow, and therefore takes signals instead of messages."""
        return self.job == "flow"

    @property
    def is_in_queue(self) -> bool:
        """Whether it has a place in its lane's queue now."""
        queued = self.status is Status.QUEUED and not self.delayed
        return self.place is not None and (queued or self.waits_for_slot)

    def take_params(self, seq: int, params: Any) -> None:
        """Record that it has these parameters from this seq on."""
        self.params = params
        self._params.append((seq, params))

    def had_params(self, params: Any, since: int, until: int) -> bool:
        """Whether it had these parameters at some time between two seqs."""
        return params in during(self._params, since, until)

    def statuses_between(self, since: int, until: int) -> set[Status]:
        """The statuses that it had at some time between two seqs."""
        return values(self.statuses, since, until)

    def __repr__(self) -> str:
        return (
            f"run {self.id} ({self.job}: {self.status}, reason {self.reason}, attempt {self.attempt}, "
            f"handle {self.handle}, lane {self.lane}, place {self.place})"
        )


class ModelHandle:
    """A handle: the run that holds it, the runs that wait in it, and its draft."""

    def __init__(self) -> None:
        self.holder: str | None = None
        self.waiting: list[str] = []
        self.replacing: list[str] = []  # the waiting runs that are to replace the holder
        self.draft: Any = None
        self.fence = 0
        self._holders: list[tuple[int, str | None]] = [(0, None)]

    def hold(self, seq: int, run: str | None) -> None:
        """Record that `run` holds the handle from this seq on (`None`: no run does)."""
        self.holder = run
        self._holders.append((seq, run))

    def held_by(self, since: int, until: int) -> set[str | None]:
        """The runs that held it at some time between two seqs."""
        return values(self._holders, since, until)


class ModelLane:
    """A lane's settings and generation."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.generation = 0
        self.paused = False
        self.rules = DEFAULT_RULES


class ModelExecutor:
    """An executor, as the last event shows it."""

    def __init__(self, status: str, slots: int | None, labels: frozenset[str], jobs: frozenset[str]) -> None:
        self.status = status
        self.slots = slots
        self.labels = labels
        self.jobs = jobs

    @property
    def takes_new_bodies(self) -> bool:
        """Whether it is attached, and does not drain."""
        return self.status == "attached"


class ModelState:
    """The state of one store: everything that follows from its committed events."""

    def __init__(self) -> None:
        self.epoch: str | None = None
        self.events: list[Event] = []
        self.runs: dict[str, ModelRun] = {}
        self.pending: dict[str, ModelRun] = {}
        self.handles: dict[str, ModelHandle] = {}
        self.lanes: dict[str, ModelLane] = {}
        self.executors: dict[str, ModelExecutor] = {}
        self.coming: dict[str, Terms] = {}  # of the runs that are being created
        self.had_executors = False
        self.executes_itself = True  # whether the engine's own process executes bodies
        self.max_concurrent = 0
        self.draining: list[tuple[int, bool]] = [(0, False)]
        self.checkpoints: dict[tuple[str, str], tuple[str, Any]] = {}  # by handle and job: run and value
        self.requests: dict[str, str] = {}  # by request id: the run
        self.made_for: dict[str, dict[str, None]] = {}  # by request id: all runs that it has ever made
        self.disturbed = -math.inf  # when the disk was last slow, or failed, in trio's time
        self.deleting: Collection[str] = ()  # the runs whose files are being deleted, which can take long
        self.recorded: set[tuple[str, str]] = set()  # each finished file: its run and its path

    @property
    def seq(self) -> int:
        return len(self.events)

    def handle(self, name: str) -> ModelHandle:
        return self.handles.setdefault(name, ModelHandle())

    def lane(self, name: str) -> ModelLane:
        return self.lanes.setdefault(name, ModelLane(default_limit(name)))

    def holders(self, lane: str | None = None) -> list[ModelRun]:
        """The runs that hold a slot."""
        return [run for run in self.pending.values() if run.holds_slot and lane in (None, run.lane)]

    def holders_at(self, executor: str | None) -> list[ModelRun]:
        """The runs that hold a slot and have their body at an executor."""
        return [run for run in self.holders() if run.executor == executor]

    def has_job(self, executor: str | None, run: ModelRun) -> bool:
        """Whether an executor (`None`: the engine's own process) can execute a run."""
        if executor is None:
            own = run.terms.announced is None
            return run.walks or (self.executes_itself and own and not run.needs)
        known = self.executors.get(executor)
        return known is not None and run.job in known.jobs and known.labels.issuperset(run.needs)

    def has_room(self, run: ModelRun) -> bool:
        """Whether an executor has a slot for a queued run."""
        if run.has_body:
            able = [run.executor]
        else:
            able = [executor for executor in (None, *self.executors) if self.has_job(executor, run)]
        return any(self._is_free(executor, resumes=run.has_body) for executor in able)

    def _is_free(self, executor: str | None, *, resumes: bool) -> bool:
        if executor is None:
            return True
        known = self.executors.get(executor)
        if known is None or not (known.takes_new_bodies or (resumes and known.status == "draining")):
            return False
        return known.slots is None or len(self.holders_at(executor)) < known.slots

    def queues(self) -> dict[str, list[ModelRun]]:
        """The runs in each lane's queue, in order of place."""
        queues: dict[str, list[ModelRun]] = {}
        for run in self.pending.values():
            if run.is_in_queue:
                queues.setdefault(run.lane, []).append(run)
        for queue in queues.values():
            queue.sort(key=lambda run: run.place or 0)
        return queues

    def children(self, parent: str) -> list[ModelRun]:
        """The pending runs that a run has called."""
        return [run for run in self.pending.values() if run.parent == parent]

    def handles_above(self, run: ModelRun) -> set[str]:
        """The handles of the runs that wait for a run."""
        handles: set[str] = set()
        while run.parent is not None:
            run = self.runs[run.parent]
            handles.add(run.handle)
        return handles

    def drained_between(self, since: int, until: int) -> set[bool]:
        """Whether the engine was draining at some time between two seqs."""
        return values(self.draining, since, until)


def values(changes: list[tuple[int, Any]], since: int, until: int) -> set[Any]:
    """The values of something that changed at some seqs, between two of them."""
    return set(during(changes, since, until))


def during(changes: list[tuple[int, Any]], since: int, until: int) -> list[Any]:
    """The same in order, also for values that a set cannot contain."""
    before = [value for seq, value in changes if seq <= since][-1:]
    return [*before, *(value for seq, value in changes if since < seq <= until)]
