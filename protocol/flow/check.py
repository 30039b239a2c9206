"""The check of a definition before it is published. It reports all errors together, each with its path.

`reading` checks the text and the fields. This module checks how the parts fit together: targets of edges,
unreachable nodes, cycles without a waiting or executing node, references to other flows. It works on the
plain value, because a definition with an error has no graph, but can have further errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ..structuring import MAX_MISTAKES, Fault, Keys
from ..suggestions import suggestion
from ..values import shown
from .model import DEFAULT_ACTION, ERROR_ACTION, Graph
from .reading import read, rendered

HasFlow = Callable[[str, int], bool]
"""Whether there is a published flow with this name and version (0: any version)."""

_MOST_NODES_SHOWN = 8

_MAY_FAIL = frozenset({"executor", "local", "parallel", "foreach", "subflow", "flow_ref"})
"""The kinds of nodes that execute something, or walk a graph that does."""

_RUN_PARAMETERS = {"timer": "delay_ms", "wait_event": "signal_key", "approval": "approval_key"}
"""The parameter that a kind of node requires. The definition or each run provides it."""


class Checked(NamedTuple):
    """The result of a check: the graph, if there are no errors, and the messages, each with its path."""

    graph: Graph | None
    errors: list[str]
    warnings: list[str]


def check(
    definition: Mapping[str, Any] | str, *, allow_scripts: bool = False, flows: HasFlow | None = None
) -> Checked:
    """Check a definition: JSON or YAML text, or an object. Without `flows`, references are not looked up."""
    value, graph, faults = read(definition)
    checker = _Checker(allow_scripts, flows)
    if graph is not None or not any(keys == () for keys, _ in faults):
        checker.check(value, ())
    faults = [*faults, *checker.faults]
    return Checked(None if faults else graph, rendered(faults), rendered(checker.warnings))


class _Checker:
    """Collects the errors of a graph and its subflows. Skips malformed parts, which `reading` reports."""

    def __init__(self, allow_scripts: bool, flows: HasFlow | None) -> None:
        self.faults: list[Fault] = []
        self.warnings: list[Fault] = []
        self._allow_scripts = allow_scripts
        self._flows = flows

    def check(self, graph: Any, keys: Keys, unhandled_errors: Any = "fail") -> bool:
        """Check a graph. Returns whether no node in it waits or executes.

        `unhandled_errors` is the rule of the graph around it.
        """
        nodes = _object(_object(graph).get("nodes"))
        edges = list(self._edges(graph, nodes, keys))
        rule = _object(graph).get("unhandled_errors") or unhandled_errors
        idle = [key for key, node in nodes.items() if self._node(_object(node), (*keys, "nodes", key), rule)]
        self._check_errors(graph, nodes, keys, rule)
        start = _object(graph).get("start")
        if isinstance(start, str) and start and nodes:
            if start in nodes:
                self._check_reached(start, nodes, edges, keys)
            else:
                self._no_node((*keys, "start"), start, nodes)
        self._check_cycles(idle, edges, keys)
        return bool(nodes) and len(idle) == len(nodes)

    def _edges(self, graph: Any, nodes: Mapping[str, Any], keys: Keys) -> Iterator[tuple[str, str]]:
        """Check the edges; yields the pairs of nodes that they connect."""
        first: dict[tuple[str, str], int] = {}
        written = _object(graph).get("edges")
        for index, edge in enumerate(written if isinstance(written, list) else []):
            its_keys = (*keys, "edges", index)
            ends = [_object(edge).get(end) for end in ("from", "to")]
            for end, node in zip(("from", "to"), ends, strict=True):
                if isinstance(node, str) and node and node not in nodes:
                    self._no_node((*its_keys, end), node, nodes)
            action = _object(edge).get("action") or DEFAULT_ACTION
            source, target = ends
            if not isinstance(source, str) or not isinstance(action, str):
                continue
            earlier = first.setdefault((source, action), index)
            if earlier != index:
                text = f"duplicate edge from {shown(source)} for action {shown(action)}"
                self._wrong(its_keys, f"{text} (first: edges[{earlier}])")
            if source in nodes and isinstance(target, str) and target in nodes:
                yield source, target

    def _node(self, node: Mapping[str, Any], keys: Keys, unhandled_errors: Any) -> bool:
        """Check a node. Returns whether it neither waits nor executes."""
        kind = node.get("kind")
        if node.get("exec_type") == "local_script" and not self._allow_scripts:
            self._wrong((*keys, "exec_type"), "scripts are not allowed: allow_scripts is off")
        if kind == "flow_ref":
            self._check_reference(node, keys)
        needed = _RUN_PARAMETERS.get(kind) if isinstance(kind, str) else None
        if kind == "parallel" and not node.get("parallel_services") and not node.get("parallel_execs"):
            needed = "services"
        if needed is not None and _object(node.get("params")).get(needed) in (None, "", []):
            self._warn((*keys, "params", needed), "is not set: each run must provide it")
        if kind == "subflow":
            return self.check(node.get("subflow"), (*keys, "subflow"), unhandled_errors)
        return kind == "choice"

    def _check_errors(self, graph: Any, nodes: Mapping[str, Any], keys: Keys, unhandled_errors: Any) -> None:
        """Warn about errors that take the edge of a success, and about error actions without an edge."""
        leads = _leads(graph)
        for key, written in nodes.items():
            node, plain = _object(written), leads.get((key, DEFAULT_ACTION))
            for field in ("on_error", "on_timeout"):
                action = node.get(field)
                if isinstance(action, str) and action and (key, action) not in leads:
                    then = (
                        "the flow fails" if plain is None else f"the flow takes the default edge {_to(plain)}"
                    )
                    text = f"no edge from {shown(key)} has the action {shown(action)}: {then}"
                    self._warn((*keys, "nodes", key, field), text)
            if unhandled_errors != "continue" or node.get("kind") not in _MAY_FAIL:
                continue
            if node.get("on_error") or (key, ERROR_ACTION) in leads:
                continue
            own = _object(node.get("post")).get("action_static") or node.get("default_action")
            to = leads.get((key, own), plain) if isinstance(own, str) else plain
            if to is not None:
                text = f"an error is ignored and leads {_to(to)}, as a success does"
                remedy = "add on_error, or an edge for the action 'error'"
                self._warn((*keys, "nodes", key), f"{text} (unhandled_errors is 'continue'): {remedy}")

    def _check_reference(self, node: Mapping[str, Any], keys: Keys) -> None:
        flow, version = node.get("flow"), node.get("version") or 0
        version = 0 if version == "latest" else version
        if self._flows is None or not isinstance(flow, str) or not isinstance(version, int):
            return
        if not self._flows(flow, version):
            wanted = f"published version {version} of flow" if version else "published flow"
            self._wrong((*keys, "flow"), f"{wanted} {shown(flow)} not found")

    def _check_reached(
        self, start: str, nodes: Mapping[str, Any], edges: list[tuple[str, str]], keys: Keys
    ) -> None:
        following = _following(edges)
        reached, ahead = {start}, [start]
        while ahead:
            for node in following.get(ahead.pop(), ()):
                if node not in reached:
                    reached.add(node)
                    ahead.append(node)
        for key in nodes:
            if key not in reached:
                self._warn((*keys, "nodes", key), f"is unreachable from {shown(start)}")

    def _check_cycles(self, idle: list[str], edges: list[tuple[str, str]], keys: Keys) -> None:
        for cycle in _cycles(idle, edges):
            names = [*cycle, cycle[0]]
            if len(names) > _MOST_NODES_SHOWN:
                names[_MOST_NODES_SHOWN - 1 : -1] = ["…"]
            path = " → ".join(names)
            text = f"is in a cycle without a waiting or executing node: {path}"
            self._wrong((*keys, "nodes", cycle[0]), text)

    def _no_node(self, keys: Keys, name: str, nodes: Mapping[str, Any]) -> None:
        if len(self.faults) <= MAX_MISTAKES:  # the search for a similar name takes time
            self._wrong(keys, f"node {shown(name)} not found{suggestion(name, nodes)}")

    def _wrong(self, keys: Keys, text: str) -> None:
        if len(self.faults) <= MAX_MISTAKES:
            self.faults.append((keys, text))

    def _warn(self, keys: Keys, text: str) -> None:
        if len(self.warnings) <= MAX_MISTAKES:
            self.warnings.append((keys, text))


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _leads(graph: Any) -> dict[tuple[str, str], str]:
    """Return the targets of the edges by node and action."""
    leads: dict[tuple[str, str], str] = {}
    written = _object(graph).get("edges")
    for edge in written if isinstance(written, list) else []:
        source, action, target = (_object(edge).get(field) for field in ("from", "action", "to"))
        action = action or DEFAULT_ACTION
        if isinstance(source, str) and isinstance(action, str):
            leads.setdefault((source, action), target if isinstance(target, str) else "")
    return leads


def _to(node: str) -> str:
    return f"to {shown(node)}" if node else "to the end of the flow"


def _following(edges: list[tuple[str, str]]) -> dict[str, list[str]]:
    following: dict[str, list[str]] = {}
    for source, target in edges:
        following.setdefault(source, []).append(target)
    return following


def _cycles(nodes: list[str], edges: list[tuple[str, str]]) -> Iterator[list[str]]:
    """Yield cycles among some nodes, such that every other cycle shares a node with one of them.

    Nodes without outgoing edges are removed until there are none. From any remaining node, following edges
    then returns to a visited node.
    """
    remaining = dict.fromkeys(nodes)
    edges = [(source, target) for source, target in edges if source in remaining and target in remaining]
    following, before = _following(edges), _following([(target, source) for source, target in edges])
    out_degree = {node: len(following.get(node, ())) for node in nodes}
    removable = [node for node in nodes if not out_degree[node]]
    while remaining:
        while removable:
            node = removable.pop()
            if node in remaining:
                del remaining[node]
                for earlier in before.get(node, ()):
                    out_degree[earlier] -= 1
                    if not out_degree[earlier]:
                        removable.append(earlier)
        if not remaining:
            return
        node = next(iter(remaining))
        walked: dict[str, None] = {}
        while node not in walked:
            walked[node] = None
            node = next(target for target in following[node] if target in remaining)
        path = list(walked)
        cycle = path[path.index(node) :]
        yield cycle
        for node in cycle:
            out_degree[node] = 0
        removable.extend(cycle)
