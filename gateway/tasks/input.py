"""The request types of the compatible API, and their parser.

Names of fields match regardless of case and underscores, null and unknown fields are ignored, and fields can
also be in the query.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec

from ...protocol.codec import JSON, misfit
from ...protocol.errors import GreenroomError, Invalid
from ...protocol.values import shown
from ..http.head import Request

PAGE_SIZE = 10
"""The default number of entries of a page."""

MAX_PAGE_SIZE = 1000
MAX_PAGE = 2_000_000

_Given = TypeVar("_Given", bound=msgspec.Struct)
_Refused = TypeVar("_Refused", bound=GreenroomError)


def read(kind: type[_Given], request: Request, body: bytes) -> _Given:
    """Parse a request. Raises `Invalid`."""
    in_query = {name: _only(name, texts) for name, texts in request.query.items()}
    given = _named(kind, {name: text for name, text in in_query.items() if text}, "query")
    if request.method == "POST" and body:
        given |= _named(kind, JSON.decode(body, dict[str, Any]), "body")
    try:
        return msgspec.convert(given, kind, strict=not request.query)  # numbers in a query are strings
    except msgspec.ValidationError as error:
        raise misfit(error, "the request") from None


def named(error: _Refused, **names: str) -> _Refused:
    """The same error with the name of the request's field: it replaces the engine's name of the value at the
    start of the message."""
    for internal, field in names.items():
        rest = error.message.removeprefix(internal)
        if rest != error.message and rest[:1] in (" ", ":", ".", "["):
            return type(error)(f"{field}{rest}", **{**error.details, "path": field})
    return error


def size_of(given: Paged, usual: int) -> int:
    """The number of entries of a page."""
    if given.page_size > MAX_PAGE_SIZE:
        text = f"page_size must be at most {MAX_PAGE_SIZE} (got {given.page_size})"
        raise Invalid(text, path="page_size")
    return given.page_size if given.page_size > 0 else usual


def offset_of(given: Paged, size: int) -> int:
    """The number of entries on the pages before."""
    if given.page > MAX_PAGE:
        raise Invalid(f"page must be at most {MAX_PAGE:,} (got {given.page})", path="page")
    return (max(given.page, 1) - 1) * size


def json_object(what: str, written: str | dict[str, Any]) -> dict[str, Any]:
    """An object, or a JSON text of one; an empty text is an empty object."""
    if isinstance(written, dict):
        return written
    if not written.strip():
        return {}
    try:
        value: Any = JSON.decode(written, Any)
    except Invalid as error:
        raise Invalid(f"{what}: {error.message}", path=what) from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Invalid(f"{what} must be a JSON object (got {shown(value)})", path=what)
    return value


def _named(kind: type[msgspec.Struct], given: dict[str, Any], where: str) -> dict[str, Any]:
    """The given fields of `kind`, with their names in `kind`."""
    names, fields = _fields(kind), {}
    for spelled, value in given.items():
        name = names.get(_folded(spelled))
        if name is None or value is None:
            continue
        if name in fields:
            raise Invalid(f"{name} is in the {where} more than once, in different spellings", path=name)
        fields[name] = value
    return fields


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, str]:
    return {_folded(name): name for name in kind.__struct_fields__}


def _folded(name: str) -> str:
    return name.replace("_", "").lower()


def _only(name: str, texts: list[str]) -> str:
    if len(texts) > 1:
        raise Invalid(f"{name[:100]} is in the query more than once", path=name[:100])
    return texts[0]


# Requests.


class RegisterWorker(msgspec.Struct):
    """Register a worker."""

    id: str
    services: list[str]
    url: str = ""
    load: float = 0
    type: str = "http"


class WorkerHeartbeat(msgspec.Struct):
    """Report that a worker is alive."""

    id: str
    load: float | None = None


class FindWorkers(msgspec.Struct):
    """List the workers of a service with a heartbeat in the last `ttl` seconds."""

    service: str | None = None
    ttl: float = 0


class AllocateWorker(msgspec.Struct):
    """Select a worker of a service."""

    service: str


class Paged(msgspec.Struct):
    """A page of a list; the first is 1."""

    page: int = 1
    page_size: int = PAGE_SIZE

    @property
    def is_page(self) -> bool:
        """Whether the request is for a page."""
        return self.page > 0 or self.page_size > 0


class NewFlow(msgspec.Struct):
    """Create a flow."""

    name: str
    description: str = ""


class NewVersion(msgspec.Struct):
    """Create a version of a flow; version 0 means the next one."""

    flow_id: str
    version: int = 0
    definition_json: str | dict[str, Any] = ""
    definition_yaml: str = ""
    status: str = ""


class OfFlow(Paged, kw_only=True):
    """A page of a list that belongs to a flow."""

    flow_id: str
    page: int = 0
    page_size: int = 0


class ById(msgspec.Struct):
    """An object by its id."""

    id: str


class NewTask(msgspec.Struct):
    """Create a task of a version of a flow; version 0 means the latest published one. `flow_version_id` can
    replace both. Two requests with the same `request_id` create one task. `traceparent` and `tracestate`
    precede the headers of the same names."""

    flow_id: str = ""
    flow_version_id: str = ""
    version: Annotated[int, msgspec.Meta(ge=0)] = 0
    params_json: str | dict[str, Any] = ""
    request_id: str = ""
    traceparent: str = ""
    tracestate: str = ""


class FindTasks(Paged):
    """List tasks with a status, of a flow version."""

    status: str = ""
    flow_version_id: str | None = None


class OfTask(Paged, kw_only=True):
    """A page of a list that belongs to a task."""

    task_id: str
    page: int = 0
    page_size: int = 0


class TaskSignal(msgspec.Struct):
    """Set a value in a task's shared data."""

    task_id: str
    key: str
    value: Any = None


class PollQueue(msgspec.Struct):
    """Poll for work."""

    worker_id: str
    services: list[str]


class CompleteItem(msgspec.Struct):
    """Report the result of a work item, or its failure if there is an `error`."""

    queue_id: str
    result: Any = None
    error: str = ""
    worker_id: str | None = None


class ExtendItem(msgspec.Struct):
    """Extend the lease of a work item."""

    queue_id: str
    worker_id: str
