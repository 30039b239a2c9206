"""How flows, their runs and workers look to clients that call a run a task.

Ids are texts, times whole Unix seconds, and a text that isn't there is empty: some of these clients read
them into types that take nothing else. What is any JSON value stands as a text in a field whose name ends
with `_json`.
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
"""What the status of a run is called in a task."""


def statuses(name: str) -> list[Status]:
    """The statuses of runs that a task's status stands for."""
    meant = [status for status, called in STATUSES.items() if called == name]
    if not meant:
        known = ", ".join(dict.fromkeys(STATUSES.values()))
        raise Invalid(f"status: {shown(name)} is none; it is one of {known}", path="status")
    return meant


class Worker(msgspec.Struct, frozen=True):
    """A worker, as it stands."""

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
            retry_state_json="{}",  # tries are node runs, and one engine has all tasks: no leases
            lease_owner="",
            lease_expiry=0,
            request_id=task.request_id or "",
            created_at=int(run.created_at),
            updated_at=int(run.updated_at),
        )


class NodeTry(msgspec.Struct, frozen=True):
    """One try of a node, or of a branch of it."""

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
    def of(cls, row: NodeRun) -> NodeTry:
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


class Item(msgspec.Struct, frozen=True):
    """A piece of work that a worker has taken from the queue: `input_json` is what would be the body of a
    call, and the worker has `visible_for` seconds until it is taken away again."""

    id: str
    task_id: str
    node_key: str
    service: str
    input_json: str
    idempotency_key: str
    visible_for: int

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
        )


class Page(msgspec.Struct, Generic[_One], frozen=True):
    """A part of a list, of which there are `total` in all."""

    data: list[_One]
    total: int
    page: int
    size: int


class Made(msgspec.Struct, frozen=True):
    """What was made."""

    id: str


class Done(msgspec.Struct, frozen=True):
    """It was carried out."""

    ok: str = "1"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
