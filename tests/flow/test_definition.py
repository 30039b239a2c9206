"""Definitions of flows: how they are read, and how their errors are reported."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.errors import Invalid
from greenroom.protocol.flow.check import check
from greenroom.protocol.flow.model import KINDS, Choice, Edge, Executor, Foreach, Graph, Parallel, Subflow
from greenroom.protocol.flow.paths import Scope
from greenroom.protocol.flow.reading import MAX_NODES, MAX_SUBFLOWS, read_graph
from tests.protocol.strategies import json_values

from .definitions import TIMER, Definition, as_yaml, flow, graphs


def graph(definition: Definition | str, **options: Any) -> Graph:
    checked = check(definition, **options)
    assert checked.errors == []
    assert checked.graph is not None
    return checked.graph


def node(**fields: Any) -> Any:
    return graph(flow(a=fields), allow_scripts=True).nodes["a"]


def errors(definition: Any, **options: Any) -> list[str]:
    checked = check(definition, **options)
    assert (checked.graph is None) == bool(checked.errors)
    return checked.errors


def errors_of(**fields: Any) -> list[str]:
    """The errors of a flow with one node, without the node's path."""
    return [
        error.removeprefix("nodes.a").removeprefix(".")
        for error in errors(flow(a=fields), allow_scripts=True)
    ]


# Reading.


def test_a_definition_of_existing_clients_is_read():
    definition = {
        "start": "decide",
        "nodes": {
            "decide": {
                "kind": "executor",
                "service": "route",
                "params": {},
                "post": {"action_key": "action"},
            },
            "B": {
                "kind": "executor",
                "service": "transform",
                "params": {"op": "upper"},
                "prep": {"input_key": "$params.text"},
                "post": {"output_key": "result", "action_static": "default"},
            },
            "fork": {
                "kind": "choice",
                "choice_cases": [{"action": "again", "expr": {"eq": ["$params.path", "approval"]}}],
                "default_action": "on",
            },
            "each": {
                "kind": "foreach",
                "service": "transform",
                "prep": {"input_key": "$shared.items"},
                "params": {"mul": 2.0},
                "post": {"output_key": "mapped", "action_static": "next"},
                "parallel_mode": "concurrent",
                "max_parallel": 8,
            },
            "ask": {
                "kind": "approval",
                "params": {"approval_key": "$shared.approval"},
                "post": {"action_key": "approval"},
            },
            "end": {"kind": "executor", "service": "transform", "post": {"action_static": ""}},
        },
        "edges": [
            {"from": "decide", "action": "goB", "to": "B"},
            {"from": "decide", "action": "goC", "to": "fork"},
            {"from": "fork", "action": "on", "to": "each"},
            {"from": "each", "action": "next", "to": "ask"},
            {"from": "ask", "action": "approved", "to": "end"},
            {"from": "B", "action": "default", "to": ""},
        ],
    }
    read = graph(definition)
    assert read.follow("decide", "goC") == "fork"
    assert read.follow("B", "anything") is None
    assert isinstance(read.nodes["each"], Foreach)
    assert read.nodes["each"].max_parallel == 8
    assert read.nodes["end"].post.action_static is None
    fork = read.nodes["fork"]
    assert isinstance(fork, Choice)
    assert fork.choose(Scope({"path": "approval"}, {})) == "again"
    assert fork.choose(Scope({"path": "B"}, {})) is None


def test_json_yaml_and_a_dict_give_the_same_graph():
    definition = flow(
        "a b,b -", a={"kind": "choice", "choice_cases": [{"action": "x", "expr": "true"}]}, b=TIMER
    )
    assert graph(definition) == graph(json.dumps(definition)) == graph(as_yaml(definition))


