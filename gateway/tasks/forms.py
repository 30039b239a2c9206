"""The response types of the compatible API.

Ids are strings, times are whole Unix seconds, and an absent string is empty, because existing clients parse
them into such types. A field whose name ends in `_json` contains a JSON value as a string.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from ...protocol.errors import Invalid
from ...protocol.flow.records import FlowRow, FlowTask, NodeRun, QueueItem, VersionRow, WorkerState
from ...protocol.states import Status
from ...protocol.values import shown

_One = TypeVar("_One")

STATUSES: dict[Status, str] = {
    Status.QUEUED: "pending",
    Status.RUNNING: "running",
    Status.SUSPENDED: "running",
    Status.CANCELLING: "canceling",
    Status.SUCCEEDED: "completed",
    Status.FAILED: "failed",
    Status.TIMED_OUT: "failed",
    Status.REJECTED: "failed",
    Status.CANCELLED: "canceled",
}
"""The status of a task for each status of a run."""


def statuses(name: str) -> list[Status]:
    """The statuses of runs for a task's status. Raises `Invalid`."""
    found = [status for status, called in STATUSES.items() if called == name]
    if not found:
        known = ", ".join(dict.fromkeys(STATUSES.values()))
        raise Invalid(f"status must be one of {known} (got {shown(name)})", path="status")
    return found


class Worker(msgspec.Struct, frozen=True):
    """A worker and its current status."""

    id: str
    url: str
    services: tuple[str, ...]
    load: int | float
    last_heartbeat: int
    status: str
    type: str

    @classmethod
    def of(cls, worker: WorkerState) -> Worker:
        type, url = worker.listed_as or (worker.kind, worker.url)
        return cls(
            id=worker.id,
            url=url,
            services=worker.services,
            load=int(worker.load) if worker.load.is_integer() else worker.load,
            last_heartbeat=int(worker.last_heartbeat),
            status=worker.status,
            type=type,
        )


class Flow(msgspec.Struct, frozen=True):
    """A flow."""

    id: str
    name: str
    description: str
    created_at: int

    @classmethod
    def of(cls, flow: FlowRow) -> Flow:
        return cls(flow.id, flow.name, flow.description, int(flow.created_at))


class Version(msgspec.Struct, frozen=True):
    """A version of a flow."""

    id: str
    flow_id: str
    version: int
    definition_json: str
    status: str

    @classmethod
    def of(cls, version: VersionRow) -> Version:
        return cls(version.id, version.flow, version.version, version.definition, version.status)


class Task(msgspec.Struct, frozen=True):
    """A run of a flow."""

    id: str
    flow_version_id: str
    flow_id: str
    flow_name: str
    flow_version: int
    status: str
    params_json: str
    shared_json: str
    current_node_key: str
    last_action: str
    step_count: int
    retry_state_json: str
    lease_owner: str
    lease_expiry: int
    request_id: str
    created_at: int
    updated_at: int

    @classmethod
    def of(cls, task: FlowTask) -> Task:
        run = task.run
        return cls(
            id=run.id,
            flow_version_id=task.version.id,
            flow_id=task.flow.id,
            flow_name=task.flow.name,
            flow_version=task.version.version,
            status=STATUSES[run.status],
            params_json=_json(run.params["params"]),
            shared_json=_json(task.shared),
            current_node_key=task.node or "",
            last_action=task.last_action or "",
            step_count=task.steps,
            retry_state_json="{}",  # attempts are node runs, and one engine owns all tasks without leases
            lease_owner="",
            lease_expiry=0,
            request_id=task.request_id or "",
            created_at=int(run.created_at),
            updated_at=int(run.updated_at),
        )


class NodeAttempt(msgspec.Struct, frozen=True):
    """A node run: one attempt of a node, or of one of its branches."""

    id: str
    task_id: str
    node_key: str
    attempt_no: int
    status: str
    sub_status: str
    branch_id: str
    prep_json: str
    exec_input_json: str
    exec_output_json: str
    error_text: str
    action: str
    started_at: int
    finished_at: int
    worker_id: str
    worker_url: str
    log_path: str

    @classmethod
    def of(cls, row: NodeRun) -> NodeAttempt:
        return cls(
            id=f"{row.run}.{row.number}",
            task_id=row.run,
            node_key=row.node,
            attempt_no=row.attempt,
            status=STATUSES[Status.CANCELLED] if row.status == "cancelled" else row.status,
            sub_status="branch_complete" if row.branch is not None and row.last else "",
            branch_id=row.branch or "",
            prep_json=_json(row.prep),
            exec_input_json=_json(None if row.input is None else row.input["input"]),
            exec_output_json=_json(row.output),
            error_text=row.error or "",
            action=row.action or "",
            started_at=int(row.started_at),
            finished_at=int(row.finished_at),
            worker_id=row.worker or "",
            worker_url=row.worker_url or "",
            log_path="",
        )


class Item(msgspec.Struct, frozen=True, omit_defaults=True):
    """A work item that a worker has received from the queue. `input_json` has the content of the body of a
    call. The lease of the item expires after `visible_for` seconds. `traceparent` and `tracestate` are set if
    the flow is traced."""

    id: str
    task_id: str
    node_key: str
    service: str
    input_json: str
    idempotency_key: str
    visible_for: int
    traceparent: str | None = None
    tracestate: str | None = None

    @classmethod
    def of(cls, item: QueueItem) -> Item:
        return cls(
            id=item.id,
            task_id=item.run,
            node_key=item.node,
            service=item.service,
            input_json=_json({"input": item.input, "params": item.params}),
            idempotency_key=item.key,
            visible_for=int(item.visible_for),
            traceparent=item.traceparent,
            tracestate=item.tracestate,
        )


class Page(msgspec.Struct, Generic[_One], frozen=True):
    """A page of a list of `total` entries."""

    data: list[_One]
    total: int
    page: int
    size: int


class Made(msgspec.Struct, frozen=True):
    """The id of a created flow, version or task."""

    id: str


class Done(msgspec.Struct, frozen=True):
    """The call was executed."""

    ok: str = "1"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
