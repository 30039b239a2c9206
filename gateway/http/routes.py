"""The routes: the paths of the command table, and paths that only HTTP has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, get_args

import attrs
import msgspec
import trio
from msgspec.structs import replace

from ...actors.schedules.api import sorted_schedules
from ...protocol.cluster import no_leader
from ...protocol.codec import JSON, misfit
from ...protocol.commands import GetSnapshot, SubmitMany
from ...protocol.decoding import with_known_fields
from ...protocol.errors import Invalid, NotFound, Unavailable
from ...protocol.names import check_name, lane_name
from ...protocol.run_filter import named_values
from ...protocol.submission import NewRun, SubmitCommand
from ...protocol.values import shown
from ..auth.tokens import Caller, Role
from ..commands.entries import Entry
from ..commands.table import TABLE
from ..config import GatewayConfig
from ..limits import Rate, check_rate_of_runs
from ..shared import Shared
from ..stream.receivers import of_lane
from ..tasks.calls import TABLE as TASK_CALLS
from ..tasks.calls import TaskCall
from ..tasks.input import NewTask, read
from . import console
from .head import Request
from .javascript import FILES, client_file
from .metrics import CONTENT_TYPE
from .responses import Response, answer
from .run_files import run_file
from .sse import events


@attrs.frozen
class Call:
    """An authorized request."""

    shared: Shared
    caller: Caller
    request: Request
    names: dict[str, str]
    body: bytes
    rate: Rate | None = None
    """Counts the requests of the connection; `None` if the node that has received this one counts them."""


@attrs.frozen
class Route:
    """The handler of a request. Without a `role`, it needs no token."""

    role: Role | None
    run: Callable[[Call], Awaitable[Response]]
    tickets: bool = False
    """Whether a one-time ticket in the query can replace the token."""
    workers: bool = False
    """Whether workers can call it, too; with `workers_without_token`, local workers without a token."""
    limited: bool = False
    """Whether it applies the limits of a token; otherwise it requires a token without limits."""
    any_type: bool = False
    """Whether programs can omit the Content-Type of a JSON body."""
    waits: bool = False
    """Whether the response can take long; it is abandoned when the client disconnects."""

    def permits(self, caller: Caller) -> bool:
        """Whether this caller has a sufficient role."""
        if self.workers and caller.role is Role.WORKER:
            return True
        return self.role is None or caller.role.permits(self.role)


Methods = dict[str, tuple[Route, dict[str, str]]]
"""The methods of a path, each with the values of the names in it."""


async def _command(entry: Entry, call: Call) -> Response:
    """Execute a command of the table."""
    http = entry.http
    assert http is not None, "an entry without `http` has no route"
    command, given_names = _command_in(entry, call)
    command = _with_trace(command, call.request)
    if call.rate is not None:
        check_rate_of_runs(call.rate, call.shared.limits, command)
    try:
        fields = await call.shared.execute(entry, call.caller, command)
    except Invalid as error:
        raise _with_given_name(error, given_names) from None
    if http.body is not None:
        return answer(fields[http.body])
    status = 200 if fields.get("joined") else http.status
    return answer({"seq": call.shared.engine.stream.last_seq, **fields}, status)


def _command_in(entry: Entry, call: Call) -> tuple[Any, dict[str, str]]:
    """The command, and the former names under which fields were given, by current name."""
    http = entry.http
    assert http is not None, "an entry without `http` has no route"
    reads = http.method == "GET"
    given = _query(call.request, entry) if reads else _object(call.body)
    given_names: dict[str, str] = {}
    for name, current in http.also.items():
        if name in given:
            value = given.pop(name)
            if given.setdefault(current, value) is value:
                given_names[current] = name
    given_names |= {field: name for name, field in http.pairs.items() if field in given}
    if not reads:
        _convert_integral_floats(given, entry)
    where = "query" if reads else "body"
    for name, value in call.names.items():
        if given.setdefault(name, value) != value:
            raise Invalid(f"{name} in the {where} must equal {name} in the path ({shown(value)})", path=name)
    whole = "query" if reads else "message"
    for name in ("id", "type"):
        if name in given:
            raise Invalid(f"{whole}: object contains unknown field {name}", path=name)
    try:
        return msgspec.convert({"id": 0, **given}, entry.wire, strict=not reads), given_names
    except msgspec.ValidationError as error:
        raise _with_given_name(with_known_fields(misfit(error, whole), entry.wire), given_names) from None


def _with_trace(command: Any, request: Request) -> Any:
    """A command that submits runs, with the trace of the request's headers, unless it names another one."""
    parent = request.header("traceparent")
    if parent is None or not isinstance(command, SubmitCommand | NewRun | SubmitMany):
        return command
    if isinstance(command, SubmitMany):
        return replace(command, runs=[_with_trace(run, request) for run in command.runs])
    if command.traceparent is not None:
        return command
    return replace(command, traceparent=parent, tracestate=request.header("tracestate"))


