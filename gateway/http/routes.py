"""Which request is what: the paths of the command table, and the few that HTTP has for itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, get_args

import attrs
import msgspec
import trio

from ...protocol.codec import JSON, misfit
from ...protocol.commands import GetSnapshot
from ...protocol.errors import Invalid, NotFound, Unavailable
from ...protocol.names import check_name, lane_name
from ...protocol.values import shown
from ..auth.tokens import Caller, Role
from ..commands.entries import Entry
from ..commands.table import TABLE
from ..shared import Shared
from ..tasks.calls import TABLE as TASK_CALLS
from ..tasks.calls import TaskCall
from ..tasks.input import read
from .head import Request
from .javascript import FILES, client_file
from .metrics import CONTENT_TYPE
from .responses import Response, answer
from .sse import events


@attrs.frozen
class Call:
    """A request that may be carried out."""

    shared: Shared
    caller: Caller
    request: Request
    names: dict[str, str]
    body: bytes


@attrs.frozen
class Route:
    """What answers a request. `role` is `None` where nobody is asked who they are."""

    role: Role | None
    run: Callable[[Call], Awaitable[Response]]
    tickets: bool = False
    """Whether a one-time ticket in the query is as good as a token."""
    workers: bool = False
    """Whether workers may do it, too; by `workers_without_token`, those on this machine without a token."""
    limited: bool = False
    """Whether it keeps to the limits of a token; else it needs one that has none."""
    any_type: bool = False
    """Whether programs may leave out that the body is JSON."""
    waits: bool = False
    """Whether the answer may take long: it is given up when the client goes away."""

    def permits(self, caller: Caller) -> bool:
        """Whether this caller may do it."""
        if self.workers and caller.role is Role.WORKER:
            return True
        return self.role is None or caller.role.permits(self.role)


async def _command(entry: Entry, call: Call) -> Response:
    """Carry out a command of the table."""
    http, act = entry.http, entry.call
    assert http is not None, "it stands in the routes"
    assert act is not None, "only what WebSocket connections do themselves has no call"
    command, called = _command_in(entry, call)
    try:
        fields = await act(call.shared.context(call.caller), command) or {}
    except Invalid as error:
        raise _as_called(error, called) from None
    if http.body is not None:
        return answer(fields[http.body])
    status = 200 if fields.get("joined") else http.status
    return answer({"seq": call.shared.engine.stream.last_seq, **fields}, status)


def _command_in(entry: Entry, call: Call) -> tuple[Any, dict[str, str]]:
    """The command, and under which other names its fields were given."""
    http = entry.http
    assert http is not None, "it stands in the routes"
    reads = http.method == "GET"
    given = _query(call.request, entry) if reads else _object(call.body)
    called: dict[str, str] = {}
    for name, meant in http.also.items():
        if name in given:
            value = given.pop(name)
            if given.setdefault(meant, value) is value:
                called[meant] = name
    if not reads:
        _make_whole(given, entry)
    for name, value in call.names.items():
        if given.setdefault(name, value) != value:
            raise Invalid(f"{name}: {shown(value)} in the path, and something else beside it", path=name)
    whole = "query" if reads else "message"
    for name in ("id", "type"):
        if name in given:
            raise Invalid(f"{whole}: object contains unknown field {name}", path=name)
    try:
        return msgspec.convert({"id": 0, **given}, entry.wire, strict=not reads), called
    except msgspec.ValidationError as error:
        raise _as_called(misfit(error, whole), called) from None


def _as_called(error: Invalid, called: dict[str, str]) -> Invalid:
    """The same error about a field, under the name that it was given."""
    for meant, name in called.items():
        if error.message.startswith((f"{meant} ", f"{meant}:")):
            details = {**error.details, **({"path": name} if "path" in error.details else {})}
            return Invalid(name + error.message.removeprefix(meant), **details)
    return error


async def _task_call(task: TaskCall, call: Call) -> Response:
    """Carry out one of the calls of clients and workers of flows."""
    given = read(task.takes, call.request, call.body)
    return await task.act(call.shared.context(call.caller), given)


async def _state(entry: Entry, call: Call) -> Response:
    """The whole state, which is encoded once for all who ask for it."""
    _command_in(entry, call)
    limited = call.shared.context(call.caller).limited
    states = call.shared.states
    body = await (states.body() if limited is None else states.encoded(await limited.snapshot()))
    return Response(200, pieces=body.pieces, held=body)


def _query(request: Request, entry: Entry) -> dict[str, Any]:
    for field in msgspec.structs.fields(entry.wire):
        if "null" in request.query.get(field.name, ()) and not _takes_text(field.type):
            raise Invalid(f"{field.name}: expected a number, got null", path=field.name)
    return {name: values[0] if len(values) == 1 else values for name, values in request.query.items()}


def _takes_text(kind: Any) -> bool:
    """Whether a text may stand in a field, which would be taken for null otherwise if it says so."""
    return kind is str or any(_takes_text(part) for part in get_args(kind))


def _object(body: bytes) -> dict[str, Any]:
    return JSON.decode(body, dict[str, Any]) if body else {}


def _make_whole(given: dict[str, Any], entry: Entry) -> None:
    """Where only whole numbers may stand, 2.0 is one, as it is for JSON schemas."""
    for field in msgspec.structs.fields(entry.wire):
        value = given.get(field.name)
        if isinstance(value, float) and value.is_integer() and _is_whole(field.type):
            given[field.name] = int(value)


def _is_whole(kind: Any) -> bool:
    """Whether a whole number may stand in a field, and no other."""
    parts = get_args(kind) or (kind,)
    return int in parts or any(_is_whole(part) for part in parts if get_args(part))


async def _lane(call: Call) -> Response:
    name = check_name("lane", lane_name(call.names["lane"]))
    return answer(await call.shared.engine.look(lambda committed: committed.lane(name)))


async def _lanes(call: Call) -> Response:
    return answer(await call.shared.engine.look(lambda committed: committed.counts()))


async def _ticket(call: Call) -> Response:
    return answer({"ticket": call.shared.tickets.issue(call.caller)}, 201)


async def _healthz(call: Call) -> Response:
    return answer({"status": "ok"})


async def _readyz(call: Call) -> Response:
    if call.shared.closing:
        raise Unavailable("the gateway is being closed")
    call.shared.engine.check_ready()
    return answer({"status": "ready"})


async def _metrics(call: Call) -> Response:
    shared = call.shared
    counts = await shared.engine.look(lambda committed: committed.counts())
    text = shared.metrics.exposition(counts, await shared.engine.workers.list(), lag=shared.lag)
    return Response(200, text, CONTENT_TYPE)


async def _events(call: Call) -> Response:
    return events(call.shared, call.request, call.caller)


async def _document(name: str, call: Call) -> Response:
    if name not in _DOCUMENTS:
        from ..description.documents import documents  # which describes these routes, too

        # Making them takes a while, once.
        made = await trio.to_thread.run_sync(documents)
        _DOCUMENTS.update((file, text.encode()) for file, text in made.items())
    return Response(200, _DOCUMENTS[name], headers=(("Cache-Control", "no-cache"),))


async def _client_file(name: str, call: Call) -> Response:
    return client_file(call.request, name)


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
    add("GET", "/api/lanes", Route(Role.VIEWER, _lanes))
    add("GET", "/api/lanes/{lane}", Route(Role.VIEWER, _lane))
    for name in FILES:
        add("GET", f"/{name}", Route(None, partial(_client_file, name)))
    for name in ("openapi.json", "asyncapi.json"):
        add("GET", f"/{name}", Route(None, partial(_document, name)))
    add("GET", "/healthz", Route(None, _healthz))
    add("GET", "/readyz", Route(None, _readyz))
    add("GET", "/metrics", Route(Role.VIEWER, _metrics))
    for methods in table.values():
        if "GET" in methods:
            methods["HEAD"] = methods["GET"]
    return table


_TABLE = _table()

_DOCUMENTS: dict[str, bytes] = {}
"""What is described, once somebody has asked for it."""


_SAYING_ERROR = frozenset(f"{api}{task.path}" for task in TASK_CALLS for api in ("", "/api"))


def says_error(request: Request) -> bool:
    """Whether those who ask for this look for the text of a refusal under `error`."""
    return request.path in _SAYING_ERROR


def paths() -> Iterator[tuple[str, str]]:
    """The method and the path of everything that is answered, for descriptions of it; without HEAD."""
    for segments, methods in _TABLE.items():
        for method in methods:
            if method != "HEAD":
                yield method, "/" + "/".join(segments)


def find(segments: tuple[str, ...]) -> tuple[dict[str, Route], dict[str, str]]:
    """The methods that a path has, and the names in it. Raises `NotFound`."""
    methods: dict[str, Route] = {}
    names: dict[str, str] = {}
    for template, offered in _TABLE.items():
        found = _match(template, segments)
        if found is not None:
            methods |= {method: route for method, route in offered.items() if method not in methods}
            names |= found
    if not methods:
        raise NotFound(f"there is nothing at /{'/'.join(segments)}", value="/".join(segments)[:200])
    return methods, names


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
