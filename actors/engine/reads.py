"""Reads of runs and events: from the committed state in memory, then from the store.

`Engine` reads its own state, and a follower of a cluster that of its replica.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar, Unpack

import trio

from ...persistence.store import RunQuery, Store
from ...protocol.codec import JSON
from ...protocol.errors import Invalid, NoActiveRun, NotFound
from ...protocol.events import Event
from ...protocol.fold import Projection
from ...protocol.patterns import Within
from ...protocol.records import RunRecord, Snapshot
from ...protocol.run_filter import RunFilter, RunFilterKeywords, is_long_before, run_filter
from ...protocol.states import Status
from ...protocol.validation import check_page, check_seq, check_text
from ...protocol.values import shown

T = TypeVar("T")

_PAGE_BYTES = 1 << 22
_PORTION = 1000
"""Number of runs that one read of a search reads."""
_MOST_PORTIONS = 1000
"""Number of reads of one search."""
_READ_BATCH = 100
"""Number of events per read; each may be as large as the largest value."""


class Reads(ABC):
    """See the module's docstring."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @abstractmethod
    async def look(self, read: Callable[[Projection], T]) -> T:
        """Read committed state; `read` must neither keep nor change what it receives."""

    @abstractmethod
    def check_open(self) -> None:
        """Raise `Unavailable` if nothing is read any more."""

    async def snapshot(self) -> Snapshot:
        """The state that clients follow, as of one seq."""
        return await self.look(lambda committed: committed.snapshot())

    async def get_run(self, run_id: str) -> RunRecord:
        """A run by its id, also after its end; or the active run of a handle."""
        check_text("run_id", run_id)
        run = await self.look(lambda committed: _run_of(committed, run_id))
        run = run or await self._store.run(run_id)
        if run is not None:
            return run
        delayed = await self._delayed_run_error(run_id)
        if delayed is not None:
            raise delayed
        for last in await self._store.runs(RunQuery(handle=run_id, limit=1)):
            raise NoActiveRun(
                f"handle {shown(run_id)} has no active run; its last one, {last.id}, is {last.status}"
            )
        raise NotFound(
            f"run {shown(run_id)} not found: no run has this id, and no handle of this name has a run",
            value=run_id,
        )

    async def _delayed_run_error(self, handle: str) -> NoActiveRun | None:
        """The error for a handle without an active run that names its newest delayed run, if it has one: a
        command for the handle does not reach that run."""
        queued = frozenset({Status.QUEUED})
        for run in await self._store.runs(RunQuery(handle=handle, status=queued, limit=1)):
            if run.delayed:
                return NoActiveRun(
                    f"handle {shown(handle)} has no active run; its run {run.id} is delayed: use the id of "
                    "the run instead of the handle"
                )
        return None

    async def list_runs(
        self,
        *,
        limit: int = 100,
        before: str | None = None,
        within: Within | None = None,
        **filter: Unpack[RunFilterKeywords],
    ) -> list[RunRecord]:
        """Runs that match all filters (`handle`, `lane`, `job`, `flow`, `status`, `tags`, `since`, `until`,
        `error`), newest first. For the next page, `before` is the id of the last run; it is compared with
        the ids, and this run may be deleted by then. `within` is for the
        gateway.

        A run must have all `tags`. `since` (inclusive) and `until` (exclusive) are Unix seconds or aware
        datetimes, for the time of its creation. `error` is a part of the text of its error, where case
        matters. `flow` is the name of a flow. Raises `Invalid` if one million runs were read before the page
        was full.
        """
        found = run_filter("list_runs", filter)
        if before is not None:
            check_text("before", before)
        check_page(limit)
        return await self._search(found, limit, before, within)

    async def _search(
        self, filter: RunFilter, limit: int, before: str | None = None, within: Within | None = None
    ) -> list[RunRecord]:
        """The first runs that match, newest first. The runs are read in portions, so that a long search holds
        up neither commits nor other reads."""
        self.check_open()
        given = {name: getattr(filter, name) for name in RunFilter.__struct_fields__}
        runs: list[RunRecord] = []
        for _ in range(_MOST_PORTIONS):
            query = RunQuery(**given, limit=limit - len(runs), before=before, within=within)
            found = await self._store.search(query, _PORTION)
            runs += found.runs
            before = found.reached
            if before is None or (filter.since is not None and is_long_before(before, filter.since)):
                return runs
            await trio.lowlevel.checkpoint()
            self.check_open()
        these = f"list the {len(runs)} runs with limit={len(runs)}, and " if runs else ""
        raise Invalid(
            f"the filter matches {len(runs)} of the {_MOST_PORTIONS * _PORTION:,} runs that were read: add "
            f"since, status, tags, handle or lane; or {these}continue with before={shown(before)}",
            before=before,
            found=len(runs),
        )

    async def history(
        self, run_id: str, *, after: int = 0, before: int | None = None, limit: int | None = None
    ) -> list[Event]:
        """The stored events of a run, or of a handle's active run, in order: all of them, or a page of at
        most `limit`. For the next page, `after` is the `seq` of the last one.

        With `before`, the last events before that `seq`: pages from the end of the history to its beginning.
        """
        _check_history(after, before)
        if limit is not None:
            check_page(limit)
        run = await self.get_run(run_id)
        return await self._store.history(run.id, after, limit, before=before)

    async def history_page(
        self, run_id: str, after: int, limit: int, before: int | None = None
    ) -> tuple[list[Event], int | None]:
        """A page of at most `limit` events and some megabytes, and the `after` of the next page, or the
        `before` of the preceding one, if there is one; for the gateway."""
        _check_history(after, before)
        check_page(limit)
        run_id = (await self.get_run(run_id)).id
        events: list[Event] = []
        end, size = after if before is None else before, 0
        while len(events) < limit and size < _PAGE_BYTES:
            portion = min(_READ_BATCH, limit - len(events))
            found = await self._portion(run_id, after, before, end, portion)
            events = events + found if before is None else found + events
            if len(found) < portion:
                return events, None
            end = events[-1].seq if before is None else events[0].seq
            size += sum(len(JSON.encode(event)) for event in found)
        return events, end if await self._portion(run_id, after, before, end, 1) else None

    async def _portion(self, run_id: str, after: int, before: int | None, end: int, most: int) -> list[Event]:
        """The events of a page beyond its `end`, in the direction in which the page is read."""
        if before is None:
            return await self._store.history(run_id, end, most)
        return await self._store.history(run_id, after, most, before=end)


def _check_history(after: int, before: int | None) -> None:
    check_seq("after", after)
    if before is not None:
        check_seq("before", before)


def _run_of(committed: Projection, run_or_handle: str) -> RunRecord | None:
    """The run of this id, or the active run of this handle, if it is in memory."""
    run = committed.runs.get(run_or_handle)
    if run is None:
        active = committed.active_run(run_or_handle)
        run = None if active is None else committed.runs.get(active)
    return run