def _with_given_name(error: Invalid, given_names: dict[str, str]) -> Invalid:
    """The same error, with the name under which the field was given."""
    for current, name in given_names.items():
        if error.message.startswith((f"{current} ", f"{current}:")):
            details = {**error.details, **({"path": name} if "path" in error.details else {})}
            return Invalid(name + error.message.removeprefix(current), **details)
    return error


def _trace_in(request: Request) -> dict[str, list[str]]:
    """The trace of a request's headers, as parameters of a query."""
    parent, state = request.header("traceparent"), request.header("tracestate")
    return {} if parent is None else {"traceparent": [parent], "tracestate": [state or ""]}


async def _task_call(task: TaskCall, call: Call) -> Response:
    """Execute a call of the compatible API for tasks and workers."""
    given = read(task.takes, call.request, call.body)
    query = call.request.query
    if isinstance(given, NewTask) and not given.traceparent:
        query = {**query, **_trace_in(call.request)}  # a node that follows forwards no headers
        given = read(task.takes, attrs.evolve(call.request, query=query), call.body)

    async def here() -> Response:
        return await task.act(call.shared.context(call.caller), given)

    router, request = call.shared.router, call.request
    if router is None:
        return await here()
    return await router.request(
        here,
        lambda following: following.request(call.caller, request.method, request.path, query, call.body),
        waits=task.waits,
    )


async def _state(entry: Entry, call: Call) -> Response:
    """The snapshot; the encoded bytes are shared by simultaneous requests."""
    _command_in(entry, call)
    shared = call.shared
    limited = shared.context(call.caller).limited
    states = shared.states if call.caller.sees_receivers else shared.viewer_states
    body = await (states.body() if limited is None else states.encoded(await limited.snapshot()))
    return Response(200, pieces=body.pieces, held=body)


def _query(request: Request, entry: Entry) -> dict[str, Any]:
    for field in msgspec.structs.fields(entry.wire):
        if "null" in request.query.get(field.name, ()) and not _takes_text(field.type):
            raise Invalid(f"{field.name} must be a number (got null)", path=field.name)
    given: dict[str, Any] = {}
    for name, values in request.query.items():
        given[name] = values[0] if len(values) == 1 else values
    for name in _MOMENTS & given.keys():
        if isinstance(given[name], str) and not _is_number(given[name]):
            raise Invalid(f"{name} must be a time in Unix seconds (got {shown(given[name])})", path=name)
    assert entry.http is not None, "an entry without `http` has no route"
    for name, mapping in entry.http.pairs.items():
        if mapping in given:
            raise Invalid(
                f"query: object contains unknown field {mapping}: repeat {name}=NAME=VALUE", path=mapping
            )
        if given.pop(name, None) is not None:
            given[mapping] = named_values(name, request.query[name])
    return given


_MOMENTS = {"since", "until"}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text == "null"
    return True


