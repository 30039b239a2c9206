"""Convert a plain value to a `Graph` with cattrs, or report all errors in its fields.

`fields` parses the fields. Null is an empty field. An empty field of another kind of node is allowed, because
some programs write the fields of all kinds. `check` checks whether the parts fit together, for example the
targets of edges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Literal, get_args, get_origin, get_type_hints

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn, override

from ..errors import Invalid
from ..structuring import MAX_MISTAKES, Fault, Keys, Several, faults_in, written_path
from ..suggestions import suggestion
from ..values import shown
from . import fields
from .documents import parse
from .execs import misfits
from .expressions import read_expression
from .model import (
    KINDS,
    BranchExec,
    ChoiceCase,
    Edge,
    ExecType,
    ExecutorType,
    Graph,
    ItemExec,
    Node,
    NodeExec,
    Post,
    Prep,
    Script,
    UnhandledErrors,
)
from .paths import parse_path, parse_target

MAX_NODES = 10_000
"""The maximum number of nodes of a graph, including those of its subflows."""

MAX_SUBFLOWS = 20
"""The maximum nesting depth of subflows."""

_OLDER = {"local_func": "local"}


def read_graph(definition: Mapping[str, Any] | str) -> Graph:
    """Return the graph of a definition that was already checked. Raises `Invalid` with all errors."""
    _, graph, faults = read(definition)
    if graph is None:
        mistakes = rendered(faults)
        raise Invalid("\n".join(mistakes), mistakes=mistakes)
    return graph


def read(definition: Mapping[str, Any] | str) -> tuple[Any, Graph | None, list[Fault]]:
    """Return the definition as a plain value, as far as possible; its graph; and if there is no graph, the
    errors in the text and the fields."""
    value, faults = parse(definition)
    if value is None and faults:
        return None, None, faults
    too_large = _size_fault(value)
    if too_large:
        return value, None, [*faults, *too_large]
    graph = None
    try:
        graph = _converter.structure(value, Graph)
    except Exception as error:  # the errors of the fields, grouped by cattrs
        refused = {keys for keys, _ in faults}  # where null replaces an invalid value
        faults += [(keys, text) for keys, text in faults_in(error) if keys not in refused]
    return value, None if faults else graph, faults


def _size_fault(value: Any) -> list[Fault]:
    """Return an error if there are too many nodes or too deep subflows to check the rest."""
    nodes = 0
    graphs: list[tuple[Keys, Any]] = [((), value)]
    while graphs:
        keys, graph = graphs.pop()
        inner = graph.get("nodes") if isinstance(graph, Mapping) else None
        if not isinstance(inner, Mapping):
            continue
        nodes += len(inner)
        if nodes > MAX_NODES:
            return [((), f"has too many nodes: at most {MAX_NODES:,} are allowed")]
        for key, node in inner.items():
            subflow = node.get("subflow") if isinstance(node, Mapping) else None
            if isinstance(subflow, Mapping):
                its_keys = (*keys, "nodes", key, "subflow")
                if len(its_keys) > 3 * MAX_SUBFLOWS:
                    return [(its_keys, f"is nested more than {MAX_SUBFLOWS} levels deep: use a flow_ref")]
                graphs.append((its_keys, subflow))
    return []


def rendered(faults: list[Fault]) -> list[str]:
    """Return the faults as messages with their paths; of very many faults, the first ones."""
    different = list(dict.fromkeys(faults))
    messages = [f"{written_path(keys) or 'definition'}: {text}" for keys, text in different[:MAX_MISTAKES]]
    if len(different) > MAX_MISTAKES:
        messages.append("definition: further errors are not listed")
    return messages


# Parsers of fields by their type, or by their name if the type is not specific enough.

_Read = Callable[[Any], Any]


def _nodes(value: Any) -> dict[str, Node]:
    nodes = fields.mapping(value)
    if not nodes:
        raise ValueError("must contain at least one node")
    fields.each(fields.name, {key: key for key in nodes})
    return fields.each(_node, nodes)


def _node(value: Any) -> Node:
    kind = fields.mapping(value).get("kind")
    if kind in (None, ""):
        raise Several([(("kind",), f"is missing{suggestion('', KINDS)}")])
    if isinstance(kind, str) and kind in KINDS:
        node: Node = _converter.structure(value, KINDS[kind])
        return node
    text = f"unknown kind {shown(kind)}{suggestion(str(kind), KINDS)}"
    faults: list[Fault] = [(("kind",), text)]
    common = {field.name for field in attrs.fields(Node)}
    try:
        _structured(Node)({key: part for key, part in value.items() if key in common})
    except Several as error:
        faults += error.faults
    raise Several(faults)


def _structured(cls: type[Any]) -> _Read:
    return lambda value: _converter.structure(value, cls)


def _script(value: Any) -> Any:
    return _converter.structure(value, Script) if isinstance(value, Mapping) else fields.arguments(value)


_BY_NAME: dict[str, _Read] = {
    "from": fields.name,
    "to": fields.destination,
    "start": fields.name,
    "nodes": _nodes,
    "edges": fields.every(_structured(Edge)),
    "params": fields.mapping,
    "input_key": fields.optional(parse_path),
    "input_map": fields.input_map,
    "output_key": fields.optional(parse_target),
    "output_map": fields.output_map,
    "action_static": fields.optional(fields.name),
    "action_key": fields.optional(parse_path),
    "default_action": fields.optional(fields.name),
    "on_error": fields.optional(fields.name),
    "on_timeout": fields.optional(fields.name),
    "timeout_ms": fields.limit,
    "service": fields.optional(fields.name),
    "func": fields.optional(fields.name),
    "script": _script,
    "cmd": fields.program,
    "args": fields.every(fields.text),
    "parallel_execs": fields.every(_structured(BranchExec)),
    "foreach_execs": fields.every(_structured(ItemExec)),
    "subflow_execs": fields.every(_structured(NodeExec)),
    "node": fields.name,
    "choice_cases": fields.every(_structured(ChoiceCase)),
    "parallel_services": fields.every(fields.name),
    "flow": fields.name,
    "version": fields.version,
    "expr": read_expression,
    "unhandled_errors": fields.optional(fields.one_of(*get_args(UnhandledErrors), older={})),
}
_BY_TYPE: dict[Any, _Read] = {int: fields.whole, float: fields.milliseconds, bool: fields.truth}


def _reader(cls: type, name: str, hint: Any) -> _Read:
    if name == "action":
        return fields.action if cls is Edge else fields.name
    if name in _BY_NAME:
        return _BY_NAME[name]
    if get_origin(hint) is Literal:
        return fields.one_of(*get_args(hint), older=_OLDER)
    for option in get_args(hint):
        if get_origin(option) is Literal:
            return fields.optional(fields.one_of(*get_args(option), older=_OLDER))
    return _BY_TYPE.get(hint) or _structured(hint)


# Checks of fields together.


_EXEC_TYPES = {"executor": get_args(ExecutorType), "foreach": get_args(ExecType)}


def _callee(kind: str, given: dict[str, Any]) -> list[Fault]:
    """Return the missing and the unused fields of a node that calls something."""
    given["exec_type"] = given.get("exec_type") or ("local" if given.get("func") else "http")
    exec_type = given["exec_type"]
    if not isinstance(exec_type, str) or _OLDER.get(exec_type, exec_type) not in _EXEC_TYPES[kind]:
        return []  # reported as an error of that field
    exec_type = _OLDER.get(exec_type, exec_type)
    faults: list[Fault] = []
    if exec_type in ("http", "queue"):
        if not given.get("service"):
            faults.append((("service",), f"is missing: exec_type {shown(exec_type)} calls a service"))
        if given.get("func"):
            faults.append((("func",), f"has no effect: exec_type {shown(exec_type)} calls a service"))
    elif exec_type == "local" and not given.get("func") and not given.get("service"):
        faults.append((("func",), 'is missing: exec_type "local" calls a function'))
    if exec_type == "local_script" and _is_empty(given.get("script")):
        faults.append((("script",), 'is missing: exec_type "local_script" starts a program'))
    elif exec_type != "local_script" and not _is_empty(given.get("script")):
        faults.append((("script",), 'has no effect without exec_type "local_script"'))
    return faults


def _together(kind: str | None, given: dict[str, Any]) -> list[Fault]:
    """Return the errors of a node's fields in combination. Sets `exec_type` in `given` to its default."""
    params = given.get("params")
    faults: list[Fault] = []
    for name, read in _PARAMS.get(kind or "", {}).items():
        if isinstance(params, Mapping) and params.get(name) is not None:
            try:
                read(params[name])
            except Exception as error:  # as the parsers of fields raise
                faults.extend(faults_in(error, ("params", name)))
    if kind == "local" and not given.get("func") and not given.get("service"):
        faults.append((("func",), "is missing: set the name of the function to call"))
    if kind in ("executor", "foreach"):
        faults += _callee(kind, given)
    return faults


