"""The types of the protocol in TypeScript, for `console/greenroom.d.ts`.

Events, records and error codes are derived from the Python types, so that the two cannot disagree.
`python -m greenroom.gateway.description.typescript gateway/console/greenroom.d.ts` rewrites that part of the
file. The part above the marker is written by hand.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from inspect import cleandoc
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import inspect

from ...protocol.errors import BY_CODE
from ...protocol.events import Event
from ...protocol.flow.records import FlowTask, NodeRun, QueueItem, WorkerState
from ...protocol.records import BulkResult, ClusterInfo, ExecutorInfo, JobInfo, RunFile, Snapshot
from ...protocol.states import Status
from ...protocol.webhooks import Webhook
from ..auth.tokens import Role

MARKER = "// Generated from the Python types; do not edit below this line.\n"

NAMES: dict[type, str] = {Status: "RunStatus"}
"""Types whose name says too little outside their module."""

_ROOTS = (
    *get_args(Event),
    Snapshot,
    FlowTask,
    NodeRun,
    WorkerState,
    QueueItem,
    ExecutorInfo,
    JobInfo,
    ClusterInfo,
    BulkResult,
    RunFile,
    Webhook,
    Role,
)
_PLAIN: dict[type[inspect.Type], str] = {
    inspect.AnyType: "unknown",
    inspect.NoneType: "null",
    inspect.BoolType: "boolean",
    inspect.IntType: "number",
    inspect.FloatType: "number",
    inspect.StrType: "string",
}


def protocol_types() -> str:
    """The generated part of the file."""
    found: dict[type, inspect.Type] = {}
    for root in inspect.multi_type_info(_ROOTS):
        _collect(root, found)
    events = [_name(event) for event in get_args(Event)]
    codes = (json.dumps(code) for code in BY_CODE)
    parts = [
        _union("ErrorCode", "The code of an error; see docs/reference/errors.md.", codes),
        *(_declaration(kind) for kind in found.values()),
        _union("GreenroomEvent", "Any event; `type` names its kind.", events),
    ]
    return "\n".join(parts)


def _collect(kind: inspect.Type, found: dict[type, inspect.Type]) -> None:
    """Add the structs and enums that a type consists of, each before those that refer to it."""
    match kind:
        case inspect.StructType(cls=cls, fields=fields):
            for field in fields:
                _collect(field.type, found)
            found.setdefault(cls, kind)
        case inspect.EnumType(cls=enum):
            found.setdefault(enum, kind)
        case inspect.UnionType(types=types) | inspect.TupleType(item_types=types):
            for one in types:
                _collect(one, found)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            _collect(item, found)
        case inspect.DictType(key_type=key, value_type=value):
            _collect(key, found)
            _collect(value, found)


def _declaration(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.EnumType):
        return _union(_name(kind.cls), kind.cls.__doc__, (json.dumps(str(one)) for one in kind.cls))
    assert isinstance(kind, inspect.StructType)
    lines = [f"{_comment(kind.cls.__doc__)}export interface {_name(kind.cls)} {{"]
    if kind.tag_field is not None:
        lines.append(f"  {kind.tag_field}: {json.dumps(kind.tag)};")
    lines += [f"  {_field(field, kind.cls.__struct_config__.omit_defaults)}" for field in kind.fields]
    return "\n".join([*lines, "}\n"])


def _field(field: inspect.Field, omits_defaults: bool) -> str:
    """A field with a default is optional if the struct omits defaults; a null default is never sent then."""
    if field.required:
        return f"{field.encode_name}: {_type(field.type)};"
    if not omits_defaults and field.default is not msgspec.UNSET:
        return f"{field.encode_name}: {_type(field.type)};"
    return f"{field.encode_name}?: {_type(field.type, without_null=field.default is None)};"


def _type(kind: inspect.Type, *, without_null: bool = False) -> str:
    plain = _PLAIN.get(type(kind))
    if plain is not None:
        return plain
    match kind:
        case inspect.StructType(cls=cls) | inspect.EnumType(cls=cls):
            return _name(cls)
        case inspect.LiteralType(values=values):
            return " | ".join(json.dumps(value) for value in values)
        case inspect.UnionType(types=types):
            kept = [one for one in types if not (without_null and isinstance(one, inspect.NoneType))]
            names = dict.fromkeys(_type(one) for one in kept)
            return " | ".join(sorted(names, key=lambda name: name == "null"))
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return f"{_type(item)}[]"
        case inspect.TupleType(item_types=types):
            return f"[{', '.join(map(_type, types))}]"
        case inspect.DictType(key_type=key, value_type=value):
            return f"Record<{_type(key)}, {_type(value)}>"
    raise TypeError(f"no TypeScript type for {kind}")


def _name(cls: type) -> str:
    return NAMES.get(cls, cls.__name__)


def _union(name: str, doc: str | None, members: Iterable[str]) -> str:
    return f"{_comment(doc)}export type {name} =\n" + "\n".join(f"  | {one}" for one in members) + ";\n"


def _comment(doc: Any) -> str:
    text = cleandoc(doc or "").replace("`None`", "`null`")
    lines = text.splitlines()
    if len(lines) == 1:
        return f"/** {text} */\n"
    return "".join(("/**\n", *(f" * {line}".rstrip() + "\n" for line in lines), " */\n"))


def updated(text: str) -> str:
    """The text of the file, with the part below the marker generated again."""
    by_hand, marker, _ = text.partition(MARKER)
    if not marker:
        raise ValueError(f"the file has no line {MARKER.strip()!r}")
    return f"{by_hand}{marker}\n{protocol_types()}"


def main(file: str) -> None:
    """Rewrite the generated part of the file."""
    path = Path(file)
    path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
