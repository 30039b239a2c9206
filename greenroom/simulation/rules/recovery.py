"""Rule 6 and DESIGN.md §5, recovery: what a restart must bring back, and what it makes of each run.

What the store holds when it is opened again is compared with everything that was committed. Then each
pending run has a *fate*: the transitions that a restart must make of it, in the first instant of the new
engine. A run that only goes on has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ...persistence.store import Stored, StoredRun
from ...protocol.states import Status
from ..model.state import EXECUTES, ModelRun, ModelState
from .order import OrderRules

_PATIENCE = 0.5
_MOST_DEATHS = 3


class Job(Protocol):
    """What a job's author has declared, as far as it matters here."""

    resumable: bool
    max_attempts: int
    accepts: str
    cancel: str
    grace: float
    registered: bool


class RecoveryRules:
    """See the module's text. `settled` is false from the opening until the end of that instant."""

    def __init__(self, model: ModelState, order: OrderRules, fault: Callable[[str], None]) -> None:
        self.settled = True
        self._model = model
        self._order = order
        self._fault = fault
        self._recall: Callable[[str], Job]
        self._since: float | None = None  # when the engine came up
        self._waited = 0.0
        self._limits: dict[str | None, tuple[int | None, bool]] = {}  # what they must be; `None`: the engine

    def job(self, run: ModelRun) -> Job:
        """What is declared of a run's job."""
        return self._recall(run.job)

    def opened(
        self,
        stored: Stored,
        recall: Callable[[str], Job],
        max_concurrent: int | None = None,
        limits: Mapping[str, int | None] | None = None,
    ) -> None:
        """An engine has opened the store. `recall` gives the jobs that it has now; limits that it was given
        win over those of the store."""
        model, self._recall = self._model, recall
        if model.epoch is None:
            model.epoch, model.max_concurrent = stored.epoch, stored.max_concurrent
        self._compare(stored)
        limit = model.max_concurrent if max_concurrent is None else max_concurrent
        self._limits = {lane: (limit, False) for lane, limit in (limits or {}).items()}
        self._limits[None] = (limit, False)
        self._count_deaths()
        for run in model.pending.values():
            run.fate = self._fate(run)
            run.next_attempts = self._next_attempts(run)
            run.restored = run.aged = True
        self._order.opened()
        self.settled = False
        self._since, self._waited = None, 0.0

    @property
    def patient(self) -> bool:
        """Whether nothing need start yet: starts may wait a moment for runs that end with the restart."""
        return not self.settled and self._waited < _PATIENCE

    def settle(self, now: float) -> None:
        """The first instant is over. A run whose files are being deleted may end later."""
        model = self._model
        self._since = now if self._since is None else self._since
        self._waited = now - self._since
        ends = [run for run in model.pending.values() if run.fate is not None]
        self.settled = not any(run.id in model.deleting for run in ends)
        for run in ends:
            if run.id not in model.deleting:
                self._fault(f"after a restart {run} is as it was, and not one of {run.fate}")
        for run in model.pending.values():
            if run.fate is None and run.deaths != run.counted:
                self._fault(f"{run} has {run.deaths} deaths after a restart, not {run.counted}")
        limits, self._limits = self._limits, {}
        for lane, limit in limits.items():
            if (found := self._limit(lane)) != limit:
                self._fault(f"after a restart the limit of {lane or 'the engine'} is {found}, not {limit}")

    def overruled(self, lane: str | None) -> None:
        """Somebody has set the limit of a lane, or of the engine, already."""
        self._limits.pop(lane, None)

    def _limit(self, lane: str | None) -> tuple[int | None, bool]:
        """The limit, and whether it is draining."""
        if lane is None:
            return self._model.max_concurrent, self._model.draining[-1][1]
        return self._model.lane(lane).limit, False

    def stopped(self) -> None:
        """The engine has been left: nobody has a body, and what is not queued may be gone on with."""
        for run in self._model.pending.values():
            if (
                run.status in EXECUTES
                or run.has_body
                or (run.status is Status.SUSPENDED and not self._may_go_on(run))
            ):
                self._fault(f"the engine has been left, and {run} is left")

    def costs_attempt(self, run: ModelRun, reason: str | None) -> bool:
        """Whether what comes after a suspension is another attempt."""
        if reason in ("recovered", "shutdown", "lease_lost"):
            return not self.job(run).resumable
        return reason == "retry"

    def _count_deaths(self) -> None:
        """A death counts for those that had bodies and had not been tried; or for all of them, if all had.
        Not for those that were being cancelled: they end with the restart."""
        pending = self._model.pending.values()
        alive = [run for run in pending if _may_have_killed(run)]
        untried = [run for run in alive if not run.tried]
        for run in pending:
            run.counted = run.deaths + (run in (untried or alive))

    def _may_go_on(self, run: ModelRun) -> bool:
        job = self.job(run)
        return job.registered and (job.resumable or run.attempt < job.max_attempts)

    def _fate(self, run: ModelRun) -> set[tuple[Status, str | None]] | None:
        registered = self.job(run).registered
        if run.status is Status.QUEUED:
            return None if registered else {(Status.REJECTED, "rejected"), *_OTHER_ENDS}
        if run.status is Status.RUNNING and run.doomed:  # its start had crossed the cancel
            return {(Status.CANCELLING, run.reason)}
        if run.status is Status.CANCELLING or run.doomed:
            return {(Status.CANCELLED, run.reason)}
        if run.status is Status.SUSPENDED and not registered:
            return {(Status.REJECTED, "unknown_job")}
        if not self._may_go_on(run):
            return {(Status.FAILED, "crashed")}
        if _may_have_killed(run) and run.counted >= _MOST_DEATHS:
            return {(Status.FAILED, "killed")}
        return {(Status.SUSPENDED, "recovered")} if run.status is Status.RUNNING else None

    def _next_attempts(self, run: ModelRun) -> tuple[int, ...]:
        if run.status is Status.QUEUED:
            return (1,)
        if run.reason == "retry" or not self.job(run).resumable:
            return (run.attempt + 1,)
        return (run.attempt, run.attempt + 1) if run.drew_place else (run.attempt,)

    def _compare(self, stored: Stored) -> None:
        model = self._model
        pairs: list[tuple[str, Any, Any]] = [
            ("epoch", stored.epoch, model.epoch),
            ("last seq", stored.last_seq, model.seq),
            ("pending runs", [run.record.id for run in stored.pending], list(model.pending)),
            ("limit", stored.max_concurrent, model.max_concurrent),
            ("draining", stored.draining, model.draining[-1][1]),
            ("held handles", stored.held, self._held()),
            ("drafts", stored.drafts, {n: h.draft for n, h in model.handles.items() if h.draft is not None}),
        ]
        for name, (limit, generation) in stored.lanes.items():
            lane = model.lane(name)
            pairs.append((f"lane {name}", (limit, generation), (lane.limit, lane.generation)))
        for run in stored.pending:
            if run.record.id in model.pending:
                pairs.append((f"run {run.record.id}", *_both(run, model.pending[run.record.id])))
        for record in stored.ended:
            pairs.append((f"run {record.id}", record.status, model.runs[record.id].status))
        for what, is_stored, expected in pairs:
            if is_stored != expected:
                self._fault(f"{what}: the store was opened with {is_stored}, but {expected} was committed")

    def _held(self) -> dict[str, str]:
        held = {name: handle.holder for name, handle in self._model.handles.items()}
        return {name: run for name, run in held.items() if run is not None and self._model.runs[run].ended}


def _may_have_killed(run: ModelRun) -> bool:
    """As far as is committed: a body that ended as a start was decided is not known to have."""
    return run.status is Status.RUNNING or (run.status is Status.SUSPENDED and run.has_body)


_OTHER_ENDS: frozenset[tuple[Status, str | None]] = frozenset(
    (status, reason)
    for status, reasons in {
        Status.TIMED_OUT: ("deadline", "queue_timeout"),
        Status.CANCELLED: ("cancelled", "replaced", "lane_cleared", "handle_cleared", "parent_cancelled"),
    }.items()
    for reason in reasons
)


def _both(stored: StoredRun, run: ModelRun) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    record = stored.record
    is_stored = (record.status, record.reason, record.attempt, record.place, record.params, record.handle)
    expected = (run.status, run.reason, run.attempt, run.place, run.params, run.handle)
    interrupts = {interrupt.id: interrupt.key for interrupt in stored.interrupts if interrupt.outcome is None}
    return (
        (*is_stored, stored.deaths, stored.tried, stored.files_doomed, dict(stored.messages), interrupts),
        (*expected, run.deaths, run.tried, run.doomed, run.messages, run.interrupts),
    )
