"""The check of a definition before it is published: all that is wrong with it, at once and with its place.

What is wrong with text and fields, `reading` tells. Here is looked at what no field can tell alone: where
edges lead, what is never reached, which cycles would never come to rest, whether a flow that is referred to
is there. This is done with the plain value: a definition with a mistake has no graph, but may have others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ..structuring import MAX_MISTAKES, Fault, Keys, suggestion
from ..values import shown
from .model import DEFAULT_ACTION, ERROR_ACTION, Graph
from .reading import read, rendered

HasFlow = Callable[[str, int], bool]
"""Whether there is a published flow of this name, in this version (0: in any)."""

_MOST_NODES_SHOWN = 8

_MAY_FAIL = frozenset({"executor", "local", "parallel", "foreach", "subflow", "flow_ref"})
"""The kinds of nodes that execute something, or walk what does."""

_BROUGHT_BY_RUNS = {"timer": "delay_ms", "wait_event": "signal_key", "approval": "approval_key"}
"""The parameter without which a node can't do anything. A run may bring it."""


class Checked(NamedTuple):
    """What was found: the graph, if there are no errors; and messages, each with its path."""

    graph: Graph | None
    errors: list[str]
    warnings: list[str]


def check(
    definition: Mapping[str, Any] | str, *, allow_scripts: bool = False, flows: HasFlow | None = None
) -> Checked:
    """Check a definition: JSON or YAML text, or an object. Without `flows`, references aren't looked up."""
    value, graph, faults = read(definition)
    checker = _Checker(allow_scripts, flows)
    if graph is not None or not any(keys == () for keys, _ in faults):
        checker.check(value, ())
    faults = [*faults, *checker.faults]
    return Checked(None if faults else graph, rendered(faults), rendered(checker.warnings))


class _Checker:
    """Collects what is wrong with a graph and those in it. What isn't what it should be, it passes over."""

    def __init__(self, allow_scripts: bool, flows: HasFlow | None) -> None:
        self.faults: list[Fault] = []
        self.warnings: list[Fault] = []
        self._allow_scripts = allow_scripts
        self._flows = flows

    def check(self, graph: Any, keys: Keys, unhandled_errors: Any = "fail") -> bool:
        """Look at a graph; returns whether nothing in it ever waits or executes. `unhandled_errors` is the
        rule of the graph around it."""
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
        """Tell what is wrong with the edges; yields which node leads to which."""
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
                text = f"is a second edge from {shown(source)} for the action {shown(action)}"
                self._wrong(its_keys, f"{text}, after edges[{earlier}]")
            if source in nodes and isinstance(target, str) and target in nodes:
                yield source, target

    def _node(self, node: Mapping[str, Any], keys: Keys, unhandled_errors: Any) -> bool:
        """Look at a node; returns whether it neither waits nor executes."""
        kind = node.get("kind")
        if node.get("exec_type") == "local_script" and not self._allow_scripts:
            self._wrong((*keys, "exec_type"), "scripts are not allowed here (allow_scripts is off)")
        if kind == "flow_ref":
            self._check_reference(node, keys)
        needed = _BROUGHT_BY_RUNS.get(kind) if isinstance(kind, str) else None
        if kind == "parallel" and not node.get("parallel_services") and not node.get("parallel_execs"):
            needed = "services"
        if needed is not None and _object(node.get("params")).get(needed) in (None, "", []):
            self._warn((*keys, "params", needed), "is not given, so each run has to bring it")
        if kind == "subflow":
            return self.check(node.get("subflow"), (*keys, "subflow"), unhandled_errors)
        return kind == "choice"

    def _check_errors(self, graph: Any, nodes: Mapping[str, Any], keys: Keys, unhandled_errors: Any) -> None:
        """Warn of errors that take the edge of a success, and of actions for errors that have no edge."""
        leads = _leads(graph)
        for key, written in nodes.items():
            node, plain = _object(written), leads.get((key, DEFAULT_ACTION))
            for field in ("on_error", "on_timeout"):
                action = node.get(field)
                if isinstance(action, str) and action and (key, action) not in leads:
                    then = (
                        "the flow fails" if plain is None else f"the error leads {_to(plain)} like a success"
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
                text = f"an error is passed over and leads {_to(to)} like a success"
                remedy = "add on_error, or an edge for the action 'error'"
                self._warn((*keys, "nodes", key), f"{text} (unhandled_errors is 'continue'): {remedy}")

    def _check_reference(self, node: Mapping[str, Any], keys: Keys) -> None:
        flow, version = node.get("flow"), node.get("version") or 0
        version = 0 if version == "latest" else version
        if self._flows is None or not isinstance(flow, str) or not isinstance(version, int):
            return
        if not self._flows(flow, version):
            wanted = f"published version {version} of a flow" if version else "published flow"
            self._wrong((*keys, "flow"), f"there is no {wanted} {shown(flow)}")

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
                self._warn((*keys, "nodes", key), f"is never reached from {shown(start)}")

    def _check_cycles(self, idle: list[str], edges: list[tuple[str, str]], keys: Keys) -> None:
        for cycle in _cycles(idle, edges):
            names = [*cycle, cycle[0]]
            if len(names) > _MOST_NODES_SHOWN:
                names[_MOST_NODES_SHOWN - 1 : -1] = ["…"]
            way = " → ".join(names)
            self._wrong((*keys, "nodes", cycle[0]), f"is in a cycle that never waits nor executes: {way}")

    def _no_node(self, keys: Keys, name: str, nodes: Mapping[str, Any]) -> None:
        if len(self.faults) <= MAX_MISTAKES:  # to look for the nearest name takes time
            self._wrong(keys, f"there is no node {shown(name)}{suggestion(name, nodes)}")

    def _wrong(self, keys: Keys, text: str) -> None:
        if len(self.faults) <= MAX_MISTAKES:
            self.faults.append((keys, text))

    def _warn(self, keys: Keys, text: str) -> None:
        if len(self.warnings) <= MAX_MISTAKES:
            self.warnings.append((keys, text))


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _leads(graph: Any) -> dict[tuple[str, str], str]:
    """Where the edges lead, by node and action."""
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
    """Cycles among some nodes, so many that each cycle there is shares a node with one of them.

    Nodes from which nothing leads on are taken away until there are none. Following any edge from one that is
    left then comes back to a node sooner or later.
    """
    left = dict.fromkeys(nodes)
    edges = [(source, target) for source, target in edges if source in left and target in left]
    following, before = _following(edges), _following([(target, source) for source, target in edges])
    ways = {node: len(following.get(node, ())) for node in nodes}
    gone = [node for node in nodes if not ways[node]]
    while left:
        while gone:
            node = gone.pop()
            if node in left:
                del left[node]
                for earlier in before.get(node, ()):
                    ways[earlier] -= 1
                    if not ways[earlier]:
                        gone.append(earlier)
        if not left:
            return
        node = next(iter(left))
        walked: dict[str, None] = {}
        while node not in walked:
            walked[node] = None
            node = next(target for target in following[node] if target in left)
        way = list(walked)
        cycle = way[way.index(node) :]
        yield cycle
        for node in cycle:
            ways[node] = 0
        gone.extend(cycle)