@given(graphs(depth=2))
def test_any_definition_without_errors_is_read_the_same_from_each_form(definition: Definition):
    read = read_graph(definition)
    assert read.nodes.keys() == definition["nodes"].keys()
    assert {key: node.kind for key, node in read.nodes.items()} == {
        key: node["kind"] for key, node in definition["nodes"].items()
    }
    assert read == read_graph(json.dumps(definition)) == read_graph(as_yaml(definition))


def test_empty_fields_have_their_defaults():
    written = {
        "service": "s",
        "params": None,
        "prep": None,
        "timeout_ms": 0,
        "on_error": "",
        "exec_type": "",
        "func": "",
    }
    assert node(kind="executor", **written) == node(kind="executor", service="s")


def test_fields_of_other_kinds_are_allowed_if_they_are_empty():
    written = {"service": "", "choice_cases": [], "subflow": None, "max_parallel": 0, "parallel_mode": ""}
    assert node(**TIMER, **written) == node(**TIMER)
    assert errors_of(**TIMER, max_parallel=2) == [
        'max_parallel: has no effect in a node of kind "timer": remove it'
    ]


def test_a_function_can_be_named_in_either_field_and_in_the_older_form():
    names = [
        node(kind="executor", exec_type="local", func="f"),
        node(kind="executor", exec_type="local", service="f"),
        node(kind="executor", exec_type="local_func", func="f"),
        node(kind="executor", func="f"),
        node(kind="foreach", func="f"),
        node(kind="local", func="f"),
        node(kind="local", service="f"),
    ]
    assert {one.target for one in names} == {"f"}
    assert {one.exec_type for one in names[:5]} == {"local"}


def test_the_defaults_of_branches():
    parallel = node(kind="parallel")
    assert isinstance(parallel, Parallel)
    assert (parallel.exec_type, parallel.parallel_mode, parallel.failure_strategy) == (
        "http",
        "sequential",
        "fail_fast",
    )
    assert (parallel.max_parallel, parallel.parallel_services) == (0, ())


def test_a_script_is_a_list_of_arguments_and_must_be_allowed():
    script = {"kind": "executor", "exec_type": "local_script", "script": ["sort", "-u"]}
    read = graph(flow(a=script), allow_scripts=True).nodes["a"]
    assert isinstance(read, Executor)
    assert read.script == ("sort", "-u")
    assert errors(flow(a=script)) == ["nodes.a.exec_type: scripts are not allowed: allow_scripts is off"]
    inner = {"kind": "subflow", "subflow": flow(b=script)}
    assert errors(flow(a=inner)) == [
        "nodes.a.subflow.nodes.b.exec_type: scripts are not allowed: allow_scripts is off"
    ]
    assert errors_of(**script | {"script": "sort -u"}) == [
        'script: must be a list of arguments, as in ["python", "fetch.py"] (got "sort -u")'
    ]


def test_the_edge_of_an_action_is_its_own_or_the_default_edge():
    read = graph(flow("a b,a:x c,a:end -", a=TIMER, b=TIMER, c=TIMER))
    assert read.follow("a", "x") == "c"
    assert read.follow("a", "y") == "b"
    assert read.follow("b", "x") is None
    assert read.follow("a", "end") is None
    assert read.edge("a", "end") == Edge(from_="a", action="end", to="")
    assert read.edge("b", "x") is None


def test_an_edge_without_an_action_is_the_default_edge():
    definition = flow(a=TIMER, b=TIMER) | {
        "edges": [{"from": "a", "to": "b"}, {"from": "b", "action": "", "to": "a"}]
    }
    assert [edge.action for edge in graph(definition).edges] == ["default", "default"]


def test_a_reference_without_a_version_is_to_the_latest_version():
    assert [
        node(kind="flow_ref", flow="f", **version).version for version in ({}, {"version": 0}, {"version": 3})
    ] == [
        0,
        0,
        3,
    ]
    assert node(kind="flow_ref", flow="f", version="latest").version == 0


# Parts of a definition, without running it.


