"""Runs that had a body when the process died, until they have shown that it was not their doing.

A body that takes the whole process with it would do so again after each restart, with all whose bodies live
beside it. So deaths are counted for each run, and after three of them the run ends (`run/restore.py`).
Until then such runs are *suspects*: one at a time executes, and when it has done so for long enough, or
waits or ends, the next one does. A suspect with two deaths is alone among them for as long as its body lives,
waits included. So the next death counts for the one that was being tried, and for others only where they had
not been tried at all. Everything else starts as ever.

A body that waits without its slot is as suspect as one that executes: it may have threads, or another task.
So its run is blamed like the others. After a first death it makes room for others while it waits, because it
may wait for a child that is a suspect, too, or for long. A run that waits without a body (a flow that pauses,
a retry, whatever a restart has brought back) is blamed for nothing.

Kept by the supervisor; plain data without messages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...persistence.store import Deaths, StoredRun
from ...protocol.states import Status

MOST_DEATHS = 3
"""After so many the run ends."""

_TRIAL = 30.0
"""Seconds for which a suspect has its body until it is trusted."""

_ALL_TRIALS = 600.0
"""Seconds in which all of them are tried, if they are many."""

_AGAIN = 10
"""How much longer the trial is of one that has died more than once."""


def deaths_after_restart(pending: Sequence[StoredRun]) -> dict[str, int]:
    """How many deaths count for each run that had a body when the process died. This one counts for those
    that had not been tried since the last one; if all had, for all."""
    alive = [run for run in pending if _had_body(run)]
    untried = [run for run in alive if not run.tried]
    blamed = {run.record.id for run in untried or alive}
    return {run.record.id: run.deaths + (run.record.id in blamed) for run in alive}


def _had_body(run: StoredRun) -> bool:
    """Whether a body of it lived: not of one that was being cancelled, which ends with the restart."""
    record = run.record
    if record.status is Status.SUSPENDED:
        return record.waiting_for not in ("slot", "retry") and not run.terms.bodiless
    return record.status is Status.RUNNING


def suspects_after_restart(pending: Sequence[StoredRun]) -> dict[str, int]:
    """All suspects with their deaths: also those who had waited for their trials when the process died."""
    waited = {run.record.id: run.deaths for run in pending if run.deaths and not run.tried}
    return waited | deaths_after_restart(pending)


class Trials:
    """See the module's text."""

    def __init__(self) -> None:
        self._deaths: dict[str, int] = {}
        self._lived: dict[str, float] = {}  # seconds, up to its last body
        self._since: dict[str, float] = {}  # when those got their bodies that have one
        self._tried: str | None = None  # the one that has its turn: the others wait
        self._aside: dict[str, None] = {}  # those that were to get slots meanwhile
        self._trial: float  # seconds; since `begin`

    def __len__(self) -> int:
        return len(self._deaths)

    def begin(self, deaths: dict[str, int]) -> None:
        """After a restart: these are suspects."""
        self._deaths = dict(deaths)
        self._trial = _ALL_TRIALS / max(_ALL_TRIALS / _TRIAL, sum(map(_weight, deaths.values())))

    def has_to_wait(self, run: str) -> bool:
        """Whether a run must not execute now."""
        if run not in self._deaths:
            return False
        alone = self._deaths[run] > 1 and self._since.keys() - {run}
        return self._tried not in (None, run) or bool(alone)

    def set_aside(self, run: str) -> None:
        """It was to get a slot, and has to wait: others of its lane may go before it."""
        self._aside[run] = None

    def leave(self, run: str) -> None:
        """It is to get no slot any more, or not now."""
        self._aside.pop(run, None)

    def take_back(self) -> list[str]:
        """Those that were set aside and may have their slots now, or the first of them."""
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
        """A run gave its slot back, and its body waits."""
        if self._tried == run and self._deaths[run] < 2:
            self._tried = None

    def lost_body(self, run: str, now: float) -> None:
        """A run has no body any more, or not for some time."""
        if self._tried == run:
            self._tried = None
        since = self._since.pop(run, None)
        if since is not None:
            self._lived[run] = self._lived.get(run, 0.0) + now - since

    def reset(self) -> None:
        """Nobody has a slot any more; whose body lives on without one is still looked at."""
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
        """When the next one has been tried for long enough."""
        return min((self._until(run) for run in self._since), default=math.inf)

    def take_tried(self, now: float) -> list[Deaths]:
        """Those that have been tried for long enough are suspects no longer: what the store is to keep."""
        tried = [run for run in self._since if self._until(run) <= now]
        kept = [Deaths(run, self._deaths[run], tried=True) for run in tried]
        for run in tried:
            self.forget(run)
        return kept

    def _until(self, run: str) -> float:
        trial = self._trial * _weight(self._deaths[run])
        return self._since[run] + trial - self._lived.get(run, 0.0)


def _weight(deaths: int) -> int:
    return _AGAIN if deaths > 1 else 1
