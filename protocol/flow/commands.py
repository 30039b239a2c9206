"""What clients and workers say about flows and work over a WebSocket; a part of `protocol.commands`."""

from __future__ import annotations

from typing import Any

from ..commandbase import CommandBase, Seconds
from ..submission import SubmitCommand

Definition = str | dict[str, Any]
"""A flow's definition: an object, or a text of JSON or YAML."""


# Flows.


class Signal(CommandBase, frozen=True, kw_only=True, tag="signal"):
    """Put a value into what a flow's run shares, or the active run of a handle; what waits for it goes on."""

    run_id: str
    key: str
    value: Any


class CreateFlow(CommandBase, frozen=True, kw_only=True, tag="create_flow"):
    """Make a flow, which has no versions yet."""

    name: str
    description: str = ""


class PublishFlow(CommandBase, frozen=True, kw_only=True, tag="publish_flow"):
    """Add a version to a flow, which is made where there is none of this name."""

    name: str
    definition: Definition
    version: int | None = None
    status: str = "published"


class AddFlowVersion(CommandBase, frozen=True, kw_only=True, tag="add_flow_version"):
    """The same for a flow that is there, given by its id or name."""

    flow: str
    definition: Definition
    version: int | None = None
    status: str = "published"


class CheckFlow(CommandBase, frozen=True, kw_only=True, tag="check_flow"):
    """Say all that is wrong with a definition, and what is doubtful."""

    definition: Definition


class ListFlows(CommandBase, frozen=True, kw_only=True, tag="list_flows"):
    """A page of the flows, in the order in which they were made."""

    limit: int = 20
    offset: int = 0


class ListFlowVersions(CommandBase, frozen=True, kw_only=True, tag="list_flow_versions"):
    """A page of the versions of a flow, given by its id or name, without their definitions: the latest ones,
    but for `offset` later ones, in the order of their numbers."""

    flow: str
    limit: int = 1000
    offset: int = 0


class GetFlowVersion(CommandBase, frozen=True, kw_only=True, tag="get_flow_version"):
    """One version of a flow, with its definition."""

    version_id: str


class StartFlow(SubmitCommand, frozen=True, kw_only=True, tag="start_flow"):
    """Start a run of a flow, given by its id or name. Version 0 is the latest that is published; without a
    `handle`, the run gets one of its own."""

    flow: str
    version: int = 0
    handle: str | None = None


class GetTask(CommandBase, frozen=True, kw_only=True, tag="get_task"):
    """A run of a flow, with what its nodes share as of now."""

    run_id: str


class ListTasks(CommandBase, frozen=True, kw_only=True, tag="list_tasks"):
    """A page of the runs of flows that fit all that is given, the newest first; `version` is an id."""

    status: str | list[str] | None = None
    version: str | None = None
    limit: int = 20
    offset: int = 0


class NodeRuns(CommandBase, frozen=True, kw_only=True, tag="node_runs"):
    """The tries of the nodes of a run, in order: those with a higher number than `after`. There may be fewer
    than `limit` if they are large; the last ones have come when there are none any more."""

    run_id: str
    after: int = 0
    limit: int = 1000


# Workers.


class ListWorkers(CommandBase, frozen=True, kw_only=True, tag="list_workers"):
    """The workers that serve a service, and were heard of within `ttl` seconds."""

    service: str | None = None
    ttl: Seconds | None = None


class AllocateWorker(CommandBase, frozen=True, kw_only=True, tag="allocate_worker"):
    """The worker with the least load of those that can be called, if there is one."""

    service: str


class RegisterWorker(CommandBase, frozen=True, kw_only=True, tag="register_worker"):
    """Be a worker: one that is called under `url` (`http`), or that fetches its work (`queue`)."""

    worker_id: str
    url: str
    services: list[str]
    kind: str = "http"
    load: float = 0


class HeartbeatWorker(CommandBase, frozen=True, kw_only=True, tag="heartbeat_worker"):
    """Still be there."""

    worker_id: str
    load: float | None = None


class PollWork(CommandBase, frozen=True, kw_only=True, tag="poll_work"):
    """Take work of one of these services as soon as there is some, within `wait` seconds (25)."""

    worker_id: str
    services: list[str]
    wait: float = 25


class CompleteWork(CommandBase, frozen=True, kw_only=True, tag="complete_work"):
    """What was taken is done, or has failed if there is an `error`."""

    item_id: str
    result: Any = None
    error: str = ""
    worker_id: str | None = None


class ExtendWork(CommandBase, frozen=True, kw_only=True, tag="extend_work"):
    """Still work on what was taken."""

    item_id: str
    worker_id: str