def test_an_input_is_a_map_of_values_or_one_value_or_null():
    scope = Scope({"a": 1}, {"b": 2})
    both = node(
        **TIMER, prep={"input_key": "b", "input_map": {"x": "$params.a", "y": "b", "z": "text", "n": 5}}
    )
    assert both.prep.input(scope) == {"x": 1, "y": 2, "z": "text", "n": 5}
    assert node(**TIMER, prep={"input_key": "b"}).prep.input(scope) == 2
    assert node(**TIMER).prep.input(scope) is None


def test_an_output_and_its_fields_are_written_into_shared():
    post = node(
        **TIMER, post={"output_key": "out.all", "output_map": {"x": "a.b", "$shared.y.z": "none"}}
    ).post
    shared: dict[str, Any] = {"out": {"old": 0}}
    post.write(shared, {"a": {"b": 1}})
    assert shared == {"out": {"old": 0, "all": {"a": {"b": 1}}}, "x": 1, "y": {"z": None}}


@pytest.mark.parametrize(
    ("post", "output", "shared", "action"),
    [
        ({"action_static": "s", "action_key": "k"}, {"k": "o"}, {"k": "h"}, "s"),
        ({"action_key": "k"}, {"k": "o"}, {"k": "h"}, "o"),
        ({"action_key": "k"}, {}, {"k": "h"}, "h"),
        ({"action_key": "k"}, {"k": 5}, {"k": "h"}, "h"),
        ({"action_key": "k.l"}, {"k": {"l": "o"}}, {}, "o"),
        ({"action_key": "$shared.k"}, {"k": "o"}, {"k": "h"}, "h"),
        ({"action_key": "k"}, "k", {"k": ""}, None),
        ({}, {"k": "o"}, {}, None),
    ],
)
def test_an_action_is_static_or_from_the_output_or_from_shared(
    post: Any, output: Any, shared: Any, action: str | None
):
    assert node(**TIMER, post=post).post.action(output, Scope({}, shared)) == action


# Errors.


def test_ten_errors_get_ten_messages_with_their_paths():
    definition = """
        start: begin
        nodes:
          pay:
            kind: choice
            choice_cases:
            - {action: ok, expr: "$input.amount gt 5"}
            - {action: ok, expr: "$input.amount equals 5"}
          send: {kind: exector, service: mail}
          wait: {kind: timer, params: {delay_ms: soon, at: 2024-01-01}}
          sub:
            kind: subflow
            subflow:
              start: x
              nodes: {x: {kind: executor, sevice: a}}
              edges: [{from: x, to: y}]
          save: {kind: local, func: f, post: {output_key: $params.a}}
        edges:
        - {from: pay, action: ok, to: nowhere}
        """
    found = errors(definition)
    assert [error.partition(": ")[0] for error in found] == [
        "nodes.wait.params.at",
        "nodes.pay.choice_cases[1].expr",
        "nodes.send.kind",
        "nodes.wait.params.delay_ms",
        "nodes.sub.subflow.nodes.x.service",
        "nodes.sub.subflow.nodes.x.sevice",
        "nodes.save.post.output_key",
        "edges[0].to",
        "nodes.sub.subflow.edges[0].to",
        "start",
    ]
    assert found[1].startswith(
        'nodes.pay.choice_cases[1].expr: unknown operator "equals": expected one of and, or'
    )
    assert found[2] == 'nodes.send.kind: unknown kind "exector": did you mean "executor"?'
    assert found[5] == 'nodes.sub.subflow.nodes.x.sevice: unknown field: did you mean "service"?'
    assert found[7] == 'edges[0].to: node "nowhere" not found: expected one of pay, send, wait, sub, save'


