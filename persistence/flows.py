"""The stored records of flows and workers; a part of the contract in `store.py`.

A flow's graph and the state of a walk are JSON text here; only the code that walks parses them. Each of these
records is also the memo that writes it: it replaces a row with the same key, except a node run, which is only
added. The batch that creates a run contains its first `FlowState`. A batch with a node run must contain an
event: after a commit with an unknown outcome, a batch without events can be written twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from ..protocol.flow.records import FlowRow, NodeRun, VersionRow, WorkerKind
from ..protocol.patterns import Within
from ..protocol.records import RunRecord
from ..protocol.states import Status

T = TypeVar("T")

PAGE_BYTES = 16 * 2**20
"""The maximum size of a page of large entries, in bytes; a page always has at least one entry."""


def page_of(sized: Iterable[tuple[T, int]], most: int | None = None) -> list[T]:
    """Return the first entries, given with their sizes, that fit in a page; at least one."""
    page: list[T] = []
    most = PAGE_BYTES if most is None else most
    for entry, size in sized:
        most -= size
        if most < 0 and page:
            break
        page.append(entry)
    return page


class FlowState(msgspec.Struct, frozen=True, gc=False):
    """The state of a run's walk through a version of a flow, as JSON text. `numbered` is the number of the
    last node run included in it; node runs with a higher number are later."""

    run: str
    version: str
    state: str
    numbered: int


class WorkerRow(msgspec.Struct, frozen=True, gc=False):
    """A registered worker. Its heartbeats are not stored. `listed_as` as in `WorkerState`."""

    id: str
    url: str
    services: tuple[str, ...]
    kind: WorkerKind
    load: float
    registered_at: float
    listed_as: tuple[str, str] | None = None


class WorkerGone(msgspec.Struct, frozen=True, gc=False):
    """A worker without heartbeats for a long time is removed."""

    worker: str


FlowMemo = FlowRow | VersionRow | FlowState | NodeRun | WorkerRow | WorkerGone


class StoredFlow(msgspec.Struct, gc=False):
    """The stored walk of a run: its state, the signals that it has not taken, with the seqs of their events,
    and the node runs after the state, in the order of their numbers."""

    state: FlowState
    signals: list[tuple[int, Any]]
    later: list[NodeRun]


class FlowRunQuery(msgspec.Struct, frozen=True):
    """A query for a page of runs of flows, newest first, and for their total number."""

    status: frozenset[Status] | None = None
    version: str | None = None
    limit: int = 20
    offset: int = 0
    within: Within | None = None


class FlowRunPage(msgspec.Struct, gc=False):
    """The result of a `FlowRunQuery`."""

    runs: list[tuple[RunRecord, FlowState]]
    total: int
