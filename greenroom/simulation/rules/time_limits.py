"""Time limits: a run's timeouts and deadline end it, neither too early nor too late.

`queue_timeout` and `deadline` count from the submission, `queue_timeout` of a delayed run from its time, and
`run_timeout` from the start of each attempt, and only while the run has a slot. A body that must end has its
grace, and is abandoned after that.

Nothing is checked while the store is slow or unavailable, which takes time itself. A limit that counts from
the submission is not checked after a restart, because it then depends on the wall clock; nor for a run that
may have been submitted while the store was unavailable, because it was created only when the store was
available again.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...persistence.store import Terms
from ...protocol.events import RunStateChanged
from ...protocol.states import Status
from ..model.state import ModelRun, ModelState

_AT_ONCE = 0.001
_SLACK = 0.01
_NOTICED_WITHIN = 6.0
"""Seconds within which an engine notices that its store is available again: its longest pause between two
attempts, and the duration of an attempt."""


class TimeLimitRules:
    """See the module's docstring. `now` is trio's time; `grace` returns the seconds that a run's body has to
    end."""

    def __init__(
        self,
        model: ModelState,
        now: Callable[[], float],
        grace: Callable[[ModelRun], float],
        fault: Callable[[str], None],
    ) -> None:
        self._model = model
        self._now = now
        self._grace = grace
        self._fault = fault
        self._due_at: dict[str, float] = {}  # when delayed runs were due, as the engine has noticed it

    def submitted(self, run: ModelRun, terms: Terms) -> None:
        """Record the limits of a new run."""
        now = self._now()
        run.terms, run.submitted_at = terms, now
        if now <= self._model.disturbed + _NOTICED_WITHIN:
            run.aged = True

    def transition(self, event: RunStateChanged, run: ModelRun) -> None:
        """Read a transition, before the model does."""
        now = self._now()
        if event.to is Status.RUNNING:
            if event.attempt != run.attempt or run.restored:
                run.executed, run.attempt_at = 0.0, now
            run.executes_since = now
        elif event.to is not Status.CANCELLING and run.executes_since is not None:
            run.executed += now - run.executes_since
            run.executes_since = None
        if event.to is Status.TIMED_OUT:
            self._judge_early(event, run, now)

    def _judge_early(self, event: RunStateChanged, run: ModelRun, now: float) -> None:
        limit, since, counted = math.inf, run.submitted_at, now - run.submitted_at
        if event.reason == "run_timeout":
            limit, since, counted = _seconds(run.terms.run_timeout), run.attempt_at, run.executed
        elif event.reason in ("queue_timeout", "deadline") and not run.aged:
            limit = _seconds(getattr(run.terms, event.reason))
            limit += run.delay if event.reason == "queue_timeout" else 0.0
        if limit < math.inf and counted < limit - _SLACK and self._model.disturbed < since:
            self._fault(f"{event}: only {counted:g} s of {limit:g} s had passed")

    def end_instant(self) -> None:
        """Check that each run whose time has expired has ended."""
        now = self._now()
        for run in self._model.pending.values():
            if run.not_before is not None and not run.delayed:
                self._due_at.setdefault(run.id, now)
            if run.id in self._model.deleting:
                continue
            self._judge_late(run, "run_timeout", run.attempt_at, self._executed(run, now))
            if not run.aged:
                self._judge_late(run, "deadline", run.submitted_at, now - run.submitted_at)
            if not run.aged and run.status is Status.QUEUED:
                waited = now - run.submitted_at - run.delay
                self._judge_late(run, "queue_timeout", run.submitted_at, waited)

    def about_to_end(self) -> set[str]:
        """The runs that get no slot, because their time expires within a moment."""
        soon = self._now() + _AT_ONCE
        pending = self._model.pending
        ending = {
            run.id for run in pending.values() if not run.aged and _ends_by(run, soon - run.submitted_at)
        }
        for id, due_at in self._due_at.items():
            run = pending.get(id)
            if run is None or run.status is not Status.QUEUED:
                continue
            if _seconds(run.terms.queue_timeout) <= soon - due_at:
                ending.add(id)
        return ending

    def _executed(self, run: ModelRun, now: float) -> float:
        if run.status is not Status.RUNNING or run.executes_since is None or run.restored:
            return 0.0
        return run.executed + now - run.executes_since

    def _judge_late(self, run: ModelRun, what: str, since: float, counted: float) -> None:
        limit = _seconds(getattr(run.terms, what))
        if run.status is not Status.QUEUED:
            limit += self._grace(run)
        if counted > limit + _SLACK and self._model.disturbed < since:
            self._fault(
                f"after {self._model.seq}, {run} has exceeded its {what}: {counted:g} s of {limit:g} s"
            )


def _seconds(limit: float | None) -> float:
    return math.inf if limit is None else limit


def _ends_by(run: ModelRun, waited: float) -> bool:
    queue_timeout = run.terms.queue_timeout if run.status is Status.QUEUED else None
    return _seconds(run.terms.deadline) <= waited or _seconds(queue_timeout) <= waited - run.delay
