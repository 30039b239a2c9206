"""Delayed runs: none enters its lane before its time, none holds or waits in its handle before, unless it has
reserved it, and each is noticed soon after its time.

The engine's clock decides. It can be set back between the engine's decision and the commit, so the rules read
it at the end of each instant, and a scenario calls `look` before it sets the clock.
"""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.events import RunChanged, RunStateChanged
from ...protocol.records import UNTIL_HANDLE_FREE, UNTIL_TIME
from ..model.state import ModelRun, ModelState

_NOTICED_WITHIN = 15.01
"""Seconds after which the engine has read its clock again, and a rounding error."""


class DelayRules:
    """See the module's docstring. `now` is trio's time, `wall` the engine's clock."""

    def __init__(
        self,
        model: ModelState,
        now: Callable[[], float],
        wall: Callable[[], float],
        fault: Callable[[str], None],
    ) -> None:
        self._model = model
        self._now = now
        self._wall = wall
        self._fault = fault

    def opened(self) -> None:
        """An engine has opened the store, and begins to watch the clock."""
        for run in self._delayed():
            run.due_since = None

    def created(self, event: RunStateChanged, run: ModelRun) -> None:
        """Read the event that creates a run."""
        run.delayed = event.waiting_for == UNTIL_TIME
        if run.delayed and run.not_before is None:
            self._fault(f"{event}: it waits for its time, but has none")

    def changed(self, event: RunChanged, run: ModelRun) -> None:
        """Read an event that can begin or end the delay of a queued run."""
        if event.waiting_for == UNTIL_TIME:
            if run.delayed or run.not_before is None or event.place is None:
                self._fault(f"{event}: only a run with a time, at its admission, begins to wait for it")
            run.delayed = True
        elif run.delayed and (event.place is not None or event.waiting_for == UNTIL_HANDLE_FREE):
            self._check_time(event, run)
            run.delayed = False
        elif event.waiting_for == UNTIL_HANDLE_FREE:
            self._fault(f"{event}: {run} was not delayed")

    def starts(self, event: RunStateChanged, run: ModelRun) -> None:
        """Read the start of a run."""
        if run.delayed:
            self._fault(f"{event}: it waits for its time")
        if run.not_before is not None and run.attempt == 0:
            self._check_time(event, run)

    def look(self) -> None:
        """Read the clock: note which runs are due."""
        wall_now, now = self._wall(), self._now()
        for run in self._model.pending.values():
            if run.not_before is None:
                continue
            if run.not_before > wall_now:
                run.due_since = None
                continue
            run.was_due = True
            if run.due_since is None:
                run.due_since = now

    def end_instant(self) -> None:
        """Check that the engine has noticed each run that is due."""
        self.look()
        now = self._now()
        for run in self._delayed():
            since = run.due_since
            if since is not None and now - since > _NOTICED_WITHIN and self._model.disturbed < since:
                late = f"{now - since:g} s after its time"
                self._fault(f"after {self._model.seq}, {run} is still delayed, {late}")

    def _check_time(self, event: RunStateChanged | RunChanged, run: ModelRun) -> None:
        assert run.not_before is not None, "a delayed run has its time"
        if not run.was_due and self._wall() < run.not_before:
            self._fault(f"{event}: it is too early by {run.not_before - self._wall():g} s")

    def _delayed(self) -> list[ModelRun]:
        return [run for run in self._model.pending.values() if run.delayed]
