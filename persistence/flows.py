"""What is remembered of flows and workers, in the domain's words; a part of the contract in `store.py`.

A flow's graph and what a walk keeps are JSON texts here: only those who walk look into them. Each of these
records is also the memo that writes it: a row with the same key is replaced, but a node run is only added.
The batch that creates a run holds its first `FlowState`. A batch with a node run holds an event, too: one
without any may be written twice, after a commit whose outcome was unknown.
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
"""How large a page of what may be large can be; one entry is always there."""


def page_of(sized: Iterable[tuple[T, int]], most: int | None = None) -> list[T]:
    """The first of these, as far as there is room, but one at least; each comes with its size."""
    page: list[T] = []
    most = PAGE_BYTES if most is None else most
    for entry, size in sized:
        most -= size
        if most < 0 and page:
            break
        page.append(entry)
    return page


class FlowState(msgspec.Struct, frozen=True, gc=False):
    """How far a run has walked a version of a flow. `state` is a JSON text; `numbered` is the number of the
    last node run that it knows of, so those with a higher one came after it."""

    run: str
    version: str
    state: str
    numbered: int


class WorkerRow(msgspec.Struct, frozen=True, gc=False):
    """A worker as it registered. Its heartbeats are not stored. `listed_as` is its `WorkerState`'s."""

    id: str
    url: str
    services: tuple[str, ...]
    kind: WorkerKind
    load: float
    registered_at: float
    listed_as: tuple[str, str] | None = None


class WorkerGone(msgspec.Struct, frozen=True, gc=False):
    """A worker that has not been heard of for long is forgotten."""

    worker: str


FlowMemo = FlowRow | VersionRow | FlowState | NodeRun | WorkerRow | WorkerGone


class StoredFlow(msgspec.Struct, gc=False):
    """How far a run has walked: its state; the signals that it hasn't taken, with the seqs of their events;
    and the node runs that came after the state, in the order of their numbers."""

    state: FlowState
    signals: list[tuple[int, Any]]
    later: list[NodeRun]


class FlowRunQuery(msgspec.Struct, frozen=True):
    """Which runs of flows to list, newest first: a page, and how many there are in all."""

    status: frozenset[Status] | None = None
    version: str | None = None
    limit: int = 20
    offset: int = 0
    within: Within | None = None


class FlowRunPage(msgspec.Struct, gc=False):
    """An answer to a `FlowRunQuery`."""

    runs: list[tuple[RunRecord, FlowState]]
    total: int