@pytest.mark.parametrize(
    ("definition", "error"),
    [
        (5, "definition: must be an object (got 5)"),
        ("text", 'definition: must be an object (got "text")'),
        ({}, "start: is missing"),
        ({"start": "a"}, "nodes: is missing"),
        ({"start": "a", "nodes": {}}, "nodes: must contain at least one node"),
        ({"start": "a", "nodes": []}, "nodes: must be an object (got [])"),
        ({"start": "", "nodes": {"a": TIMER}}, "start: must not be empty"),
        ({"start": ["a"], "nodes": {"a": TIMER}}, 'start: must be a string (got ["a"])'),
        ({"start": "b", "nodes": {"a": TIMER}}, 'start: node "b" not found: expected one of a'),
        (flow(a=TIMER) | {"node": {}}, 'node: unknown field: did you mean "nodes"?'),
        ({"start": math.nan, "nodes": {"a": TIMER}}, "start: the number NaN is not a JSON value"),
        (flow(a=TIMER) | {"edges": {}}, "edges: must be a list (got {})"),
        (flow(a=TIMER) | {"edges": ["a b"]}, 'edges[0]: must be an object (got "a b")'),
        (flow(a=TIMER) | {"edges": [{"from": "a"}]}, "edges[0].to: is missing"),
        (flow(a=TIMER) | {"edges": [{"to": "a"}]}, "edges[0].from: is missing"),
        (flow("a b", a=TIMER), 'edges[0].to: node "b" not found: expected one of a'),
        (flow("pya -", pay=TIMER), 'edges[0].from: node "pya" not found: did you mean "pay"?'),
        (
            flow("a:x a,a:y a,a:x -", a=TIMER),
            'edges[2]: duplicate edge from "a" for action "x" (first: edges[0])',
        ),
        (
            flow(**{"a b": {"kind": "x"}}),
            'nodes["a b"].kind: unknown kind "x": expected one of executor, local, choice',
        ),
        (flow(**{"": TIMER}), 'nodes[""]: must not be empty'),
        (flow(**{"a\n": TIMER}), 'nodes["a\\n"]: must not contain non-printable characters'),
        (flow(**{"a" * 300: TIMER}), "has 300 characters: at most 256 are allowed"),
    ],
)
def test_an_error_in_a_graph_is_reported_with_its_path(definition: Any, error: str):
    found = errors(definition)
    assert any(error in one for one in found), found
    assert len({one.partition(": ")[0] for one in found}) == len(found), "a place is told once"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, "kind: is missing: expected one of executor, local, choice, parallel"),
        ({"kind": ["timer"]}, 'kind: unknown kind ["timer"]'),
        ({"kind": "timr"}, 'kind: unknown kind "timr": did you mean "timer"?'),
        ({"kind": "timr", "max_retries": "x"}, "max_retries: must be an integer"),
        ({"kind": "timer", "weighted_by_load": "yes"}, 'weighted_by_load: must be true or false (got "yes")'),
        ({"kind": "timer", "max_retries": 1.5}, "max_retries: must be an integer, 0 or more (got 1.5)"),
        ({"kind": "timer", "max_retries": True}, "max_retries: must be an integer, 0 or more (got true)"),
        ({"kind": "timer", "timeout_ms": -1}, "timeout_ms: must be a number of milliseconds"),
        ({"kind": "timer", "on_error": 5}, "on_error: must be a string (got 5)"),
        ({"kind": "timer", "params": [1]}, "params: must be an object (got [1])"),
        ({"kind": "timer", "prep": "x"}, 'prep: must be an object (got "x")'),
        (
            {"kind": "timer", "prep": {"inputkey": "x"}},
            'prep.inputkey: unknown field: did you mean "input_key"?',
        ),
        ({"kind": "timer", "prep": {"input_key": "$a"}}, 'prep.input_key: unknown root "$a"'),
        ({"kind": "timer", "prep": {"input_map": {"x": "$a.b"}}}, 'prep.input_map.x: unknown root "$a"'),
        ({"kind": "timer", "post": {"output_map": {"x": "$input"}}}, "post.output_map.x: must be a field"),
        (
            {"kind": "timer", "post": {"output_map": {"$input": "x"}}},
            'post.output_map["$input"]: path "$input" is not writable',
        ),
        ({"kind": "timer", "post": {"action_key": "a["}}, 'post.action_key: "a[" is not a valid path'),
        ({"kind": "choice", "choice_cases": {}}, "choice_cases: must be a list (got {})"),
        ({"kind": "choice", "choice_cases": [{"expr": "a"}]}, "choice_cases[0].action: is missing"),
        ({"kind": "choice", "choice_cases": [{"action": "a"}]}, "choice_cases[0].expr: is missing"),
        (
            {"kind": "choice", "choice_cases": [{"action": "", "expr": "a"}]},
            "choice_cases[0].action: must not be empty",
        ),
        (
            {"kind": "choice", "choice_cases": [{"action": "x", "expr": {"and": [{"eq": [1]}]}}]},
            'choice_cases[0].expr.and[0].eq: "eq" takes two values (got 1)',
        ),
        ({"kind": "executor"}, 'service: is missing: exec_type "http" calls a service'),
        (
            {"kind": "executor", "exec_type": "queue"},
            'service: is missing: exec_type "queue" calls a service',
        ),
        ({"kind": "executor", "exec_type": "local"}, 'func: is missing: exec_type "local" calls a function'),
        ({"kind": "executor", "exec_type": "local_script"}, "script: is missing"),
        (
            {"kind": "executor", "exec_type": "htp", "service": "s"},
            'exec_type: unknown value "htp": did you mean "http"?',
        ),
        (
            {"kind": "executor", "exec_type": ["http"], "service": "s"},
            'exec_type: must be a string (got ["http"])',
        ),
        (
            {"kind": "executor", "service": "s", "script": ["x"]},
            'script: has no effect without exec_type "local_script"',
        ),
        (
            {"kind": "executor", "exec_type": "http", "service": "s", "func": "f"},
            "func: has no effect: exec_type",
        ),
        ({"kind": "local"}, "func: is missing: set the name of the function to call"),
        ({"kind": "foreach"}, "service: is missing"),
        (
            {"kind": "foreach", "exec_type": "local_script", "service": "s"},
            'exec_type: unknown value "local_script"',
        ),
        ({"kind": "parallel", "parallel_services": "a"}, 'parallel_services: must be a list (got "a")'),
        (
            {"kind": "parallel", "parallel_services": ["a", 5]},
            "parallel_services[1]: must be a string (got 5)",
        ),
        ({"kind": "parallel", "params": {"services": "a"}}, 'params.services: must be a list (got "a")'),
        (
            {"kind": "parallel", "parallel_mode": "all"},
            'parallel_mode: unknown value "all": expected one of sequential, conc',
        ),
        (
            {"kind": "parallel", "failure_strategy": "failfast"},
            'failure_strategy: unknown value "failfast": did you',
        ),
        ({"kind": "subflow"}, "subflow: is missing"),
        ({"kind": "subflow", "subflow": 5}, "subflow: must be an object (got 5)"),
        (
            {"kind": "subflow", "subflow": {"start": "x", "nodes": {"x": 5}}},
            "subflow.nodes.x: must be an object",
        ),
        ({"kind": "flow_ref"}, "flow: is missing"),
        ({"kind": "flow_ref", "flow": "f", "version": "new"}, "version: must be an integer"),
        (
            {"kind": "wait_event", "params": {"signal_key": 5}},
            "params.signal_key: path must be a string (got 5)",
        ),
        (
            {"kind": "wait_event", "params": {"timeout_ms": "1s"}},
            "params.timeout_ms: must be a number of milliseconds",
        ),
        ({"kind": "approval", "params": {"approval_key": "$x"}}, 'params.approval_key: unknown root "$x"'),
    ],
)
def test_an_error_in_a_node_is_reported_with_its_path(fields: Any, error: str):
    assert any(found.startswith(error) for found in errors_of(**fields)), errors_of(**fields)