_PARAMS: dict[str, dict[str, _Read]] = {
    "timer": {"delay_ms": fields.milliseconds},
    "wait_event": {"signal_key": fields.optional(parse_path), "timeout_ms": fields.milliseconds},
    "approval": {"approval_key": fields.optional(parse_path)},
    "parallel": {"services": fields.every(fields.name)},
}
"""The parameters that kinds of nodes use themselves. A run can provide them, too."""

# Whole classes.

_ALL_FIELDS = frozenset(field.name for cls in KINDS.values() for field in attrs.fields(cls)) | {"choice_key"}
_EXECS = (BranchExec, ItemExec, NodeExec)
_EXEC_FIELDS = frozenset(field.name for cls in _EXECS for field in attrs.fields(cls)) | {"script"}
_ELSEWHERE: dict[type, frozenset[str]] = {
    **dict.fromkeys(_EXECS, _EXEC_FIELDS),
    Script: frozenset({"code", "language", "env", "work_dir"}),
    **dict.fromkeys(KINDS.values(), _ALL_FIELDS),
}
"""Fields of other kinds, which are allowed if they are empty."""


def _is_empty(value: Any) -> bool:
    return all(_is_empty(part) for part in value.values()) if isinstance(value, Mapping) else not value


def _register(cls: type, kind: str | None = None) -> None:
    """Register a class with the converter: its fields, unknown fields, and checks of fields together."""
    hints = get_type_hints(cls)
    own = {field.name.removesuffix("_"): field.name for field in attrs.fields(cls)}
    overrides: dict[str, Any] = {
        field: override(rename=name, struct_hook=_hook(_reader(cls, name, hints[field])))
        for name, field in own.items()
    }
    make: Callable[[Any, Any], Any] = make_dict_structure_fn(cls, _converter, **overrides)

    def read(value: Any, _: Any) -> Any:
        given = {key: part for key, part in fields.mapping(value).items() if part is not None}
        if kind is not None:
            given.pop("kind", None)
            if "script" in given and _is_empty(given["script"]):
                del given["script"]
        faults = _together(kind, given)
        for key in islice((key for key in given if key not in own), MAX_MISTAKES + 1):
            if key not in _ELSEWHERE.get(cls, ()):
                faults.append(((key,), f"unknown field{suggestion(key, own)}"))
            elif not _is_empty(given[key]) and (key,) not in [keys for keys, _ in faults]:
                where = "here" if kind is None else f"in a node of kind {shown(kind)}"
                faults.append(((key,), f"has no effect {where}: remove it"))
        try:
            made = make(given, cls)
        except Exception as error:  # the errors of the fields, grouped by cattrs
            faults = [*faults_in(error), *faults]
        else:
            faults += misfits(made)
        if faults:
            raise Several(faults)
        return made

    _converter.register_structure_hook(cls, read)


def _hook(read: _Read) -> Callable[[Any, Any], Any]:
    return lambda value, _: read(value)


_converter = cattrs.Converter(detailed_validation=True)
for _class in (Graph, Edge, Prep, Post, ChoiceCase, Script, *_EXECS, Node):
    _register(_class)
for _kind, _class in KINDS.items():
    _register(_class, _kind)
