"""The calls of the compatible API: one table; each entry has a path under `/api` and one without it.

In this API a run of a flow is a *task*, and the work items for polling workers are a *queue*. `input` parses
the requests, `forms` defines the responses, and this module executes the calls. An error response also has
its text in the field `error`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import attrs
import msgspec

from ...protocol.errors import Conflict, Invalid, NotFound, TooLarge, Unavailable
from ...protocol.flow.paths import parse_target
from ...protocol.flow.records import VersionStatus, WorkerKind
from ...protocol.names import FLOW, check_name
from ...protocol.submission import flow_options
from ...protocol.values import shown
from ..auth.tokens import Role
from ..commands.entries import Context
from ..http.responses import Response, answer, refusal
from . import forms as forms
from .input import (
    MAX_PAGE_SIZE,
    PAGE_SIZE,
    AllocateWorker,
    ById,
    CompleteItem,
    ExtendItem,
    FindTasks,
    FindWorkers,
    NewFlow,
    NewTask,
    NewVersion,
    OfFlow,
    OfTask,
    Paged,
    PollQueue,
    RegisterWorker,
    TaskSignal,
    WorkerHeartbeat,
    json_object,
    named,
    offset_of,
    size_of,
)

# Workers.


async def _register(context: Context, given: RegisterWorker) -> Response:
    """Register a worker that the engine calls (`http`), or that polls the queue (`queue`)."""
    kind = _KINDS.get(given.type)
    if kind is None:
        text = f'type must be "http", "queue" or "async" (got {shown(given.type)})'
        raise Invalid(text, path="type")
    url = given.url
    if kind == "queue" and "://" not in url:
        check_name("url", url or "none")
        url = ""
    if kind != "queue":
        context.engine.workers.permit(url)
    listed_as = (given.type or kind, given.url)
    await context.engine.workers.register(
        given.id,
        url,
        given.services,
        kind=kind,
        load=given.load,
        listed_as=None if listed_as == (kind, url.rstrip("/")) else listed_as,
        by=context.by,
    )
    return _DONE


async def _heartbeat(context: Context, given: WorkerHeartbeat) -> Response:
    """Report that a worker is alive. For an unknown worker the response is 404; it must register again."""
    await context.engine.workers.heartbeat(given.id, given.load, by=context.by)
    return _DONE


async def _list_workers(context: Context, given: FindWorkers) -> Response:
    """List the workers."""
    if not given.ttl >= 0:
        raise Invalid(f"ttl must be a number of seconds, 0 or more (got {given.ttl:g})", path="ttl")
    workers = await context.engine.workers.list(given.service, given.ttl or None)
    return answer([forms.Worker.of(worker) for worker in workers])


async def _allocate(context: Context, given: AllocateWorker) -> Response:
    """Get the `http` worker with the least load."""
    worker = await context.engine.workers.allocate(given.service)
    if worker is None:
        raise Unavailable(f"no http worker is online for service {shown(given.service)}")
    return answer(forms.Worker.of(worker))


# Flows.


async def _create_flow(context: Context, given: NewFlow) -> Response:
    """Create a flow. If the name already exists, the response is 409 with the existing flow's id."""
    try:
        flow = await context.engine.flows.create(given.name, given.description, by=context.by)
    except Conflict as error:
        return refusal(error, error=error.message, id=error.details["flow"])
    return answer(forms.Made(flow.id))


async def _list_flows(context: Context, given: Paged) -> Response:
    """List the flows, newest first."""
    page, size = max(given.page, 1), size_of(given, PAGE_SIZE)
    flows, skipped = context.engine.flows, offset_of(given, size)
    _, total = await flows.list(size, skipped)
    end = total - skipped
    start = max(0, end - size)
    rows = (await flows.list(end - start, start))[0] if end > 0 else []
    return answer(forms.Page([forms.Flow.of(row) for row in reversed(rows)], total, page, size))


async def _add_version(context: Context, given: NewVersion) -> Response:
    """Create a version of a flow. If the version exists with the same definition, the response is its id; if
    it exists with another definition, the next free version is created."""
    definition = given.definition_yaml or given.definition_json
    if definition == "":
        raise Invalid("definition_json or definition_yaml is required", path="definition_json")
    written = "definition_yaml" if given.definition_yaml else "definition_json"
    with _named(**{"flow": "flow_id", "the definition": written}):
        row = await context.engine.flows.put_version(
            given.flow_id,
            definition,
            version=given.version or None,
            status=cast(VersionStatus, given.status or "published"),  # the engine checks it
            by=context.by,
        )
    return answer(forms.Made(row.id))


