"""What is remembered of flows and workers, in the domain's words; a part of the contract in `store.py`.

A flow's graph and what a walk keeps are JSON texts here: only those who walk look into them. Each of these
records is also the memo that writes it: a row with the same key is replaced, but a node run is only added.
The batch that creates a run holds its first `FlowState`. A batch with a node run holds an event, too: one
without any may be written twice, after a commit whose outcome was unknown.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..protocol.records import RunRecord
from ..protocol.states import Status

VersionStatus = Literal["draft", "published"]
NodeStatus = Literal["ok", "error", "canceled", "timeout"]
WorkerKind = Literal["http", "queue"]


class FlowRow(msgspec.Struct, frozen=True, gc=False):
    """A flow: a name under which versions of a graph are kept."""

    id: str
    name: str
    description: str
    created_at: float


class VersionRow(msgspec.Struct, frozen=True, gc=False):
    """One version of a flow. `definition` is the JSON text of its graph; empty where only the others are
    asked for."""

    id: str
    flow: str
    version: int
    status: VersionStatus
    created_at: float
    definition: str = ""


class FlowState(msgspec.Struct, frozen=True, gc=False):
    """How far a run has walked a version of a flow. `state` is a JSON text; `numbered` is the number of the
    last node run that it knows of, so those with a higher one came after it."""

    run: str
    version: str
    state: str
    numbered: int


class NodeRun(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One try of a node, or of a branch of it. `number` counts those of the run, from 1; `visit` how often
    the walk has come to the node; `attempt` the tries of this visit and branch, of which this is the `last`
    or not."""

    run: str
    number: int
    node: str
    visit: int
    attempt: int
    branch: str | None = None
    status: NodeStatus
    prep: Any = None
    input: Any = None
    output: Any = None
    error: str | None = None
    action: str | None = None
    worker: str | None = None
    worker_url: str | None = None
    started_at: float
    finished_at: float
    last: bool = True


class WorkerRow(msgspec.Struct, frozen=True, gc=False):
    """A worker as it registered. Its heartbeats are not stored."""

    id: str
    url: str
    services: tuple[str, ...]
    kind: WorkerKind
    load: float
    registered_at: float


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


class FlowRunPage(msgspec.Struct, gc=False):
    """An answer to a `FlowRunQuery`."""

    runs: list[tuple[RunRecord, FlowState]]
    total: int