def test_at_most_a_hundred_errors_are_reported():
    found = errors(flow(**{f"n{number}": {"kind": "x"} for number in range(500)}))
    assert len(found) == 101
    assert found[-1] == "definition: further errors are not listed"


def test_reading_a_definition_with_errors_raises_with_all_of_them():
    with pytest.raises(Invalid) as refused:
        read_graph({"start": 5, "nodes": {"a": {"kind": "x"}}})
    assert [text.partition(":")[0] for text in refused.value.details["mistakes"]] == ["start", "nodes.a.kind"]


def test_a_reference_to_a_flow_is_checked_if_the_flows_are_known():
    asked: list[tuple[str, int]] = []

    def flows(name: str, version: int) -> bool:
        asked.append((name, version))
        return (name, version) in [("refund", 0), ("refund", 1)]

    refs = {
        "a": {"kind": "flow_ref", "flow": "refund"},
        "b": {"kind": "flow_ref", "flow": "refund", "version": 1},
        "c": {"kind": "flow_ref", "flow": "refund", "version": 2},
        "d": {"kind": "subflow", "subflow": flow(e={"kind": "flow_ref", "flow": "refnd"})},
    }
    assert errors(flow(**refs), flows=flows) == [
        'nodes.c.flow: published version 2 of flow "refund" not found',
        'nodes.d.subflow.nodes.e.flow: published flow "refnd" not found',
    ]
    assert asked == [("refund", 0), ("refund", 1), ("refund", 2), ("refnd", 0)]
    assert errors(flow(**refs)) == []


