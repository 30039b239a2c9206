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

Act = Callable[[str], Awaitable[object]]
"""Handles the run with an id."""
Find = Callable[[RunFilter, int, str | None, Within | None], Awaitable[list[RunRecord]]]
"""Returns the first runs that match a filter, newest first, up to a limit, after a run, and within the limits
of a token."""

_PAGE = 1000
_BATCH = 100
_SHOWN_REFUSALS = 10


class Match(msgspec.Struct, frozen=True, gc=False):
    """A run that matches."""

    id: str
    handle: str
    is_queued: bool


class Search:
    """The search of a bulk operation for the runs that match. `left_out` returns those of some runs that the
    operation must leave out."""

    def __init__(
        self,
        find: Find,
        filter: RunFilter,
        within: Within | None,
        left_out: Callable[[Sequence[str]], Awaitable[set[str]]] | None = None,
    ) -> None:
        self._find = find
        self._filter = filter
        self._within = within
        self._left_out = left_out

    async def count(self) -> BulkResult:
        """The result of a dry run."""
        return BulkResult(len(await self.matches(HIGHEST_LIMIT)))

    async def matches(self, limit: int) -> list[Match]:
        """All runs that match, newest first. Raises `Invalid` if there are more than `limit`."""
        matches: list[Match] = []
        before: str | None = None
        while True:
            page = await self._find(self._filter, _PAGE, before, self._within)
            left_out: set[str] = set()
            if page and self._left_out is not None:
                left_out = await self._left_out([run.id for run in page])
            matches += [
                Match(run.id, run.handle, run.status is Status.QUEUED)
                for run in page
                if run.id not in left_out
            ]
            if len(matches) > limit:
                remedy = "" if limit == HIGHEST_LIMIT else f", or raise limit (at most {HIGHEST_LIMIT:,})"
                raise Invalid(f"more than {limit:,} runs match: add filters{remedy}", limit=limit)
            if len(page) < _PAGE:
                return matches
            before = page[-1].id


async def for_each(act: Act, *phases: Sequence[Match]) -> BulkResult:
    """Handle all matches, one phase after the other; within it, the runs of one handle in this order. Raises
    `Unavailable` or `Draining`, because of which all further runs would be refused, too; it says for how many
    runs the operation was carried out."""
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
            raise tally.stopped(sum(map(len, phases)))
    return BulkResult(tally.done + tally.refused, tally.done, tally.refused, tuple(tally.refusals))


class _Tally:
    """The counts of one operation."""

    def __init__(self, act: Act) -> None:
        self._act = act
        self.done = self.refused = 0
        self.refusals: list[Refusal] = []
        self.stopped_by: GreenroomError | None = None

    def stopped(self, matched: int) -> GreenroomError:
        """The error if the operation cannot be completed."""
        assert self.stopped_by is not None, "it was stopped"
        if not self.done:
            return self.stopped_by
        state = "is draining" if isinstance(self.stopped_by, Draining) else "became unavailable"
        return type(self.stopped_by)(
            f"engine {state} after {self.done:,} of {matched:,} runs: repeat the command later, with the "
            "same request_id if it has one",
            done=self.done,
            matched=matched,
        )

    async def handle(self, ids: Sequence[str]) -> None:
        """Handle runs, one after the other."""
        for id in ids:
            try:
                await self._act(id)
            except (Unavailable, Draining) as error:
                self.stopped_by = error
                return
            except GreenroomError as error:
                self.refused += 1
                if len(self.refusals) < _SHOWN_REFUSALS:
                    self.refusals.append(Refusal(id, error.code, error.message))
            else:
                self.done += 1
