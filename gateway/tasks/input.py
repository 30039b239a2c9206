"""What clients of tasks and workers send, and how it is read: keys are matched without regard to case and
underscores, what is null or unknown is taken as absent, and names may stand in the query, too."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec

from ...protocol.codec import JSON, misfit
from ...protocol.errors import GreenroomError, Invalid
from ...protocol.values import shown
from ..http.head import Request

PAGE_SIZE = 10
"""How much of a list a page holds, unless it is said."""

MAX_PAGE_SIZE = 1000
MAX_PAGE = 2_000_000

_Given = TypeVar("_Given", bound=msgspec.Struct)
_Refused = TypeVar("_Refused", bound=GreenroomError)


def read(kind: type[_Given], request: Request, body: bytes) -> _Given:
    """What a request asks for. Raises `Invalid` where it has another form."""
    in_query = {name: _only(name, texts) for name, texts in request.query.items()}
    given = _named(kind, {name: text for name, text in in_query.items() if text}, "query")
    if request.method == "POST" and body:
        given |= _named(kind, JSON.decode(body, dict[str, Any]), "body")
    try:
        return msgspec.convert(given, kind, strict=not request.query)  # numbers in a query are texts
    except msgspec.ValidationError as error:
        raise misfit(error, "the request") from None


def named(error: _Refused, **names: str) -> _Refused:
    """The same refusal in the words of who asked: the engine's name of a value, with which a text begins, is
    replaced by that of the field which it was sent in."""
    for ours, theirs in names.items():
        rest = error.message.removeprefix(ours)
        if rest != error.message and rest[:1] in (" ", ":", ".", "["):
            return type(error)(f"{theirs}{rest}", **{**error.details, "path": theirs})
    return error


def size_of(given: Paged, usual: int) -> int:
    """How many entries a page has."""
    if given.page_size > MAX_PAGE_SIZE:
        text = f"page_size: must be at most {MAX_PAGE_SIZE} (got {given.page_size})"
        raise Invalid(text, path="page_size")
    return given.page_size if given.page_size > 0 else usual


def offset_of(given: Paged, size: int) -> int:
    """How many entries are on the pages before."""
    if given.page > MAX_PAGE:
        raise Invalid(f"page: must be at most {MAX_PAGE:,} (got {given.page})", path="page")
    return (max(given.page, 1) - 1) * size


def json_object(what: str, written: str | dict[str, Any]) -> dict[str, Any]:
    """An object, which may be written as a JSON text; nothing at all is an empty one."""
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
        raise Invalid(f"{what}: must hold a JSON object, not {shown(value)}", path=what)
    return value


def _named(kind: type[msgspec.Struct], given: dict[str, Any], where: str) -> dict[str, Any]:
    """The fields of `kind` that are given, under their own names."""
    names, fields = _fields(kind), {}
    for spelled, value in given.items():
        name = names.get(_folded(spelled))
        if name is None or value is None:
            continue
        if name in fields:
            raise Invalid(f"{name}: it stands in the {where} more than once, differently spelled", path=name)
        fields[name] = value
    return fields


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, str]:
    return {_folded(name): name for name in kind.__struct_fields__}


def _folded(name: str) -> str:
    return name.replace("_", "").lower()


def _only(name: str, texts: list[str]) -> str:
    if len(texts) > 1:
        raise Invalid(f"{name[:100]}: it stands in the query more than once", path=name[:100])
    return texts[0]


# Of workers.


class RegisterWorker(msgspec.Struct):
    """A worker is there."""

    id: str
    services: list[str]
    url: str = ""
    load: float = 0
    type: str = "http"


class WorkerHeartbeat(msgspec.Struct):
    """A worker lives."""

    id: str
    load: float | None = None


class FindWorkers(msgspec.Struct):
    """Who serves a service, and was heard of within `ttl` seconds."""

    service: str | None = None
    ttl: float = 0


class AllocateWorker(msgspec.Struct):
    """Who is best called for a service."""

    service: str


class Paged(msgspec.Struct):
    """A page of a list, from 1."""

    page: int = 1
    page_size: int = PAGE_SIZE

    @property
    def is_page(self) -> bool:
        """Whether a certain page is asked for."""
        return self.page > 0 or self.page_size > 0


class NewFlow(msgspec.Struct):
    """A flow to make."""

    name: str
    description: str = ""


class NewVersion(msgspec.Struct):
    """A version of a flow to make; 0 is the next."""

    flow_id: str
    version: int = 0
    definition_json: str | dict[str, Any] = ""
    definition_yaml: str = ""
    status: str = ""


class OfFlow(Paged, kw_only=True):
    """A page of what belongs to a flow, by its id."""

    flow_id: str
    page: int = 0
    page_size: int = 0


class ById(msgspec.Struct):
    """Something by its id."""

    id: str


class NewTask(msgspec.Struct):
    """A task to make, of a version or, as 0, of the latest that is published; the version may be named by its
    id instead. The same `request_id` twice is one task."""

    flow_id: str = ""
    flow_version_id: str = ""
    version: Annotated[int, msgspec.Meta(ge=0)] = 0
    params_json: str | dict[str, Any] = ""
    request_id: str = ""


class FindTasks(Paged):
    """Tasks that have a status and walk a version."""

    status: str = ""
    flow_version_id: str | None = None


class OfTask(Paged, kw_only=True):
    """A page of what belongs to a task, by its id."""

    task_id: str
    page: int = 0
    page_size: int = 0


class TaskSignal(msgspec.Struct):
    """A value for what a task shares."""

    task_id: str
    key: str
    value: Any = None


class PollQueue(msgspec.Struct):
    """A worker wants work."""

    worker_id: str
    services: list[str]


class CompleteItem(msgspec.Struct):
    """A piece of work is done, or has failed if there is an `error`."""

    queue_id: str
    result: Any = None
    error: str = ""
    worker_id: str | None = None


class ExtendItem(msgspec.Struct):
    """A worker still works on it."""

    queue_id: str
    worker_id: str