# The graph.


def test_unreachable_nodes_get_a_warning():
    inner = flow("a b", a=TIMER, b=TIMER, c=TIMER)
    checked = check(flow("a b,c a", a=TIMER, b={"kind": "subflow", "subflow": inner}, c=TIMER))
    assert checked.errors == []
    assert checked.warnings == [
        'nodes.b.subflow.nodes.c: is unreachable from "a"',
        'nodes.c: is unreachable from "a"',
    ]


def test_a_parameter_that_only_a_run_can_set_gets_a_warning():
    kinds = ["timer", "wait_event", "approval", "parallel"]
    checked = check(
        flow("a b,b c,c d", **{key: {"kind": kind} for key, kind in zip("abcd", kinds, strict=True)})
    )
    assert checked.errors == []
    assert [warning.partition(":")[0] for warning in checked.warnings] == [
        "nodes.a.params.delay_ms",
        "nodes.b.params.signal_key",
        "nodes.c.params.approval_key",
        "nodes.d.params.services",
    ]


CHOICE: Definition = {"kind": "choice"}


@pytest.mark.parametrize(
    ("edges", "cycle"),
    [
        ("a a", "nodes.a: is in a cycle without a waiting or executing node: a → a"),
        ("a b,b a", "nodes.a: is in a cycle without a waiting or executing node: a → b → a"),
        ("a b,b c,c b", "nodes.b: is in a cycle without a waiting or executing node: b → c → b"),
        ("a w,w b,b c,c b,c:x w", "nodes.b: is in a cycle without a waiting or executing node: b → c → b"),
        ("a s,s a", "nodes.a: is in a cycle without a waiting or executing node: a → s → a"),
    ],
)
def test_a_cycle_of_choices_only_is_an_error(edges: str, cycle: str):
    idle = {"kind": "subflow", "subflow": flow("x y", x=CHOICE, y=CHOICE)}
    assert errors(flow(edges, a=CHOICE, b=CHOICE, c=CHOICE, w=TIMER, s=idle)) == [cycle]


def test_each_of_several_cycles_is_reported():
    assert len(errors(flow("a b,b a,b:x c,c d,d c", a=CHOICE, b=CHOICE, c=CHOICE, d=CHOICE))) == 2