async def _versions(context: Context, given: OfFlow) -> Response:
    """List the versions of a flow, newest first: the first 100, or a page. The definitions in a response have
    at most 16 MiB in total."""
    flows, size = context.engine.flows, size_of(given, 100)
    with _named(flow="flow_id"):
        rows = await flows.definitions(given.flow_id, limit=size, offset=offset_of(given, size))
        if given.is_page and len(rows) < size:
            there = await flows.versions(given.flow_id, limit=size, offset=offset_of(given, size))
            _check_complete(len(rows) >= len(there))
    return answer([forms.Version.of(row) for row in rows])


async def _version(context: Context, given: ById) -> Response:
    """Get a version of a flow."""
    return answer(forms.Version.of(await context.engine.flows.version(given.id)))


# Tasks.


async def _create_task(context: Context, given: NewTask) -> Response:
    """Start a task of a flow, or of the flow version with an id."""
    flow, version = given.flow_id, given.version
    params = json_object("params_json", given.params_json)
    if given.flow_version_id:
        with _named(id="flow_version_id"):
            row = await context.engine.flows.version(given.flow_version_id)
        flow, version = row.flow, row.version
    elif not flow:
        raise Invalid("flow_id or flow_version_id is required", path="flow_id")
    with _named(**{"params.params": "params_json", "params.flow": "flow_id", "params": "params_json"}):
        options = flow_options(
            flow,
            version,
            params,
            None,
            request_id=given.request_id or None,
            traceparent=given.traceparent or None,
            tracestate=given.tracestate or None,
        )
        ticket = await context.engine.submit_options(options, by=context.by)
    return answer(forms.Made(ticket.id))


async def _list_tasks(context: Context, given: FindTasks) -> Response:
    """List the tasks, newest first."""
    page, size = max(given.page, 1), size_of(given, PAGE_SIZE)
    find = partial(
        context.engine.flows.tasks,
        status=forms.statuses(given.status) if given.status else None,
        version=given.flow_version_id,
    )
    skipped = offset_of(given, size)
    with _named(version="flow_version_id"):
        tasks, total = await find(limit=size, offset=skipped)
    if tasks and len(tasks) < size:
        _check_complete(not (await find(limit=1, offset=skipped + len(tasks)))[0])
    return answer(forms.Page([forms.Task.of(task) for task in tasks], total, page, size))


async def _get_task(context: Context, given: ById) -> Response:
    """Get a task."""
    with _named(run_id="id"):
        return answer(forms.Task.of(await context.engine.flows.task(given.id)))


async def _cancel_task(context: Context, given: ById) -> Response:
    """Cancel a task."""
    with _named(run_id="id"):
        await _check_task(context, given.id)
        await context.engine.cancel(given.id, by=context.by)
    return _DONE


async def _node_runs(context: Context, given: OfTask) -> Response:
    """List the node runs of a task, in order: the first 1,000, or a page. A response has at most 16 MiB."""
    flows, size = context.engine.flows, size_of(given, MAX_PAGE_SIZE)
    with _named(run_id="task_id"):
        rows = await flows.node_runs(given.task_id, after=offset_of(given, size), limit=size)
        if given.is_page and rows and len(rows) < size:
            _check_complete(not await flows.node_runs(given.task_id, after=rows[-1].number, limit=1))
    return answer([forms.NodeAttempt.of(row) for row in rows])


async def _signal(context: Context, given: TaskSignal) -> Response:
    """Set a value in a task's shared data; a node that waits for it continues."""
    with _named(run_id="task_id"):
        await _check_task(context, given.task_id)
    try:
        parse_target(given.key)
    except Invalid as error:
        raise Invalid(f"key: {error.message}", path="key") from None
    await context.engine.signal(given.task_id, given.key, given.value, by=context.by)
    return _DONE


async def _check_task(context: Context, id: str) -> None:
    if (await context.engine.get_run(id)).job != FLOW:
        raise NotFound(f"task {shown(id)} not found", value=id)


# The queue.


