"""Trials: find the run whose body crashes the process.

A body that crashes the whole process would do so again after each restart, and end all other bodies with it.
So the engine counts, for each run, the deaths of the process while the run had a body; after three the run
ends (`run/restore.py`). Until then such runs are *suspects*. Only one suspect executes at a time; the next
one follows when it has executed for long enough, waits, or ends. No other suspect has a body while a suspect
with two deaths has one, waits included. So the next death is counted for the suspect on trial, and for other
suspects only if they had not been tried at all. All other runs start as usual.

A body that waits without its slot is a suspect, too: it can have threads or another task. After the first
death it lets other suspects execute while it waits, because it could wait for a long time, or for a child
that is a suspect. A run that waits without a body (a paused flow, a retry, a run recovered after a restart)
is not blamed.

Belongs to the supervisor; plain data without messages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...persistence.store import Deaths, StoredRun
from ...protocol.states import Status

MOST_DEATHS = 3
"""The number of deaths after which the run ends."""

_TRIAL = 30.0
"""Seconds for which a suspect must have a body before it is trusted again."""

_ALL_TRIALS = 600.0
"""Seconds for the trials of all suspects together; with many suspects, each trial is shorter."""

_REPEAT_FACTOR = 10
"""The factor by which the trial of a suspect with more than one death is longer."""


def deaths_after_restart(pending: Sequence[StoredRun]) -> dict[str, int]:
    """The number of deaths of each run that had a body when the process died.

    This death counts for the runs that had not been tried since the last one; if all had, for all.
    """
    alive = [run for run in pending if _had_body(run)]
    untried = [run for run in alive if not run.tried]
    blamed = {run.record.id for run in untried or alive}
    return {run.record.id: run.deaths + (run.record.id in blamed) for run in alive}


def _had_body(run: StoredRun) -> bool:
    """Whether the run had a body. A run that was being cancelled does not count: it ends with the restart."""
    record = run.record
    if record.status is Status.SUSPENDED:
        return record.waiting_for not in ("slot", "retry") and not run.terms.bodiless
    return record.status is Status.RUNNING


def suspects_after_restart(pending: Sequence[StoredRun]) -> dict[str, int]:
    """All suspects with their deaths, including those that waited for their trial when the process died."""
    waited = {run.record.id: run.deaths for run in pending if run.deaths and not run.tried}
    return waited | deaths_after_restart(pending)


class Trials:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._deaths: dict[str, int] = {}
        self._lived: dict[str, float] = {}  # seconds with a body, without its current one
        self._since: dict[str, float] = {}  # when each suspect with a body got it
        self._tried: str | None = None  # the suspect on trial: the others wait
        self._aside: dict[str, None] = {}  # the suspects that were next for a slot, but have to wait
        self._trial: float  # seconds; set by `begin`

    def __len__(self) -> int:
        return len(self._deaths)

    def begin(self, deaths: dict[str, int]) -> None:
        """Set the suspects after a restart."""
        self._deaths = dict(deaths)
        self._trial = _ALL_TRIALS / max(_ALL_TRIALS / _TRIAL, sum(map(_weight, deaths.values())))

    def has_to_wait(self, run: str) -> bool:
        """Whether a run must not execute now."""
        if run not in self._deaths:
            return False
        alone = self._deaths[run] > 1 and self._since.keys() - {run}
        return self._tried not in (None, run) or bool(alone)

    def set_aside(self, run: str) -> None:
        """A suspect was next for a slot but has to wait: other runs of its lane can start first."""
        self._aside[run] = None

    def leave(self, run: str) -> None:
        """A suspect no longer requests a slot."""
        self._aside.pop(run, None)

    def take_back(self) -> list[str]:
        """Take the suspects that were set aside and no longer have to wait."""
        free = [run for run in self._aside if not self.has_to_wait(run)] if self._aside else []
        for run in free:
            del self._aside[run]
        return free

    def granted(self, run: str, now: float) -> None:
        """A run has a slot."""
        if run in self._deaths:
            self._tried = run
            self._since.setdefault(run, now)

    def waits(self, run: str) -> None:
        """A run released its slot while its body waits."""
        if self._tried == run and self._deaths[run] < 2:
            self._tried = None

    def lost_body(self, run: str, now: float) -> None:
        """A run has no body now."""
        if self._tried == run:
            self._tried = None
        since = self._since.pop(run, None)
        if since is not None:
            self._lived[run] = self._lived.get(run, 0.0) + now - since

    def reset(self) -> None:
        """All slots are void. Suspects whose bodies still execute remain on trial."""
        self._tried = None

    def forget(self, run: str) -> None:
        """The run has ended."""
        if self._tried == run:
            self._tried = None
        self._since.pop(run, None)
        self._aside.pop(run, None)
        self._lived.pop(run, None)
        self._deaths.pop(run, None)

    def deadline(self) -> float:
        """When the next suspect has been tried for long enough."""
        return min((self._until(run) for run in self._since), default=math.inf)

    def take_tried(self, now: float) -> list[Deaths]:
        """Take the suspects that have been tried for long enough; returns what to store about them."""
        tried = [run for run in self._since if self._until(run) <= now]
        kept = [Deaths(run, self._deaths[run], tried=True) for run in tried]
        for run in tried:
            self.forget(run)
        return kept

    def _until(self, run: str) -> float:
        trial = self._trial * _weight(self._deaths[run])
        return self._since[run] + trial - self._lived.get(run, 0.0)


def _weight(deaths: int) -> int:
    return _REPEAT_FACTOR if deaths > 1 else 1
