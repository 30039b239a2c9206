"""The events that a subscriber receives: its filter, narrowed to the limits of its token."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from msgspec.structs import asdict

from ...actors.journal.stream import FellBehind
from ...protocol.errors import Invalid
from ...protocol.events import (
    Event,
    ExecutorChanged,
    Filter,
    FlowChanged,
    LeaderChanged,
    NodeChanged,
    NodeWorkerChanged,
    RunStateChanged,
    ScheduleChanged,
    ScheduleFired,
    ScheduleMissed,
    WebhookChanged,
)
from ...protocol.names import FLOW
from ...protocol.patterns import Patterns
from ...protocol.records import RunRecord
from ..auth.scopes import Scope

_OF_MACHINES = NodeWorkerChanged | ExecutorChanged | NodeChanged | LeaderChanged
_OF_SCHEDULES = ScheduleChanged | ScheduleFired | ScheduleMissed
_HIDDEN = _OF_MACHINES | _OF_SCHEDULES | WebhookChanged

JobOf = Callable[[str], str | None]
"""The job of a run that is in the engine's memory."""


def check_filter(filter: Filter | None, most: int) -> None:
    """Refuse a filter with more than `most` names. Raises `Invalid`."""
    if filter is None:
        return
    given = (filter.handles, filter.lanes, filter.runs, filter.types)
    count = sum(len(names) for names in given if names is not None)
    if count > most:
        raise Invalid(f"filter must contain at most {most} handles, lanes, runs and types (got {count})")


class ViewerFilter(Filter, frozen=True):
    """The filter of a subscriber who does not see the receivers of webhooks."""


class ScopedFilter(ViewerFilter, frozen=True):
    """A subscriber's filter, narrowed to the limits of its token. Handles and lanes can be patterns here.

    It excludes workers, executors and nodes, because no handle, lane or job of a token contains them;
    schedules, which such a token lists by a command; and webhooks, which it cannot list.
    """

    jobs: Patterns | None = None
    job_of: JobOf | None = None

    def sees(self, run: RunRecord) -> bool:
        return super().sees(run) and (self.jobs is None or run.job in self.jobs)

    def passes(self, event: Event) -> bool:
        if not super().passes(event) or isinstance(event, _HIDDEN):
            return False
        if self.jobs is None:
            return True
        if type(event) is FlowChanged:
            return FLOW in self.jobs
        run = getattr(event, "run", None)
        if run is None:
            return True
        job = event.job if type(event) is RunStateChanged else None
        if job is None and self.job_of is not None:
            job = self.job_of(run)
        if job is None:  # the subscriber is so far behind that the run was evicted from memory
            raise FellBehind(f"the job of run {run} is no longer in memory")
        return job in self.jobs


class _Everything(frozenset[str]):
    """Contains every name; a filter with it narrows nothing, but applies to snapshots.

    It is equal only to itself, because equal filters share encoded bytes.
    """

    def __contains__(self, name: object) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return other is self

    def __hash__(self) -> int:
        return id(self)


_EVERYTHING: Any = _Everything()


def narrowed(
    filter: Filter | None, scope: Scope | None, job_of: JobOf, *, sees_receivers: bool = False
) -> Filter | None:
    """The filter of a subscriber with a token of this scope. Raises `Forbidden` for handles and lanes in
    `filter` that the token does not permit."""
    if scope is None:
        return filter if sees_receivers else ViewerFilter(**({} if filter is None else asdict(filter)))
    filter = filter or Filter()
    for name in sorted(filter.handles or ()):
        scope.check_handle(name)
    for name in sorted(filter.lanes or ()):
        scope.check_lane(name)
    return ScopedFilter(
        handles=_both(filter.handles, scope.handles),
        lanes=_both(filter.lanes, scope.lanes),
        runs=_EVERYTHING if filter.runs is None else filter.runs,
        types=filter.types,
        jobs=scope.jobs,
        job_of=None if scope.jobs is None else job_of,
    )


def _both(asked: frozenset[str] | None, allowed: Patterns | None) -> Any:
    names: Collection[str] | Patterns | None = allowed if asked is None else asked
    return names