def _takes_text(kind: Any) -> bool:
    """Whether a field can be a string; then the text `null` is that string, otherwise it is null."""
    return kind is str or any(_takes_text(part) for part in get_args(kind))


def _object(body: bytes) -> dict[str, Any]:
    return JSON.decode(body, dict[str, Any]) if body else {}


def _convert_integral_floats(given: dict[str, Any], entry: Entry) -> None:
    """Convert floats such as 2.0 to integers in integer fields, because JSON schemas accept them."""
    for field in msgspec.structs.fields(entry.wire):
        value = given.get(field.name)
        if isinstance(value, float) and value.is_integer() and _is_integer(field.type):
            given[field.name] = int(value)


def _is_integer(kind: Any) -> bool:
    """Whether a field is an integer."""
    parts = get_args(kind) or (kind,)
    return int in parts or any(_is_integer(part) for part in parts if get_args(part))


async def _lane(call: Call) -> Response:
    name = check_name("lane", lane_name(call.names["lane"]))
    lane = await call.shared.engine.look(lambda committed: committed.lane(name))
    return answer(lane if call.caller.sees_receivers else of_lane(lane))


async def _lanes(call: Call) -> Response:
    return answer(await call.shared.engine.look(lambda committed: committed.counts()))


async def _run_file(call: Call) -> Response:
    return await run_file(call.shared, call.caller, call.names["run_id"], call.names["path"])


async def _ticket(call: Call) -> Response:
    return answer({"ticket": call.shared.tickets.issue(call.caller)}, 201)


async def _healthz(call: Call) -> Response:
    return answer({"status": "ok"})


async def _readyz(call: Call) -> Response:
    if call.shared.closing:
        raise Unavailable("gateway is shutting down")
    router = call.shared.router
    if router is not None and router.leading is not None and not router.leading.is_current:
        raise no_leader("this node could not renew its lease, so it executes no commands")
    call.shared.engine.check_ready()
    return answer({"status": "ready"})


async def _metrics(call: Call) -> Response:
    shared = call.shared
    counts = await shared.engine.look(lambda committed: committed.counts())
    engine = shared.engine
    workers, executors = await engine.workers.list(), await engine.executors.list()
    schedules = await engine.look(sorted_schedules)
    webhooks = await engine.webhooks.counts()
    text = shared.metrics.exposition(counts, workers, executors, schedules, webhooks, lag=shared.lag)
    return Response(200, text, CONTENT_TYPE)


async def _events(call: Call) -> Response:
    return events(call.shared, call.request, call.caller)


async def _document(name: str, call: Call) -> Response:
    if name not in _DOCUMENTS:
        from ..description.documents import documents  # it imports this module

        made = await trio.to_thread.run_sync(documents)
        _DOCUMENTS.update((file, text.encode()) for file, text in made.items())
    return Response(200, _DOCUMENTS[name], headers=(("Cache-Control", "no-cache"),))


async def _client_file(name: str, call: Call) -> Response:
    return client_file(call.request, name)


async def _console(call: Call) -> Response:
    """The page of the web console, or a file that it loads."""
    segments = call.request.segments
    is_handshake = "sec-websocket-key" in call.request.headers  # a proxy has removed its upgrade
    if call.shared.config.console and not is_handshake:
        await console.load()
        found = console.find(segments)
        if found is not None:
            return console.response(found, call.request)
    raise _not_found(segments)


async def _lost(call: Call) -> Response:
    """The page at an address that has nothing."""
    await console.load()
    return console.lost(call.request)


