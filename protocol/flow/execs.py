"""Check the execs of a node: the overrides for its branches, items or inner nodes.

`model` defines them. Their fields are already parsed; here they are checked against their node.
"""

from __future__ import annotations

from typing import Any

from ..structuring import Fault
from ..suggestions import suggestion
from ..values import shown
from .model import Exec, ExecType, Foreach, NodeExec, Parallel, Subflow


def misfits(made: Any) -> list[Fault]:
    """Return the errors in the execs of a node."""
    match made:
        case Parallel():
            return _of_branches(made)
        case Foreach():
            return _of_items(made)
        case Subflow():
            return _of_nodes(made)
    return []


def _of_branches(node: Parallel) -> list[Fault]:
    faults: list[Fault] = []
    for number, branch in enumerate(node.parallel_execs):
        keys = ("parallel_execs", number)
        faults += [((*keys, field), text) for field, text in _callee(branch, node.exec_type, None, None)]
        for field in ("action_static", "action_key"):
            if getattr(branch.post, field) is not None:
                faults.append(((*keys, "post", field), "has no effect here: a branch takes no edge"))
    return faults


def _of_items(node: Foreach) -> list[Fault]:
    faults: list[Fault] = []
    first: dict[int, int] = {}
    for number, item in enumerate(node.foreach_execs):
        keys = ("foreach_execs", number)
        earlier = first.setdefault(item.index, number)
        if earlier != number:
            faults.append(
                ((*keys, "index"), f"duplicate index {item.index} (first: foreach_execs[{earlier}])")
            )
        called = _callee(item, node.exec_type, node.service, node.func)
        faults += [((*keys, field), text) for field, text in called]
    return faults


def _of_nodes(node: Subflow) -> list[Fault]:
    faults: list[Fault] = []
    first: dict[str, int] = {}
    for number, exec in enumerate(node.subflow_execs):
        keys = ("subflow_execs", number)
        faults += [((*keys, field), text) for field, text in _of_node(exec, node)]
        earlier = first.setdefault(exec.node, number)
        if earlier != number:
            faults.append(
                ((*keys, "node"), f"duplicate node {shown(exec.node)} (first: subflow_execs[{earlier}])")
            )
    return faults


def _of_node(exec: NodeExec, node: Subflow) -> list[tuple[str, str]]:
    inner = node.subflow.nodes.get(exec.node)
    if inner is None:
        return [("node", f"node {shown(exec.node)} not found{suggestion(exec.node, node.subflow.nodes)}")]
    try:
        exec.of(inner)
    except ValueError as error:
        return [("node", f"{shown(exec.node)} {error}")]
    return []


def _callee(exec: Exec, default: ExecType, service: str | None, func: str | None) -> list[tuple[str, str]]:
    """Return the unused or missing field of an exec; `service` and `func` are the node's."""
    exec_type = exec.elsewhere(default)
    if exec_type != "local" and exec.func is not None:
        return [("func", f"has no effect: exec_type {shown(exec_type)} calls a service")]
    if not exec.target(exec_type, service, func):
        field, what = ("func", "a function") if exec_type == "local" else ("service", "a service")
        return [(field, f"is missing: exec_type {shown(exec_type)} calls {what}")]
    return []
