"""The `memory:` store: dictionaries with a store's manners, for tests, simulation and throw-away engines.

It uses no threads and never waits. It keeps everything until it is closed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from ..protocol.events import Event, InterruptClosed, RunEvent, RunProgress
from ..protocol.records import RunRecord
from .store import Batch, Checkpoint, RunQuery


class MemoryStore:
    """A store that lives as long as this object."""

    def __init__(self) -> None:
        self._epoch: str | None = None
        self._runs: dict[str, RunRecord] = {}
        self._ids: list[str] = []  # sorted; ids are drawn in order of time, so new ones go to the end
        self._events: dict[str, list[Event]] = {}
        self._checkpoints: dict[tuple[str, str], Checkpoint] = {}
        self._closed_interrupts: dict[str, InterruptClosed] = {}

    async def open(self, epoch: str) -> str:
        self._epoch = self._epoch or epoch
        return self._epoch

    async def commit(self, batch: Batch) -> None:
        for id, write in batch.runs.items():
            if id not in self._runs:
                self._ids.insert(bisect_left(self._ids, id), id)
            self._runs[id] = write.record
        for event in batch.events:
            if isinstance(event, RunEvent) and type(event) is not RunProgress:
                self._events.setdefault(event.run, []).append(event)
                if type(event) is InterruptClosed:
                    self._closed_interrupts[event.interrupt] = event
        for memo in batch.memos:
            if type(memo) is Checkpoint:
                self._checkpoints[memo.handle, memo.job] = memo

    async def run(self, id: str) -> RunRecord | None:
        return self._runs.get(id)

    async def runs(self, query: RunQuery) -> list[RunRecord]:
        found: list[RunRecord] = []
        for run in self._newest_first(query.before):
            if len(found) == query.limit:
                break
            if (
                query.handle in (None, run.handle)
                and query.lane in (None, run.lane)
                and (query.status is None or run.status in query.status)
            ):
                found.append(run)
        return found

    async def history(self, run: str) -> list[Event]:
        return list(self._events.get(run, ()))

    async def checkpoint(self, handle: str, job: str) -> Checkpoint | None:
        return self._checkpoints.get((handle, job))

    async def closed_interrupt(self, id: str) -> InterruptClosed | None:
        return self._closed_interrupts.get(id)

    async def close(self) -> None:
        pass

    def _newest_first(self, before: str | None) -> Iterator[RunRecord]:
        end = len(self._ids) if before is None else bisect_left(self._ids, before)
        for position in range(end - 1, -1, -1):
            yield self._runs[self._ids[position]]