def _table() -> dict[tuple[str, ...], dict[str, Route]]:
    table: dict[tuple[str, ...], dict[str, Route]] = {}

    def add(method: str, path: str, route: Route) -> None:
        table.setdefault(tuple(path.split("/")[1:]), {})[method] = route

    for entry in TABLE:
        if entry.http is not None:
            run = _state if entry.wire is GetSnapshot else _command
            add(entry.http.method, entry.http.path, Route(entry.role, partial(run, entry), limited=True))
    for task in TASK_CALLS:
        act = partial(_task_call, task)
        workers, waits = task.workers, task.waits
        route = Route(task.role, act, workers=workers, limited=True, any_type=True, waits=waits)
        add(task.method, task.path, route)
        add(task.method, f"/api{task.path}", route)
    add("GET", "/api/events", Route(Role.VIEWER, _events, tickets=True, limited=True))
    add("POST", "/api/tickets", Route(Role.VIEWER, _ticket, limited=True))
    add("GET", "/api/runs/{run_id}/files/{path}", Route(Role.VIEWER, _run_file, tickets=True, limited=True))
    add("GET", "/api/lanes", Route(Role.VIEWER, _lanes))
    add("GET", "/api/lanes/{lane}", Route(Role.VIEWER, _lane))
    for name in FILES:
        add("GET", f"/{name}", Route(None, partial(_client_file, name)))
    for name in ("openapi.json", "asyncapi.json", "asyncapi-executor.json"):
        add("GET", f"/{name}", Route(None, partial(_document, name)))
    add("GET", "/healthz", Route(None, _healthz))
    add("GET", "/readyz", Route(None, _readyz))
    add("GET", "/metrics", Route(Role.VIEWER, _metrics))
    for methods in table.values():
        if "GET" in methods:
            methods["HEAD"] = methods["GET"]
    return table


_TABLE = _table()

_CONSOLE = Route(None, _console)

_PAGE: Methods = {method: (_CONSOLE, {}) for method in ("GET", "HEAD")}

_LOST: Methods = {method: (Route(None, _lost), {}) for method in ("GET", "HEAD")}

_DOCUMENTS: dict[str, bytes] = {}
"""The generated documents, cached after the first request."""


_WITH_ERROR_FIELD = frozenset(f"{api}{task.path}" for task in TASK_CALLS for api in ("", "/api"))


def has_error_field(request: Request) -> bool:
    """Whether clients of this path expect the text of an error in the field `error`."""
    return request.path in _WITH_ERROR_FIELD


def paths() -> Iterator[tuple[str, str]]:
    """The method and the path of each route except HEAD, for the OpenAPI document."""
    for segments, methods in _TABLE.items():
        for method in methods:
            if method != "HEAD":
                yield method, "/" + "/".join(segments)


def offered(request: Request, config: GatewayConfig) -> Methods:
    """The methods of the request's path: those of the console's page for a person who visits a view, or of
    a page that says that there is nothing."""
    if config.console and console.is_visited(request):
        return _PAGE
    try:
        return find(request.segments)
    except NotFound:
        if config.console and console.asks_for_page(request):
            return _LOST
        raise


def find(segments: tuple[str, ...]) -> Methods:
    """The methods of a path, each with the values of the names in it. A path without names comes first, as in
    OpenAPI. Raises `NotFound`."""
    if segments in _TABLE:
        return {method: (route, {}) for method, route in _TABLE[segments].items()}
    methods: Methods = {}
    for template, routes in _TABLE.items():
        names = _match(template, segments)
        if names is not None:
            for method, route in routes.items():
                methods.setdefault(method, (route, names))
    if console.is_address(segments):
        for method in ("GET", "HEAD"):
            methods.setdefault(method, (_CONSOLE, {}))
    if not methods:
        raise _not_found(segments)
    return methods


def _not_found(segments: tuple[str, ...]) -> NotFound:
    return NotFound(f"path /{'/'.join(segments)} not found", value="/".join(segments)[:200])


def _match(template: tuple[str, ...], segments: tuple[str, ...]) -> dict[str, str] | None:
    if len(template) != len(segments):
        return None
    names = {}
    for wanted, segment in zip(template, segments, strict=True):
        if wanted.startswith("{"):
            names[wanted[1:-1]] = segment
        elif wanted != segment:
            return None
    return names
