"""The table of commands. WebSocket and HTTP both use it.

A new command is added here, once. Commands for flows and workers are in `flows`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ...actors.messages import Accepted
from ...protocol import commands as wire
from ...protocol.batches import Submitted, check_runs
from ...protocol.bulk import LIMIT
from ...protocol.commandbase import timeout_from_wire
from ...protocol.errors import Conflict, GreenroomError
from ...protocol.lane_settings import check_names
from ...protocol.names import check_name, lane_name
from ...protocol.run_filter import RunFilterKeywords
from ...protocol.submission import NewRun, SubmitOptions, from_wire
from ...protocol.validation import FilesFate, check_limit, check_text
from ..auth.tokens import Role
from ..stream.snapshots import View
from .entries import Context, Entry, Fields, Http
from .flows import FLOW_TABLE
from .schedules import SCHEDULE_TABLE
from .webhooks import WEBHOOK_TABLE

if TYPE_CHECKING:
    from ..cluster.router import Router


async def _submit(context: Context, command: wire.Submit) -> Fields:
    options = SubmitOptions(
        job=command.job, handle=command.handle, params=command.params, **from_wire(command)
    )
    ticket = await context.engine.submit_options(options, by=context.by)
    return {"run_id": ticket.id, "joined": ticket.joined}


async def _submit_many(context: Context, command: wire.SubmitMany) -> Fields:
    check_runs(command.runs, command.all_or_nothing)
    outcomes = await context.engine.submit_many_options(
        command.runs, _options, all_or_nothing=command.all_or_nothing, by=context.by
    )
    return {"submitted": [_submitted(outcome) for outcome in outcomes]}


def _options(run: NewRun) -> SubmitOptions:
    return SubmitOptions(job=run.job, handle=run.handle, params=run.params, **from_wire(run))


def _submitted(outcome: Accepted | GreenroomError) -> Submitted:
    if isinstance(outcome, GreenroomError):
        return Submitted.refused(outcome)
    return Submitted(outcome.run, outcome.joined)


async def _rerun(context: Context, command: wire.Rerun) -> Fields:
    ticket = await context.engine.rerun(command.run_id, request_id=command.request_id, by=context.by)
    return {"run_id": ticket.id, "joined": ticket.joined}


async def _retry(context: Context, command: wire.Retry) -> Fields:
    ticket = await context.engine.retry(command.run_id, request_id=command.request_id, by=context.by)
    return {"run_id": ticket.id, "joined": ticket.joined}


async def _cancel_many(context: Context, command: wire.CancelMany) -> Fields:
    files = cast(FilesFate, command.files)
    return {"bulk": await context.engine.cancel_many(files=files, by=context.by, **_bulk(command))}


async def _rerun_many(context: Context, command: wire.RerunMany) -> Fields:
    request_id = command.request_id
    return {"bulk": await context.engine.rerun_many(request_id=request_id, by=context.by, **_bulk(command))}


async def _retry_many(context: Context, command: wire.RetryMany) -> Fields:
    request_id = command.request_id
    return {"bulk": await context.engine.retry_many(request_id=request_id, by=context.by, **_bulk(command))}


def _bulk(command: wire.BulkCommand) -> dict[str, Any]:
    limit = LIMIT if command.limit is None else command.limit
    return {**_filter(command), "limit": limit, "dry_run": command.dry_run}


def _filter(command: wire.FilterCommand) -> RunFilterKeywords:
    given = {name: getattr(command, name) for name in RunFilterKeywords.__annotations__}
    return cast(RunFilterKeywords, given)


async def _cancel(context: Context, command: wire.Cancel) -> Fields:
    files = cast(FilesFate, command.files)  # the engine checks it
    return {"run": await context.engine.cancel(command.run_id, files, by=context.by)}


async def _inject(context: Context, command: wire.Inject) -> Fields:
    outcome = await context.engine.inject(command.run_or_handle, command.message, by=context.by)
    return {"outcome": outcome}


async def _answer(context: Context, command: wire.Answer) -> Fields:
    outcome = await context.engine.answer(command.interrupt_id, command.data, key=command.key, by=context.by)
    return {"outcome": outcome}


async def _wait(context: Context, command: wire.Wait) -> Fields:
    found = await context.engine.get_run(command.run_id)
    run = await context.endings.wait(found.id, timeout_from_wire(command.timeout))
    return {"run": run, "ended": run.ended}


async def _get_run(context: Context, command: wire.GetRun) -> Fields:
    return {"run": await context.engine.get_run(command.run_id)}


async def _list_runs(context: Context, command: wire.ListRuns) -> Fields:
    runs = await context.engine.list_runs(
        limit=100 if command.limit is None else command.limit, before=command.before, **_filter(command)
    )
    return {"runs": runs}


async def _list_files(context: Context, command: wire.ListFiles) -> Fields:
    return {"files": await context.engine.list_files(command.run_id)}


_PAGE = 1000


async def _history(context: Context, command: wire.History) -> Fields:
    limit = _PAGE if command.limit is None else command.limit
    after, before = command.after or 0, command.before
    events, next = await context.engine.history_page(command.run_id, after, limit, before)
    return {"events": events} if next is None else {"events": events, "next": next}


async def _snapshot(context: Context, command: wire.GetSnapshot) -> Fields:
    if context.limited is not None:
        return {"snapshot": View(await context.limited.snapshot())}
    taken = await context.snapshots.now()
    return {"snapshot": taken.whole if context.sees_receivers else taken.of_viewers}


async def _set_params(context: Context, command: wire.SetParams) -> None:
    await context.engine.set_params(command.handle, command.params, by=context.by)


async def _set_concurrency(context: Context, command: wire.SetConcurrency) -> None:
    check_name("lane", lane_name(command.lane))
    name, limit = wire.limit_in(command)
    if limit is not None:
        check_limit(name, limit)
    await context.engine.set_concurrency(command.lane, limit, by=context.by)


async def _pause_lane(context: Context, command: wire.PauseLane) -> None:
    await context.engine.pause_lane(command.lane, by=context.by)


async def _resume_lane(context: Context, command: wire.ResumeLane) -> None:
    await context.engine.resume_lane(command.lane, by=context.by)


async def _set_lane(context: Context, command: wire.SetLane) -> Fields:
    check_names(command.lane, command.rules)
    return {"rules": await context.engine.set_lane(command.lane, by=context.by, **command.rules)}


async def _set_priority(context: Context, command: wire.SetPriority) -> Fields:
    return {"run": await context.engine.set_priority(command.run_id, command.priority, by=context.by)}


async def _set_max_concurrent(context: Context, command: wire.SetMaxConcurrent) -> None:
    await context.engine.set_max_concurrent(check_limit(*wire.limit_in(command)), by=context.by)


async def _clear_lane(context: Context, command: wire.ClearLane) -> Fields:
    return {"count": await context.engine.clear_lane(command.lane, by=context.by)}


async def _clear_handle(context: Context, command: wire.ClearHandle) -> Fields:
    return {"count": await context.engine.clear_handle(command.handle, by=context.by)}


async def _release_handle(context: Context, command: wire.ReleaseHandle) -> Fields:
    return {"released": await context.engine.release_handle(command.handle, by=context.by)}


async def _reset_lanes(context: Context, command: wire.ResetLanes) -> None:
    await context.engine.reset_lanes(by=context.by)


async def _drain(context: Context, command: wire.Drain) -> None:
    await context.engine.drain(by=context.by)


async def _resume(context: Context, command: wire.Resume) -> None:
    await context.engine.resume(by=context.by)


async def _list_jobs(context: Context, command: wire.ListJobs) -> Fields:
    return {"jobs": await context.engine.list_jobs()}


async def _list_executors(context: Context, command: wire.ListExecutors) -> Fields:
    return {"executors": await context.engine.executors.list()}


async def _drain_executor(context: Context, command: wire.DrainExecutor) -> None:
    check_text("executor_id", command.executor_id)
    await context.engine.executors.drain(command.executor_id, by=context.by)


async def _get_cluster(context: Context, command: wire.GetCluster) -> Fields:
    return {"cluster": await _router(context).status()}


async def _step_down(context: Context, command: wire.StepDown) -> None:
    router = _router(context)
    assert router.step_down_here is not None, "the command is executed at the leader"
    await router.step_down_here()


def _router(context: Context) -> Router:
    if context.limited is not None:
        raise context.limited.lacks()
    if context.router is None:
        raise Conflict("this server is not a node of a cluster: start it with --cluster")
    return context.router


_VIEWER, _OPERATOR, _ADMIN = Role.VIEWER, Role.OPERATOR, Role.ADMIN

TABLE: tuple[Entry, ...] = (
    Entry(wire.Submit, _OPERATOR, _submit, Http("POST", "/api/runs", status=201), repeatable=True),
    Entry(
        wire.SubmitMany,
        _OPERATOR,
        _submit_many,
        Http("POST", "/api/runs/batch"),
        heavy=True,
        repeatable=True,
    ),
    Entry(
        wire.Rerun, _OPERATOR, _rerun, Http("POST", "/api/runs/{run_id}/rerun", status=201), repeatable=True
    ),
    Entry(
        wire.Retry, _OPERATOR, _retry, Http("POST", "/api/runs/{run_id}/retry", status=201), repeatable=True
    ),
    Entry(wire.Cancel, _OPERATOR, _cancel, Http("POST", "/api/runs/{run_id}/cancel")),
    Entry(
        wire.CancelMany, _OPERATOR, _cancel_many, Http("POST", "/api/bulk/cancel", body="bulk"), heavy=True
    ),
    Entry(
        wire.RerunMany,
        _OPERATOR,
        _rerun_many,
        Http("POST", "/api/bulk/rerun", body="bulk"),
        heavy=True,
        repeatable=True,
    ),
    Entry(
        wire.RetryMany,
        _OPERATOR,
        _retry_many,
        Http("POST", "/api/bulk/retry", body="bulk"),
        heavy=True,
        repeatable=True,
    ),
    Entry(wire.Inject, _OPERATOR, _inject, Http("POST", "/api/runs/{run_or_handle}/inject")),
    Entry(wire.Answer, _OPERATOR, _answer, Http("POST", "/api/interrupts/{interrupt_id}/answer")),
    Entry(wire.Wait, _VIEWER, _wait, waits=True, local=True),
    Entry(wire.GetRun, _VIEWER, _get_run, Http("GET", "/api/runs/{run_id}", body="run"), local=True),
    Entry(
        wire.ListRuns,
        _VIEWER,
        _list_runs,
        Http("GET", "/api/runs", pairs={"tag": "tags"}),
        heavy=True,
        local=True,
    ),
    Entry(
        wire.ListFiles,
        _VIEWER,
        _list_files,
        Http("GET", "/api/runs/{run_id}/files"),
        heavy=True,
        repeatable=True,
    ),
    Entry(wire.History, _VIEWER, _history, Http("GET", "/api/runs/{run_id}/events"), heavy=True, local=True),
    Entry(
        wire.GetSnapshot,
        _VIEWER,
        _snapshot,
        Http("GET", "/api/state", body="snapshot"),
        heavy=True,
        local=True,
    ),
    Entry(wire.Subscribe, _VIEWER),
    Entry(wire.Unsubscribe, _VIEWER),
    Entry(wire.Ping, _VIEWER),
    Entry(
        wire.SetParams, _OPERATOR, _set_params, Http("PUT", "/api/handles/{handle}/params"), repeatable=True
    ),
    Entry(wire.SetConcurrency, _ADMIN, _set_concurrency, Http("PUT", "/api/lanes/{lane}"), repeatable=True),
    Entry(wire.PauseLane, _ADMIN, _pause_lane, Http("POST", "/api/lanes/{lane}/pause"), repeatable=True),
    Entry(wire.ResumeLane, _ADMIN, _resume_lane, Http("POST", "/api/lanes/{lane}/resume"), repeatable=True),
    Entry(wire.SetLane, _ADMIN, _set_lane, Http("PUT", "/api/lanes/{lane}/rules"), repeatable=True),
    Entry(
        wire.SetPriority,
        _OPERATOR,
        _set_priority,
        Http("PUT", "/api/runs/{run_id}/priority"),
        repeatable=True,
    ),
    Entry(
        wire.SetMaxConcurrent,
        _ADMIN,
        _set_max_concurrent,
        Http("PUT", "/api/max_concurrent", also={"max_concurrent": "limit"}),
        repeatable=True,
    ),
    Entry(wire.ClearLane, _OPERATOR, _clear_lane, Http("POST", "/api/lanes/{lane}/clear")),
    Entry(wire.ClearHandle, _OPERATOR, _clear_handle, Http("POST", "/api/handles/{handle}/clear")),
    Entry(wire.ReleaseHandle, _OPERATOR, _release_handle, Http("POST", "/api/handles/{handle}/release")),
    Entry(wire.ResetLanes, _ADMIN, _reset_lanes, Http("POST", "/api/reset")),
    Entry(wire.Drain, _ADMIN, _drain, Http("POST", "/api/drain"), repeatable=True),
    Entry(wire.Resume, _ADMIN, _resume, Http("POST", "/api/resume"), repeatable=True),
    Entry(wire.ListJobs, _VIEWER, _list_jobs, Http("GET", "/api/jobs"), heavy=True, repeatable=True),
    Entry(
        wire.ListExecutors,
        _VIEWER,
        _list_executors,
        Http("GET", "/api/executors"),
        heavy=True,
        repeatable=True,
    ),
    Entry(
        wire.DrainExecutor,
        _ADMIN,
        _drain_executor,
        Http("POST", "/api/executors/{executor_id}/drain"),
        repeatable=True,
    ),
    Entry(wire.GetCluster, _VIEWER, _get_cluster, Http("GET", "/api/cluster", body="cluster"), local=True),
    Entry(wire.StepDown, _ADMIN, _step_down, Http("POST", "/api/cluster/step-down")),
    *FLOW_TABLE,
    *SCHEDULE_TABLE,
    *WEBHOOK_TABLE,
)

BY_TYPE: dict[type, Entry] = {entry.wire: entry for entry in TABLE}
