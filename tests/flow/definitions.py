"""Definitions of flows for tests: small ones to vary, and Hypothesis' strategies for all kinds of nodes."""

from typing import Any

import yaml
from hypothesis import strategies as st

from tests.protocol.strategies import json_values

Definition = dict[str, Any]

TIMER: Definition = {"kind": "timer", "params": {"delay_ms": 100}}
"""A node without fields that a test would have to explain."""


def flow(edges: str = "", /, **nodes: Definition) -> Definition:
    """A definition of these nodes, which starts at the first. Edges: `"a b, a:retry a, b:done -"`."""
    return {
        "start": next(iter(nodes)),
        "nodes": nodes,
        "edges": [edge(one) for one in edges.split(",") if one],
    }


def goes_on(definition: Definition) -> Definition:
    """The same, but unhandled errors continue."""
    return {**definition, "unhandled_errors": "continue"}


def edge(text: str) -> Definition:
    source, target = text.split()
    source, _, action = source.partition(":")
    return {"from": source, "action": action or "default", "to": "" if target == "-" else target}


class _Dumper(yaml.SafeDumper):
    """Quotes all strings: PyYAML writes YAML 1.1, in which other strings look like numbers."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def quoted(self, text: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", text, style='"')


_Dumper.add_representer(str, _Dumper.quoted)


def as_yaml(value: Any) -> str:
    return str(yaml.dump(value, Dumper=_Dumper))


names = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), min_size=1, max_size=8)
paths = st.sampled_from(["$params.a", "$shared.b.c[0]", "$input", "plain", "a.b", '$shared["x y"]'])
targets = st.sampled_from(["out", "$shared.b.c", "a.b", '$shared["x y"]'])
expressions = st.sampled_from(
    ["$input gt 1", "exists(done)", {"and": [{"eq": ["$params.x", "y"]}, {"exists": "$shared.z"}]}, True]
)
_amounts = st.integers(0, 10**6)

_common = {
    "params": st.dictionaries(
        names.filter(lambda name: not name.endswith(("_ms", "_key", "services"))), json_values
    ),
    "prep": st.fixed_dictionaries(
        {},
        optional={
            "input_key": paths,
            "input_map": st.dictionaries(names, paths | st.integers(-9, 9), max_size=2),
        },
    ),
    "post": st.fixed_dictionaries(
        {}, optional={"output_key": targets, "action_static": names, "action_key": st.just("action")}
    ),
    "default_action": names,
    "max_retries": _amounts,
    "wait_ms": _amounts,
    "max_attempts": _amounts,
    "attempt_delay_ms": _amounts,
    "weighted_by_load": st.booleans(),
    "timeout_ms": _amounts,
    "on_error": names,
    "on_timeout": names,
}
_branching = {
    "parallel_mode": st.sampled_from(["sequential", "concurrent"]),
    "max_parallel": _amounts,
    "failure_strategy": st.sampled_from(["fail_fast", "collect_errors", "ignore_errors"]),
}
_cases = st.lists(st.fixed_dictionaries({"action": names, "expr": expressions}), max_size=3)


def _kind(kind: str, /, needed: Definition | None = None, **optional: Any) -> st.SearchStrategy[Definition]:
    return st.fixed_dictionaries(
        {"kind": st.just(kind), **(needed or {})},
        optional=_common | optional,
    )


simple_nodes = st.one_of(
    _kind("executor", {"service": names}, exec_type=st.sampled_from(["http", "queue"])),
    _kind("executor", {"func": names}, exec_type=st.sampled_from(["local", "local_func"])),
    _kind("local", {"func": names}),
    _kind("choice", choice_cases=_cases),
    _kind("parallel", {"parallel_services": st.lists(names, max_size=3)}, **_branching),
    _kind("foreach", {"service": names}, **_branching),
    _kind("flow_ref", {"flow": names}, version=_amounts),
    _kind("timer"),
    _kind("wait_event"),
    _kind("approval"),
)


@st.composite
def graphs(draw: st.DrawFn, depth: int = 1) -> Definition:
    """Definitions without an error in any field. Edges lead to existing nodes; all else is arbitrary."""
    nodes = draw(st.dictionaries(names, simple_nodes, min_size=1, max_size=4))
    if depth and draw(st.booleans()):
        nodes[draw(names)] = {"kind": "subflow", "subflow": draw(graphs(depth - 1))}
    keys = st.sampled_from(list(nodes))
    actions = st.sampled_from(["", "default", "next"])
    edges = st.fixed_dictionaries({"from": keys, "action": actions, "to": keys | st.just("")})
    return {"start": draw(keys), "nodes": nodes, "edges": draw(st.lists(edges, max_size=4))}
