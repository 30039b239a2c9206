"""The entries of commands about flows and workers; a part of `commands.TABLE`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import cast

from ...protocol.flow import commands as wire
from ...protocol.flow.records import VersionRow, VersionStatus, WorkerKind
from ...protocol.names import check_name
from ...protocol.submission import FlowKeywords, flow_options, from_wire
from ...protocol.validation import check_text
from ..auth.tokens import Role
from .entries import Context, Entry, Fields, Http

# Flows.


async def _signal(context: Context, command: wire.Signal) -> None:
    await context.engine.signal(command.run_id, command.key, command.value, by=context.by)


async def _create(context: Context, command: wire.CreateFlow) -> Fields:
    return {"flow": await context.engine.flows.create(command.name, command.description, by=context.by)}


async def _publish(context: Context, command: wire.PublishFlow) -> Fields:
    return await _add(partial(context.engine.flows.publish, command.name), command, context.by)


async def _add_version(context: Context, command: wire.AddFlowVersion) -> Fields:
    return await _add(partial(context.engine.flows.add_version, command.flow), command, context.by)


async def _add(
    add: Callable[..., Awaitable[VersionRow]], command: wire.PublishFlow | wire.AddFlowVersion, by: str
) -> Fields:
    status = cast(VersionStatus, command.status)  # the engine checks it
    return {"version": await add(command.definition, version=command.version, status=status, by=by)}


async def _check(context: Context, command: wire.CheckFlow) -> Fields:
    checked = await context.engine.flows.check(command.definition)
    return {"errors": checked.errors, "warnings": checked.warnings}


async def _list(context: Context, command: wire.ListFlows) -> Fields:
    flows, total = await context.engine.flows.list(command.limit, command.offset)
    return {"flows": flows, "total": total}


async def _versions(context: Context, command: wire.ListFlowVersions) -> Fields:
    versions = await context.engine.flows.versions(command.flow, limit=command.limit, offset=command.offset)
    return {"versions": versions}


async def _version(context: Context, command: wire.GetFlowVersion) -> Fields:
    check_text("version_id", command.version_id)
    return {"version": await context.engine.flows.version(command.version_id)}


async def _start(context: Context, command: wire.StartFlow) -> Fields:
    given = cast(FlowKeywords, from_wire(command))
    options = flow_options(command.flow, command.version, command.params, command.handle, **given)
    ticket = await context.engine.submit_options(options, by=context.by)
    return {"run_id": ticket.id, "joined": ticket.joined}


async def _task(context: Context, command: wire.GetTask) -> Fields:
    return {"task": await context.engine.flows.task(command.run_id)}


async def _tasks(context: Context, command: wire.ListTasks) -> Fields:
    tasks, total = await context.engine.flows.tasks(
        status=command.status, version=command.version, limit=command.limit, offset=command.offset
    )
    return {"tasks": tasks, "total": total}


async def _node_runs(context: Context, command: wire.NodeRuns) -> Fields:
    flows = context.engine.flows
    return {"node_runs": await flows.node_runs(command.run_id, after=command.after, limit=command.limit)}


# Workers.


async def _list_workers(context: Context, command: wire.ListWorkers) -> Fields:
    return {"workers": await context.engine.workers.list(command.service, command.ttl)}


async def _allocate(context: Context, command: wire.AllocateWorker) -> Fields:
    return {"worker": await context.engine.workers.allocate(command.service)}


async def _register(context: Context, command: wire.RegisterWorker) -> Fields:
    check_name("worker_id", command.worker_id)
    if command.kind != "queue":
        context.engine.workers.permit(command.url)
    worker = await context.engine.workers.register(
        command.worker_id,
        command.url,
        command.services,
        kind=cast(WorkerKind, command.kind),  # the engine checks it
        load=command.load,
        by=context.by,
    )
    return {"worker": worker}


async def _heartbeat(context: Context, command: wire.HeartbeatWorker) -> None:
    check_text("worker_id", command.worker_id)
    await context.engine.workers.heartbeat(command.worker_id, command.load, by=context.by)


async def _poll(context: Context, command: wire.PollWork) -> Fields:
    return {"item": await context.engine.workers.poll(command.worker_id, command.services, command.wait)}


async def _complete(context: Context, command: wire.CompleteWork) -> None:
    check_text("item_id", command.item_id)
    await context.engine.workers.complete(
        command.item_id, command.result, command.error, worker_id=command.worker_id
    )


async def _extend(context: Context, command: wire.ExtendWork) -> None:
    check_text("item_id", command.item_id)
    await context.engine.workers.extend(command.item_id, command.worker_id)


_VIEWER, _OPERATOR, _WORKER = Role.VIEWER, Role.OPERATOR, Role.WORKER
_VERSIONS = "/api/flows/{flow}/versions"

FLOW_TABLE: tuple[Entry, ...] = (
    Entry(wire.Signal, _OPERATOR, _signal, Http("POST", "/api/runs/{run_id}/signal")),
    Entry(wire.CreateFlow, _OPERATOR, _create),
    Entry(wire.PublishFlow, _OPERATOR, _publish, Http("POST", "/api/flows/publish", status=201)),
    Entry(wire.AddFlowVersion, _OPERATOR, _add_version, Http("POST", _VERSIONS, status=201)),
    Entry(wire.CheckFlow, _VIEWER, _check, Http("POST", "/api/flows/check"), repeatable=True),
    Entry(wire.ListFlows, _VIEWER, _list, heavy=True, repeatable=True),
    Entry(wire.ListFlowVersions, _VIEWER, _versions, Http("GET", _VERSIONS), heavy=True, repeatable=True),
    Entry(wire.GetFlowVersion, _VIEWER, _version, repeatable=True),
    Entry(
        wire.StartFlow, _OPERATOR, _start, Http("POST", "/api/flows/{flow}/runs", status=201), repeatable=True
    ),
    Entry(wire.GetTask, _VIEWER, _task, Http("GET", "/api/runs/{run_id}/flow", body="task"), repeatable=True),
    Entry(wire.ListTasks, _VIEWER, _tasks, heavy=True, repeatable=True),
    Entry(
        wire.NodeRuns,
        _VIEWER,
        _node_runs,
        Http("GET", "/api/runs/{run_id}/nodes"),
        heavy=True,
        repeatable=True,
    ),
    Entry(wire.ListWorkers, _VIEWER, _list_workers, Http("GET", "/api/workers"), heavy=True, repeatable=True),
    Entry(wire.AllocateWorker, _VIEWER, _allocate, repeatable=True),
    Entry(wire.RegisterWorker, _WORKER, _register, repeatable=True),
    Entry(wire.HeartbeatWorker, _WORKER, _heartbeat, repeatable=True),
    Entry(wire.PollWork, _WORKER, _poll, waits=True, repeatable=True),
    Entry(wire.CompleteWork, _WORKER, _complete, repeatable=True),
    Entry(wire.ExtendWork, _WORKER, _extend, repeatable=True),
)
