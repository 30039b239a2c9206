"""Bulk operations: cancel or submit again all runs that match a filter.

The runs are those that match at the call. They are handled in batches, so that the changes of a batch share
commits and the number of tasks is limited. The runs of one handle are handled one after the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec
import trio

from ...protocol.bulk import HIGHEST_LIMIT
from ...protocol.errors import Draining, GreenroomError, Invalid, Unavailable
from ...protocol.patterns import Within
from ...protocol.records import BulkResult, Refusal, RunRecord
from ...protocol.run_filter import RunFilter
from ...protocol.states import Status

Act = Callable[[str], Awaitable[bool]]
"""Handles the run with an id. Returns false if it does not belong to the matches after all."""

_PAGE = 1000
_BATCH = 100
_SHOWN_REFUSALS = 10


class Match(msgspec.Struct, frozen=True, gc=False):
    """A run that matches."""

    id: str
    handle: str
    is_queued: bool


class Search:
    """The search of a bulk operation. `find` returns the first runs that match a filter, newest first, up to
    a limit, after a run, and within limits of a token."""

    def __init__(
        self,
        find: Callable[[RunFilter, int, str | None, Within | None], Awaitable[list[RunRecord]]],
        filter: RunFilter,
        within: Within | None,
    ) -> None:
        self._find = find
        self._filter = filter
        self._within = within

    async def count(self) -> BulkResult:
        """The result of a dry run."""
        return BulkResult(len(await self.matches(HIGHEST_LIMIT)))

    async def matches(self, limit: int) -> list[Match]:
        """All runs that match, newest first. Raises `Invalid` if there are more than `limit`."""
        matches: list[Match] = []
        before: str | None = None
        while True:
            most = min(_PAGE, limit + 1 - len(matches))
            page = await self._find(self._filter, most, before, self._within)
            matches += [Match(run.id, run.handle, run.status is Status.QUEUED) for run in page]
            if len(matches) > limit:
                remedy = "" if limit == HIGHEST_LIMIT else f", or raise limit (at most {HIGHEST_LIMIT:,})"
                raise Invalid(f"more than {limit:,} runs match: add filters{remedy}", limit=limit)
            if len(page) < most:
                return matches
            before = page[-1].id


async def for_each(act: Act, *phases: Sequence[Match]) -> BulkResult:
    """Handle all matches, one phase after the other; within it, the runs of one handle in this order. Raises
    `Unavailable` or `Draining`, because of which all further runs would be refused, too."""
    tally = _Tally(act)
    batches = [phase[start : start + _BATCH] for phase in phases for start in range(0, len(phase), _BATCH)]
    for batch in batches:
        by_handle: dict[str, list[str]] = {}
        for match in batch:
            by_handle.setdefault(match.handle, []).append(match.id)
        async with trio.open_nursery() as nursery:
            for ids in by_handle.values():
                nursery.start_soon(tally.handle, ids)
        if tally.stopped_by is not None:
            raise tally.stopped_by
    return BulkResult(tally.done + tally.refused, tally.done, tally.refused, tuple(tally.refusals))


class _Tally:
    """The counts of one operation."""

    def __init__(self, act: Act) -> None:
        self._act = act
        self.done = self.refused = 0
        self.refusals: list[Refusal] = []
        self.stopped_by: GreenroomError | None = None

    async def handle(self, ids: Sequence[str]) -> None:
        """Handle runs, one after the other."""
        for id in ids:
            try:
                belongs = await self._act(id)
            except (Unavailable, Draining) as error:
                self.stopped_by = error
                return
            except GreenroomError as error:
                self.refused += 1
                if len(self.refusals) < _SHOWN_REFUSALS:
                    self.refusals.append(Refusal(id, error.code, error.message))
            else:
                self.done += belongs
