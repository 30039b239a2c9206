"""Flows and workers in the `memory:` store (`flows.py`)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from ..protocol.flow.records import FlowRow, NodeRun, VersionRow
from ..protocol.records import RunRecord
from .failures import StoreBroken
from .flows import FlowMemo, FlowRunPage, FlowRunQuery, FlowState, WorkerGone, WorkerRow, page_of
from .store import Batch, Stored


class FlowsInMemory:
    """The flows and workers of the store. Signals are not here, but among the messages."""

    def __init__(self) -> None:
        self._flows: dict[str, FlowRow] = {}
        self._versions: dict[str, VersionRow] = {}
        self._states: dict[str, FlowState] = {}
        self._node_runs: dict[str, dict[int, NodeRun]] = {}
        self._workers: dict[str, WorkerRow] = {}

    def check(self, batch: Batch) -> None:
        """Raise `StoreBroken` if a memo of the batch conflicts with the store; nothing is changed."""
        added: set[tuple[str, int]] = set()
        for memo in batch.memos:
            if isinstance(memo, FlowState):
                write = batch.runs.get(memo.run)
                if memo.run not in self._states and (write is None or write.expected is not None):
                    raise StoreBroken(f"run {memo.run} has no flow in the store")
            elif isinstance(memo, NodeRun):
                key = (memo.run, memo.number)
                if key in added or memo.number in self._node_runs.get(memo.run, ()):
                    raise StoreBroken(f"node run {memo.number} of run {memo.run} already exists in the store")
                added.add(key)
        versions = [memo for memo in batch.memos if isinstance(memo, VersionRow)]
        if versions:
            self._check_numbers(versions)

    def _check_numbers(self, added: list[VersionRow]) -> None:
        after = self._versions | {row.id: row for row in added}
        if len({(row.flow, row.version) for row in after.values()}) < len(after):
            raise StoreBroken("two versions of a flow have the same number")

    def remember(self, memo: FlowMemo) -> None:
        """Keep a memo of a batch."""
        if isinstance(memo, FlowState):
            self._states[memo.run] = memo
        elif isinstance(memo, NodeRun):
            self._node_runs.setdefault(memo.run, {})[memo.number] = memo
        elif isinstance(memo, FlowRow):
            self._flows[memo.id] = memo
        elif isinstance(memo, VersionRow):
            self._versions[memo.id] = memo
        elif isinstance(memo, WorkerRow):
            self._workers[memo.id] = memo
        elif isinstance(memo, WorkerGone):
            self._workers.pop(memo.worker, None)

    def load(self, stored: Stored) -> None:
        """Add flows, versions and workers to what an engine reads when it opens the store."""
        stored.flows = sorted(self._flows.values(), key=lambda row: (row.created_at, row.id))
        stored.versions = sorted(
            (replace(row, definition="") for row in self._versions.values()),
            key=lambda row: (row.flow, row.version),
        )
        stored.workers = sorted(self._workers.values(), key=lambda row: (row.registered_at, row.id))

    def version(self, id: str) -> VersionRow | None:
        """Return a version with its definition."""
        return self._versions.get(id)

    def state(self, run: str) -> FlowState | None:
        """Return the state of a run's walk."""
        return self._states.get(run)

    def node_runs(self, run: str, after: int = 0) -> list[NodeRun]:
        """Return the node runs with a number above `after`, in order."""
        rows = self._node_runs.get(run, {})
        return [rows[number] for number in sorted(rows) if number > after]

    def runs(self, newest_first: Iterable[RunRecord], query: FlowRunQuery) -> FlowRunPage:
        """Return the page of the given runs that are of flows and match the query."""
        found = [
            (run, state)
            for run in newest_first
            if (state := self._states.get(run.id)) is not None
            and query.version in (None, state.version)
            and (query.status is None or run.status in query.status)
            and (query.within is None or query.within.of_place(run.handle, run.lane))
        ]
        asked = found[query.offset : query.offset + query.limit]
        sized = (((run, state), len(msgspec.json.encode(run)) + len(state.state)) for run, state in asked)
        return FlowRunPage(page_of(sized), len(found))

    def forget(self, run: str) -> None:
        """Remove the state and the node runs of a run."""
        self._states.pop(run, None)
        self._node_runs.pop(run, None)