@pytest.mark.parametrize(
    "resting",
    [
        TIMER,
        {"kind": "local", "func": "f"},
        {"kind": "executor", "service": "s"},
        {"kind": "parallel", "parallel_services": ["s"]},
        {"kind": "foreach", "service": "s"},
        {"kind": "flow_ref", "flow": "f"},
        {"kind": "wait_event", "params": {"signal_key": "k"}},
        {"kind": "approval", "params": {"approval_key": "k"}},
        {"kind": "subflow", "subflow": flow("x t", x=CHOICE, t=TIMER)},
    ],
)
def test_a_cycle_with_a_waiting_or_executing_node_is_no_error(resting: Definition):
    assert errors(flow("a b,b c,c a", a=CHOICE, b=resting, c=CHOICE)) == []


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12), st.sets(st.integers(0, 5)))
def test_a_cycle_is_reported_exactly_if_there_is_one(pairs: list[tuple[int, int]], waiting: set[int]):
    nodes = {f"n{number}": TIMER if number in waiting else CHOICE for number in range(6)}
    edges = ",".join(f"n{one}:{index} n{other}" for index, (one, other) in enumerate(pairs))
    reached = {(one, other) for one, other in pairs if not {one, other} & waiting}
    for _ in range(6):
        reached |= {(one, far) for one, other in reached for near, far in reached if other == near}
    there_is_one = any((number, number) in reached for number in range(6))
    assert any("in a cycle" in error for error in errors(flow(edges, **nodes))) is there_is_one


# Limits.


def test_the_number_of_nodes_is_limited():
    most = {f"n{number}": {"kind": "choice"} for number in range(MAX_NODES)}
    assert len(graph(flow(**most)).nodes) == MAX_NODES
    inside = flow(**most) | {"nodes": {**most, "n0": {"kind": "subflow", "subflow": flow(a=TIMER)}}}
    assert errors(inside) == ["definition: has too many nodes: at most 10,000 are allowed"]


def test_the_nesting_of_subflows_is_limited():
    def nested(depth: int) -> Definition:
        return flow(a={"kind": "subflow", "subflow": nested(depth - 1)} if depth else TIMER)

    read = graph(nested(MAX_SUBFLOWS))
    for _ in range(MAX_SUBFLOWS):
        inner = read.nodes["a"]
        assert isinstance(inner, Subflow)
        read = inner.subflow
    [error] = errors(nested(MAX_SUBFLOWS + 1))
    assert error.endswith("is nested more than 20 levels deep: use a flow_ref")


_parts = (
    json_values
    | st.sampled_from([*KINDS, "a", "http", "local", "$input", "default"])
    | st.lists(st.dictionaries(st.sampled_from(["from", "to", "action", "expr"]), json_values | st.just("a")))
)
_fields = [
    "start", "nodes", "edges", "kind", "a", "service", "func", "params", "prep", "post", "subflow",
    "choice_cases", "exec_type", "script", "input_map", "output_map", "timeout_ms", "version", "flow",
]  # fmt: skip
_scrambled = st.recursive(
    _parts, lambda inner: st.dictionaries(st.sampled_from(_fields), inner, max_size=6), max_leaves=20
)


@given(_scrambled | json_values)
def test_checking_any_value_raises_no_other_error(definition: Any):
    checked = check(definition, flows=lambda name, version: False)
    assert (checked.graph is None) == bool(checked.errors)


@given(graphs(), st.data())
def test_a_definition_with_one_part_replaced_is_read_or_its_errors_are_reported(
    definition: Definition, data: st.DataObject
):
    part: Any = definition
    while True:
        key = data.draw(st.sampled_from(list(part) if isinstance(part, dict) else range(len(part))))
        inner = part[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            break
        part = inner
    part[key] = data.draw(_parts)
    checked = check(definition)
    assert (checked.graph is None) == bool(checked.errors)
