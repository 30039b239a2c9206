"""The WebSocket commands of flows and workers; a part of `protocol.commands`."""

from __future__ import annotations

from typing import Any

from ..commandbase import CommandBase, Seconds
from ..submission import SubmitCommand

Definition = str | dict[str, Any]
"""A flow's definition: an object, or JSON or YAML text."""


# Flows.


class Signal(CommandBase, frozen=True, kw_only=True, tag="signal"):
    """Set a key in the shared data of a flow's run, given by id or handle; nodes that wait continue."""

    run_id: str
    key: str
    value: Any


class CreateFlow(CommandBase, frozen=True, kw_only=True, tag="create_flow"):
    """Create a flow without versions."""

    name: str
    description: str = ""


class PublishFlow(CommandBase, frozen=True, kw_only=True, tag="publish_flow"):
    """Add a version to a flow, given by its name; the flow is created if it does not exist."""

    name: str
    definition: Definition
    version: int | None = None
    status: str = "published"


class AddFlowVersion(CommandBase, frozen=True, kw_only=True, tag="add_flow_version"):
    """Add a version to an existing flow, given by its id or name."""

    flow: str
    definition: Definition
    version: int | None = None
    status: str = "published"


class CheckFlow(CommandBase, frozen=True, kw_only=True, tag="check_flow"):
    """Check a definition: return all errors and warnings."""

    definition: Definition


class ListFlows(CommandBase, frozen=True, kw_only=True, tag="list_flows"):
    """List a page of the flows, in the order of their creation."""

    limit: int = 20
    offset: int = 0


class ListFlowVersions(CommandBase, frozen=True, kw_only=True, tag="list_flow_versions"):
    """List a page of the versions of a flow, given by its id or name, without their definitions.

    The page contains the latest `limit` versions, after skipping the `offset` latest ones, in the order of
    their numbers.
    """

    flow: str
    limit: int = 1000
    offset: int = 0


class GetFlowVersion(CommandBase, frozen=True, kw_only=True, tag="get_flow_version"):
    """Get one version of a flow, with its definition."""

    version_id: str


class StartFlow(SubmitCommand, frozen=True, kw_only=True, tag="start_flow"):
    """Start a run of a flow, given by its id or name.

    Version 0 is the latest published one. Without a `handle`, the run gets a new handle.
    """

    flow: str
    version: int = 0
    handle: str | None = None


class GetTask(CommandBase, frozen=True, kw_only=True, tag="get_task"):
    """Get a run of a flow, with its current shared data."""

    run_id: str


class ListTasks(CommandBase, frozen=True, kw_only=True, tag="list_tasks"):
    """List a page of the runs of flows that match all given fields, newest first; `version` is an id."""

    status: str | list[str] | None = None
    version: str | None = None
    limit: int = 20
    offset: int = 0


class NodeRuns(CommandBase, frozen=True, kw_only=True, tag="node_runs"):
    """List the node runs of a run in order: those with a number above `after`.

    The reply contains at most `limit`, and fewer if they are large. An empty reply means that there are no
    more.
    """

    run_id: str
    after: int = 0
    limit: int = 1000


# Workers.


class ListWorkers(CommandBase, frozen=True, kw_only=True, tag="list_workers"):
    """List the workers that serve a service and sent a heartbeat within `ttl` seconds."""

    service: str | None = None
    ttl: Seconds | None = None


class AllocateWorker(CommandBase, frozen=True, kw_only=True, tag="allocate_worker"):
    """Get the worker with the least load among the available ones of a service, if there is one."""

    service: str


class RegisterWorker(CommandBase, frozen=True, kw_only=True, tag="register_worker"):
    """Register a worker: one that is called at `url` (`http`), or one that polls for work (`queue`)."""

    worker_id: str
    url: str
    services: list[str]
    kind: str = "http"
    load: float = 0


class HeartbeatWorker(CommandBase, frozen=True, kw_only=True, tag="heartbeat_worker"):
    """Keep a worker online, and report its load."""

    worker_id: str
    load: float | None = None


class PollWork(CommandBase, frozen=True, kw_only=True, tag="poll_work"):
    """Take work of one of these services; waits for work for at most `wait` seconds (25)."""

    worker_id: str
    services: list[str]
    wait: float = 25


class CompleteWork(CommandBase, frozen=True, kw_only=True, tag="complete_work"):
    """Complete work with its result, or with an `error`."""

    item_id: str
    result: Any = None
    error: str = ""
    worker_id: str | None = None


class ExtendWork(CommandBase, frozen=True, kw_only=True, tag="extend_work"):
    """Extend the visibility timeout of work in progress."""

    item_id: str
    worker_id: str
