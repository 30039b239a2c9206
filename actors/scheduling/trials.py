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

An executor process can die while the engine lives. The first death of a run in this way changes nothing: only
the runs that executed in that process are affected. With the second one, the run becomes a suspect. Until it
has been tried, no other run with two such deaths has a body in the same process, so the next death is counted
for only one of them. A run that has been tried executes together with suspects only if a suspect had to wait
ten minutes for another process.

Belongs to the supervisor; plain data without messages.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from ...persistence.store import Deaths, StoredRun
from .stored_bodies import had_body

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

    This death counts for the runs that had not been tried since the last one; if all had, for all. It does
    not count for runs whose bodies executed in another process, which cannot have caused it.
    """
    alive = [run for run in pending if had_body(run) and run.record.executor is None]
    untried = [run for run in alive if not run.tried]
    blamed = {run.record.id for run in untried or alive}
    return {run.record.id: run.deaths + (run.record.id in blamed) for run in alive}


def suspects_after_restart(pending: Sequence[StoredRun]) -> dict[str, int]:
    """All suspects with their deaths, including those that waited for their trial when the process died."""
    waited = {run.record.id: run.deaths for run in pending if run.deaths and not run.tried}
    return waited | deaths_after_restart(pending)


class Trials:
    """See the module's docstring."""

    def __init__(self) -> None:
        self.has_suspects = False
        """Whether any run is a suspect, has more than one death, or was set aside. Without, nothing is known
        about any run."""
        self._deaths: dict[str, int] = {}
        self._lived: dict[str, float] = {}  # seconds with a body, without its current one
        self._since: dict[str, float] = {}  # when each suspect with a body got it
        self._tried: str | None = None  # the suspect on trial: the others wait
        self._aside: dict[str, None] = {}  # the suspects that were next for a slot, but have to wait
        self._trial = _TRIAL  # seconds
        self._often: set[str] = set()  # the pending runs with more than one death, tried or not
        self._at: dict[str, str] = {}  # of these, where each one has its body, if not in the engine's process
        self._delayed: dict[str, float] = {}  # suspects that wait for another executor, and until when
        self._late: set[str] = set()  # those that have waited that long

    def __len__(self) -> int:
        return len(self._deaths)

    def begin(self, deaths: dict[str, int], tried: Iterable[str] = ()) -> None:
        """Set the suspects after a restart, and the runs with more than one death that have been tried."""
        self._deaths = dict(deaths)
        self._often = {run for run, count in deaths.items() if count > 1} | set(tried)
        self._set_trial()

    def suspect(self, run: str, deaths: int) -> None:
        """An executor process died while it executed the run: its next body is tried for the whole time."""
        if deaths > 1:
            self._deaths[run] = deaths
            self._lived.pop(run, None)
            self._since.pop(run, None)
            self._often.add(run)
            self._set_trial()

    def _look(self) -> None:
        self.has_suspects = bool(self._deaths or self._often or self._aside)

    def _set_trial(self) -> None:
        self._look()
        self._trial = _ALL_TRIALS / max(_ALL_TRIALS / _TRIAL, sum(map(_weight, self._deaths.values())))

    def concerns(self, run: str) -> bool:
        """Whether a run is a suspect, or has more than one death."""
        return run in self._deaths or run in self._often

    def has_to_wait(self, run: str) -> bool:
        """Whether a run must not execute now."""
        if run not in self._deaths:
            return False
        alone = self._deaths[run] > 1 and self._since.keys() - {run}
        return self._tried not in (None, run) or bool(alone)

    def avoid(self, run: str) -> Collection[str]:
        """The executors that must not execute a run now."""
        if run not in self._often or run in self._at:
            return ()
        all_count = run in self._deaths and run not in self._late
        return {executor for other, executor in self._at.items() if all_count or other in self._deaths}

    def set_aside(self, run: str) -> None:
        """A suspect was next for a slot but has to wait: other runs of its lane can start first."""
        self._aside[run] = None

    def delay(self, run: str, now: float) -> None:
        """A run was next for a slot, but has to avoid all executors that have room for it."""
        self._aside[run] = None
        if run in self._deaths and run not in self._late:
            self._delayed.setdefault(run, now + _ALL_TRIALS)

    def leave(self, run: str) -> None:
        """A suspect no longer requests a slot."""
        self._aside.pop(run, None)

    def take_back(self) -> list[str]:
        """Take the suspects that were set aside and no longer have to wait."""
        free = [run for run in self._aside if not self.has_to_wait(run)] if self._aside else []
        for run in free:
            del self._aside[run]
        return free

    def granted(self, run: str, now: float, executor: str | None = None) -> None:
        """A run has a slot, and its body is at this executor."""
        if run in self._deaths:
            self._tried = run
            self._since.setdefault(run, now)
            self._delayed.pop(run, None)
            self._late.discard(run)
        if executor is not None and run in self._often:
            self._at[run] = executor

    def waits(self, run: str) -> None:
        """A run released its slot while its body waits."""
        if self._tried == run and self._deaths[run] < 2:
            self._tried = None

    def lost_body(self, run: str, now: float) -> None:
        """A run has no body now."""
        if self._tried == run:
            self._tried = None
        self._at.pop(run, None)
        since = self._since.pop(run, None)
        if since is not None:
            self._lived[run] = self._lived.get(run, 0.0) + now - since

    def reset(self) -> None:
        """All slots are void. Suspects whose bodies still execute remain on trial."""
        self._tried = None

    def forget(self, run: str) -> None:
        """The run has ended."""
        self._trust(run)
        self._aside.pop(run, None)
        self._often.discard(run)
        self._at.pop(run, None)
        self._look()

    def _trust(self, run: str) -> None:
        if self._tried == run:
            self._tried = None
        self._since.pop(run, None)
        self._lived.pop(run, None)
        self._deaths.pop(run, None)
        self._delayed.pop(run, None)
        self._late.discard(run)

    def deadline(self) -> float:
        """When the next suspect has been tried for long enough, or has waited too long for its trial."""
        if not self.has_suspects:
            return math.inf
        tried = min((self._until(run) for run in self._since), default=math.inf)
        return min(tried, min(self._delayed.values(), default=math.inf))

    def take_tried(self, now: float) -> list[Deaths]:
        """Take the suspects that have been tried for long enough; returns what to store about them."""
        late = [run for run, until in self._delayed.items() if until <= now]
        for run in late:
            del self._delayed[run]
            self._late.add(run)
        tried = [run for run in self._since if self._until(run) <= now]
        kept = [Deaths(run, self._deaths[run], tried=True) for run in tried]
        for run in tried:
            self._trust(run)
        return kept

    def _until(self, run: str) -> float:
        trial = self._trial * _weight(self._deaths[run])
        return self._since[run] + trial - self._lived.get(run, 0.0)


def _weight(deaths: int) -> int:
    return _REPEAT_FACTOR if deaths > 1 else 1
