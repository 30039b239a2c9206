"""Rule 6 and recovery: the state that a restart must restore, and the transition that it makes for each run.

The content of the store at each opening is compared with everything that was committed. Then each pending run
gets a *fate*: the transitions of which the new engine must make one in its first instant. A run that only
continues has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec.structs import astuple

from ...persistence.store import Stored, StoredRun
from ...protocol.executors import JobTerms
from ...protocol.states import Status
from ..model.state import EXECUTES, ModelRun, ModelState
from .order import OrderRules

_PATIENCE = 0.5
_MOST_DEATHS = 3


class Job(Protocol):
    """The declarations of a job that matter for recovery."""

    resumable: bool
    max_attempts: int
    accepts: str
    cancel: str
    grace: float
    registered: bool


class RecoveryRules:
    """See the module's docstring. `settled` is false from the opening of the store to the end of recovery."""

    def __init__(
        self,
        model: ModelState,
        order: OrderRules,
        now: Callable[[], float],
        fault: Callable[[str], None],
    ) -> None:
        self.settled = True
        self._now = now
        self._model = model
        self._order = order
        self._fault = fault
        self._recall: Callable[[str, JobTerms | None], Job]
        self._since: float | None = None  # the time of the engine's start
        self._waited = 0.0
        self._limits: dict[
            str | None, tuple[int | None, bool]
        ] = {}  # expected, by lane; `None`: the engine's

    def job(self, run: ModelRun) -> Job:
        """The declaration of a run's job."""
        return self._recall(run.job, run.terms.announced)

    def opened(
        self,
        stored: Stored,
        recall: Callable[[str, JobTerms | None], Job],
        max_concurrent: int | None = None,
        limits: Mapping[str, int | None] | None = None,
        *,
        continues: bool = False,
    ) -> None:
        """Check what an engine read when it opened the store, and decide the fate of each pending run.

        `recall` returns the engine's present jobs. Configured limits take precedence over the stored ones,
        and draining has ended, unless the node of the engine `continues` after another leader.
        """
        model, self._recall = self._model, recall
        if model.epoch is None:
            model.epoch, model.max_concurrent = stored.epoch, stored.max_concurrent
        self._compare(stored)
        limit = model.max_concurrent if max_concurrent is None or continues else max_concurrent
        configured = {} if continues or limits is None else limits
        self._limits = {lane: (limit, False) for lane, limit in configured.items()}
        self._limits[None] = (limit, continues and model.draining[-1][1])
        self._count_deaths()
        for run in model.pending.values():
            if run.is_elsewhere:  # it continues, and the time that it executes counts again
                run.executed = 0.0
                run.executes_since = None if run.executes_since is None else self._now()
                continue
            run.fate = self._fate(run)
            run.next_attempts = self._next_attempts(run)
            run.restored = run.aged = True
        self._order.opened()
        self.settled = False
        self._since, self._waited = None, 0.0

    @property
    def patient(self) -> bool:
        """Whether no run has to start yet: starts may wait a moment for runs that end with the restart."""
        return not self.settled and self._waited < _PATIENCE

    def settle(self, now: float) -> None:
        """Check the first instant of an engine. A run whose files are being deleted can end later."""
        model = self._model
        self._since = now if self._since is None else self._since
        self._waited = now - self._since
        ends = [run for run in model.pending.values() if run.fate is not None]
        self.settled = not any(run.id in model.deleting for run in ends)
        for run in ends:
            if run.id not in model.deleting:
                self._fault(f"after a restart {run} has not changed, expected one of {run.fate}")
        for run in model.pending.values():
            if run.fate is None and run.deaths != run.counted:
                self._fault(f"after a restart {run} has {run.deaths} deaths, expected {run.counted}")
        limits, self._limits = self._limits, {}
        for lane, limit in limits.items():
            if (found := self._limit(lane)) != limit:
                where = "the engine" if lane is None else f"lane {lane}"
                self._fault(f"after a restart the limit of {where} is {found}, expected {limit}")

    def overruled(self, lane: str | None) -> None:
        """Expect nothing of the limit of a lane, or of the engine (`None`): a client has set it."""
        self._limits.pop(lane, None)

    def _limit(self, lane: str | None) -> tuple[int | None, bool]:
        """The limit of a lane, or of the engine (`None`) with whether it is draining."""
        if lane is None:
            return self._model.max_concurrent, self._model.draining[-1][1]
        return self._model.lane(lane).limit, False

    def stopped(self) -> None:
        """Check that after a shutdown no run has a body, and each suspended run can be resumed."""
        for run in self._model.pending.values():
            if run.is_elsewhere:
                continue  # its body continues in another process
            remains = run.status in EXECUTES or run.has_body
            if remains or (run.status is Status.SUSPENDED and not self._can_resume(run)):
                self._fault(f"the engine has shut down, but {run} has not been ended or suspended")

    def costs_attempt(self, run: ModelRun, reason: str | None) -> bool:
        """Whether a run continues with another attempt after a suspension for this reason."""
        if reason in ("recovered", "shutdown", "lease_lost", "executor_lost", "body_lost"):
            return not self.job(run).resumable
        return reason == "retry"

    def _count_deaths(self) -> None:
        """Count the death of the process for the runs that had bodies and had not been tried; or for all that
        had bodies, if all of them had been tried. Runs that were being cancelled do not count: they end with
        the restart."""
        pending = self._model.pending.values()
        alive = [run for run in pending if _may_have_killed(run) and not run.is_elsewhere]
        untried = [run for run in alive if not run.tried]
        for run in pending:
            run.counted = run.deaths + (run in (untried or alive))

    def _can_resume(self, run: ModelRun) -> bool:
        job = self.job(run)
        return job.registered and (job.resumable or run.attempt < job.max_attempts or _never_began(run))

    def _fate(self, run: ModelRun) -> set[tuple[Status, str | None]] | None:
        registered = self.job(run).registered
        if run.status is Status.QUEUED:
            return None if registered else {(Status.REJECTED, "rejected"), *_OTHER_ENDS}
        if run.status is Status.RUNNING and run.doomed:  # it started while the cancel was being committed
            return {(Status.CANCELLING, run.reason)}
        if run.status is Status.CANCELLING or run.doomed:
            return {(Status.CANCELLED, run.reason)}
        if run.status is Status.SUSPENDED and not registered:
            return {(Status.REJECTED, "unknown_job")}
        if not self._can_resume(run):
            return {(Status.FAILED, "crashed")}
        if _may_have_killed(run) and run.counted >= _MOST_DEATHS:
            return {(Status.FAILED, "killed")}
        return {(Status.SUSPENDED, "recovered")} if run.status is Status.RUNNING else None

    def _next_attempts(self, run: ModelRun) -> tuple[int, ...]:
        if run.status is Status.QUEUED:
            return (1,)
        if _never_began(run):
            return (run.attempt,)
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
        for name, known in stored.lanes.items():
            lane = model.lane(name)
            expected = (lane.limit, lane.generation, lane.paused, lane.rules)
            pairs.append((f"lane {name}", astuple(known), expected))
        for run in stored.pending:
            if run.record.id in model.pending:
                pairs.append((f"run {run.record.id}", *_both(run, model.pending[run.record.id])))
        for record in stored.ended:
            pairs.append((f"run {record.id}", record.status, model.runs[record.id].status))
        for what, is_stored, expected in pairs:
            if is_stored != expected:
                self._fault(f"{what}: the store contains {is_stored}, but {expected} was committed")

    def _held(self) -> dict[str, str]:
        held = {name: handle.holder for name, handle in self._model.handles.items()}
        return {name: run for name, run in held.items() if run is not None and self._model.runs[run].ended}


def _may_have_killed(run: ModelRun) -> bool:
    """Whether it may be the reason that the process died, judging by what is committed."""
    return run.status is Status.RUNNING or (run.status is Status.SUSPENDED and run.has_body)


def _never_began(run: ModelRun) -> bool:
    return run.status is Status.SUSPENDED and run.reason in ("not_begun", "executor_refused")


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
