"""Records of flows, of their runs and of workers, as clients see them.

`persistence.flows` has the other stored records. Times are Unix seconds. A flow's graph is JSON text here;
only the code that walks it parses it.
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
    """A flow: a name with versions of a graph."""

    id: str
    name: str
    description: str
    created_at: float


class VersionRow(msgspec.Struct, frozen=True, gc=False):
    """One version of a flow. `definition` is the JSON text of its graph; empty in lists."""

    id: str
    flow: str
    version: int
    status: VersionStatus
    created_at: float
    definition: str = ""


class NodeRun(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The record of one attempt of a node, or of a branch of it.

    `number` counts the node runs of the run from 1, `visit` the visits of the node, `attempt` the attempts of
    this visit and branch. `last`: whether this is the last of these attempts.
    """

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
    """A run of a flow: the run, the version that it walks, its shared data, and its current node."""

    run: RunRecord
    flow: FlowRow
    version: VersionRow
    shared: dict[str, Any]
    node: str | None
    last_action: str | None
    steps: int
    request_id: str | None = None


class WorkerState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a worker. `listed_as` is the type and the URL that the compatible task API shows, if they
    differ from `kind` and `url`."""

    id: str
    url: str
    services: tuple[str, ...]
    kind: WorkerKind
    load: float
    last_heartbeat: float
    status: WorkerStatus
    listed_as: tuple[str, str] | None = None


class QueueItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """A queue item as a worker receives it. `traceparent` and `tracestate` are set if the flow is traced.

    `id` identifies the delivery: a second delivery of the same work has another id, so that a late completion
    of the first one is recognized.
    """

    id: str
    run: str
    node: str
    service: str
    key: str
    input: Any
    params: dict[str, Any]
    visible_for: float
    """The visibility timeout: seconds until the work is delivered again, unless completed or extended."""
    traceparent: str | None = None
    tracestate: str | None = None