async def _poll(context: Context, given: PollQueue) -> Response:
    """Poll for a work item, for at most 25 seconds. Without one the response is 204."""
    workers = context.engine.workers
    item = await workers.poll(given.worker_id, given.services)
    if item is None:
        return Response(204)
    return attrs.evolve(
        answer(forms.Item.of(item)), unsent=lambda: workers.give_back(item.id, given.worker_id)
    )


async def _complete(context: Context, given: CompleteItem) -> Response:
    """Report the result or the error of a work item; 409 if the item is no longer open."""
    await context.engine.workers.complete(
        given.queue_id, given.result, given.error, worker_id=given.worker_id
    )
    return _DONE


async def _extend(context: Context, given: ExtendItem) -> Response:
    """Extend the lease of a work item by a minute; 409 if the worker must drop the item."""
    await context.engine.workers.extend(given.queue_id, given.worker_id)
    return _DONE


_DONE = answer(forms.Done())

_KINDS: dict[str, WorkerKind] = {"": "http", "http": "http", "queue": "queue", "async": "queue"}
"""The kind of worker for each `type` of a request."""


@contextmanager
def _named(**names: str) -> Iterator[None]:
    """Replace the engine's name of a field in errors by the name in the request."""
    try:
        yield
    except (Invalid, TooLarge) as error:
        raise named(error, **names) from None


def _check_complete(complete: bool) -> None:
    """Refuse an incomplete page, because the next page would skip what it leaves out."""
    if not complete:
        text = "page_size is too large: the page would exceed 16 MiB; request a smaller page"
        raise TooLarge(text, path="page_size")


@attrs.frozen
class TaskCall:
    """One call. `path` is without `/api`; `takes` and `answers` are the types of request and response."""

    method: str
    path: str
    role: Role
    takes: type[msgspec.Struct]
    act: Callable[[Context, Any], Awaitable[Response]]
    answers: Any
    workers: bool = False
    """Whether workers can call it."""
    waits: bool = False
    """Whether it can take long; it is abandoned when the client disconnects."""

    @property
    def in_query(self) -> bool:
        """Whether its fields are in the query."""
        return self.method == "GET" or self.takes is ById


_VIEWER, _OPERATOR, _WORKER = Role.VIEWER, Role.OPERATOR, Role.WORKER

TABLE: tuple[TaskCall, ...] = (
    *(
        TaskCall(method, path + name, role, takes, act, answers, workers=True)
        for path in ("/workers/", "/")
        for method, name, role, takes, act, answers in (
            ("POST", "register", _WORKER, RegisterWorker, _register, forms.Done),
            ("POST", "heartbeat", _WORKER, WorkerHeartbeat, _heartbeat, forms.Done),
            ("GET", "list", _VIEWER, FindWorkers, _list_workers, list[forms.Worker]),
            ("GET", "allocate", _VIEWER, AllocateWorker, _allocate, forms.Worker),
        )
    ),
    TaskCall("POST", "/flows", _OPERATOR, NewFlow, _create_flow, forms.Made),
    TaskCall("GET", "/flows", _VIEWER, Paged, _list_flows, forms.Page[forms.Flow]),
    TaskCall("POST", "/flows/version", _OPERATOR, NewVersion, _add_version, forms.Made),
    TaskCall("GET", "/flows/version", _VIEWER, OfFlow, _versions, list[forms.Version]),
    TaskCall("GET", "/flows/version/get", _VIEWER, ById, _version, forms.Version),
    TaskCall("POST", "/tasks", _OPERATOR, NewTask, _create_task, forms.Made),
    TaskCall("GET", "/tasks", _VIEWER, FindTasks, _list_tasks, forms.Page[forms.Task]),
    TaskCall("GET", "/tasks/get", _VIEWER, ById, _get_task, forms.Task),
    TaskCall("POST", "/tasks/cancel", _OPERATOR, ById, _cancel_task, forms.Done),
    TaskCall("GET", "/tasks/runs", _VIEWER, OfTask, _node_runs, list[forms.NodeAttempt]),
    TaskCall("POST", "/tasks/signal", _OPERATOR, TaskSignal, _signal, forms.Done),
    TaskCall("POST", "/queue/poll", _WORKER, PollQueue, _poll, forms.Item, workers=True, waits=True),
    TaskCall("POST", "/queue/complete", _WORKER, CompleteItem, _complete, forms.Done, workers=True),
    TaskCall("POST", "/queue/heartbeat", _WORKER, ExtendItem, _extend, forms.Done, workers=True),
)
