"""Flows, their runs, and workers, as anyone may see them; what else is stored of them says
`persistence.flows`.

Times are Unix seconds. A flow's graph is a JSON text here: only those who walk it look into it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..records import RunRecord

VersionStatus = Literal["draft", "published"]
NodeStatus = Literal["ok", "error", "cancelled", "timeout"]
WorkerKind = Literal["http", "queue"]
WorkerStatus = Literal["online", "offline"]


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


class FlowTask(msgspec.Struct, frozen=True):
    """A run of a flow: the run, which version it walks, what its nodes share, and where it is."""

    run: RunRecord
    flow: FlowRow
    version: VersionRow
    shared: dict[str, Any]
    node: str | None
    last_action: str | None
    steps: int
    request_id: str | None = None


class WorkerState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker, as it stands. `last_heartbeat` is in Unix seconds. `listed_as` is the type and the URL under
    which clients of tasks know it, if these are others than `kind` and `url`."""

    id: str
    url: str
    services: tuple[str, ...]
    kind: WorkerKind
    load: float
    last_heartbeat: float
    status: WorkerStatus
    listed_as: tuple[str, str] | None = None


class QueueItem(msgspec.Struct, frozen=True):
    """A piece of work as a worker takes it from the queue. `id` is that of this delivery: if the work is
    offered once more, it gets another one, so that what the first taker says about it is known as late."""

    id: str
    run: str
    node: str
    service: str
    key: str
    input: Any
    params: dict[str, Any]
    visible_for: float
    """Seconds until it is taken away again, unless it is completed or extended."""
