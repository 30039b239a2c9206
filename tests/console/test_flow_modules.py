"""The modules of the flows' views that only compute, in Node."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenroom.protocol.flow.documents import parse
from greenroom.protocol.flow.paths import parse_path
from tests.protocol.strategies import json_values

from ..clients.javascript import MODULE, needs_node, run_node
from ..flow.definitions import TIMER, flow
from .test_modules import load

pytestmark = needs_node

VENDOR = MODULE.parent / "vendor"
OUTLINE = "views/flows/outline.js"
WALKED = "views/flows/walked.js"


def event(node: str, **fields: Any) -> dict[str, Any]:
    """The end of a node's attempt, or with `started=True` the start of the node."""
    if fields.pop("started", False):
        return {"type": "node_started", "node": node, "visit": 1} | fields
    usual = {"type": "node_ran", "node": node, "visit": 1, "attempt": 1, "status": "ok"}
    return usual | fields


async def walk(events: list[dict[str, Any]], status: str = "running") -> dict[str, Any]:
    """The states of the nodes after these events."""
    program = load(WALKED) + "answer(Object.fromEntries(walked(...argument).states));"
    found: dict[str, Any] = await run_node(program, [events, status])
    return found


async def taken_edges(definition: dict[str, Any], events: list[dict[str, Any]]) -> list[str]:
    """The taken links, as `from action`."""
    program = (
        load(OUTLINE, WALKED)
        + """
        const [definition, events] = argument;
        const { links } = outline(definition);
        const found = taken(links, walked(events, "running"));
        answer(links.filter((_, index) => found[index]).map(({ node, action }) => `${node} ${action}`));
        """
    )
    edges: list[str] = await run_node(program, [definition, events])
    return edges


# The graph.


async def test_the_nodes_of_a_subflow_are_inside_it():
    definition = flow("a b, b:done -", a=TIMER, b={"kind": "subflow", "subflow": flow("", c=TIMER)})
    program = load(OUTLINE) + "answer(outline(argument));"
    found = await run_node(program, definition)
    assert [(place["path"], place["kind"], place["parent"]) for place in found["places"]] == [
        ("\0begin", "begin", ""),
        ("a", "timer", ""),
        ("b", "subflow", ""),
        ("b/\0begin", "begin", "b"),
        ("b/c", "timer", "b"),
        ("b/\0end", "end", "b"),
        ("\0end", "end", ""),
    ]
    assert [(link["from"], link["to"], link["action"]) for link in found["links"]] == [
        ("b/\0begin", "b/c", ""),
        ("b/c", "b/\0end", ""),
        ("\0begin", "a", ""),
        ("a", "b", "default"),
        ("b", "\0end", "done"),
    ]


async def test_where_a_node_leads_is_said_in_words():
    definition = flow("a b, a:late c, b -", a=TIMER, b=TIMER, c=TIMER)
    program = load(OUTLINE) + "answer(['a', 'b', 'c'].map((path) => leads(outline(argument), path)));"
    assert await run_node(program, definition) == [
        ["default → b", "late → c"],
        ["default → the end"],
        ["→ the end"],
    ]


async def test_a_large_graph_with_long_ways_back_is_drawn_without_overlaps():
    chain = ",".join(f"n{number} n{number + 1}" for number in range(499))
    back = ",".join(f"n{number}:retry n{number * 7 % 500}" for number in range(0, 499, 3))
    program = (
        load(OUTLINE, "views/flows/layout.js")
        + """
        const { boxes, lines } = await layout(outline(argument));
        answer([[...boxes.values()], lines.map(({ points }) => points.length)]);
        """
    )
    definition = flow(f"{chain},{back}", **{f"n{number}": TIMER for number in range(500)})
    boxes, lines = await run_node(program, definition)
    assert len(boxes) == 502
    assert min(lines) >= 2
    for index, one in enumerate(boxes):
        for other in boxes[:index]:
            beside = abs(one["x"] - other["x"]) >= (one["width"] + other["width"]) / 2
            above = abs(one["y"] - other["y"]) >= (one["height"] + other["height"]) / 2
            assert beside or above


# The walk.


@pytest.mark.parametrize(
    ("events", "run", "expected"),
    [
        ([event("a", started=True)], "running", "running"),
        ([event("a", started=True)], "suspended", "suspended"),
        ([event("a", started=True)], "cancelled", "cancelled"),
        ([event("a", action="default")], "running", "succeeded"),
        ([event("a", status="error", action="late")], "running", "failed"),
        ([event("a", started=True), event("a", status="error", error="no")], "running", "running"),
        ([event("a", started=True), event("a", status="error", error="no")], "failed", "failed"),
        ([event("a", status="timeout", action="late")], "succeeded", "timed_out"),
        ([event("a", action="x"), event("a", started=True, visit=2)], "running", "running"),
        ([event("a", started=True), event("a", branch="one")], "running", "running"),
    ],
)
async def test_the_state_of_a_node_is_how_its_last_visit_stands(events, run, expected):
    assert (await walk(events, run))["a"]["status"] == expected


async def test_branches_are_counted_per_visit():
    branches = [event("a", branch="x"), event("a", branch="y", status="error")]
    found = (await walk([event("a", started=True), *branches]))["a"]
    assert (found["done"], found["failed"], found["visits"]) == (1, 1, 1)
    again = [event("a", action="retry"), event("a", started=True, visit=2), event("a", branch="x", visit=2)]
    found = (await walk([*branches, *again]))["a"]
    assert (found["done"], found["failed"], found["visits"]) == (1, 0, 2)


async def test_the_taken_edges_are_those_of_the_actions():
    definition = flow("a b, a:late c, b -", a=TIMER, b=TIMER, c=TIMER)
    begins = event("a", started=True)
    assert await taken_edges(definition, []) == []
    assert await taken_edges(definition, [begins]) == [" "]
    assert await taken_edges(definition, [event("a", action="late")]) == [" ", "a late"]
    assert await taken_edges(definition, [event("a", action="other")]) == [" ", "a default"]
    ends = [event("a", action="late"), event("c", action="default")]
    assert await taken_edges(definition, ends) == [" ", "a late", "c "]


@pytest.mark.parametrize(
    ("fields", "rule", "status", "action", "expected"),
    [
        ({}, {}, "error", "default", [" "]),
        ({}, {"unhandled_errors": "continue"}, "error", "default", [" ", "a default"]),
        ({"on_error": "bad"}, {}, "error", "bad", [" ", "a default"]),
        ({"on_timeout": "late"}, {}, "timeout", "late", [" ", "a default"]),
        ({"on_timeout": "late"}, {}, "error", "default", [" "]),
        ({}, {}, "error", "error", [" ", "a error"]),
    ],
)
async def test_the_edge_of_a_failed_node_is_taken_only_if_the_failure_is_handled(
    fields, rule, status, action, expected
):
    edges = "a b, a:error b" if action == "error" else "a b"
    definition = flow(edges, a={**TIMER, **fields}, b=TIMER) | rule
    assert await taken_edges(definition, [event("a", status=status, action=action)]) == expected


# YAML.


async def test_a_definition_as_yaml_is_the_same_definition():
    values: list[Any] = [
        {"a": "yes", "b": "null", "c": "1", "d": "-", "e": "a: b", "f": "# a", "g": "2020-01-01", "h": " x "},
        {
            "": [],
            "<<": {},
            "x": [[1, [2]], {"a": [{"b": None}]}],
            "lines": "a\nb\n",
            "odd": "\x07\x85\ufeff\u2028",
        },
        {
            "true": True,
            "no": -1.5e-7,
            "~": 1e21,
            "$params.a": "$params.a",
            "k": ["-", "- a", "a -", "?", "!x"],
        },
    ]

    @settings(max_examples=200, deadline=None, database=None)
    @given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), json_values, min_size=1))
    def collect(value: dict[str, Any]) -> None:
        values.append(value)

    collect()
    values += [{"a": [1.0, 1e16, 1e21, -0.0, 2**53 + 1, 2**63, 5e-324]}]
    written = [json.dumps(value) for value in values]
    program = load("views/flows/yaml.js")
    program += "answer(argument.map((text) => toYaml(greenroom.parseExact(text))));"
    for value, text in zip(values, await run_node(program, written), strict=True):
        found, faults = parse(text)
        assert (json.dumps(found, sort_keys=True), faults) == (json.dumps(value, sort_keys=True), []), text


YAML = """\
start: a
nodes:
  # the first
  a:
    kind: time
  'b c':
    kind: timer
  d: {kind: timer, params: {delay_ms: 5}}
edges:
  - from: a
    to: x
  - {from: a, to: z}
"""


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("start: node not found", 1),
        ("nodes.a.kind: unknown kind", 5),
        ('nodes["b c"].kind: unknown kind', 7),
        ("nodes.a.params.delay_ms: is not set", 4),
        ("nodes.d.params.delay_ms: is not a number", 8),
        ("edges[0].to: node not found", 11),
        ("edges[1]: duplicate edge", 12),
        ("edges[7]: is nowhere", 9),
        ("definition: is not valid YAML: bad at line 3, column 5", 3),
        ("definition: is empty", 1),
        ("nothing.at.all: is unknown", 1),
    ],
)
async def test_a_mistake_is_at_the_line_of_its_path(message, line):
    assert await places(YAML, [message]) == [line]


async def test_a_mistake_in_json_is_at_the_line_of_its_path():
    text = json.dumps({"start": "a", "nodes": {"a b": {"kind": "time"}}, "edges": [{"to": "x"}]}, indent=1)
    lines = text.splitlines()
    messages = ['nodes["a b"].kind: unknown kind', "edges[0].to: node not found", "start: node not found"]
    numbers = await places(text, messages)
    assert [lines[number - 1].split(":")[0].strip() for number in numbers] == ['"kind"', '"to"', '"start"']


async def places(text: str, messages: list[str]) -> list[int]:
    """The line of each message."""
    program = (
        load("views/flows/places.js")
        + f"const {{ yaml }} = await import({(VENDOR / 'editor.js').as_uri()!r});"
        + """
        const [text, messages] = argument;
        const top = yaml().language.parser.parse(text).topNode;
        const lineOf = ({ from }) => text.slice(0, from).split("\\n").length;
        answer(messages.map((message) => lineOf(placeOf(text, top, message))));
        """
    )
    lines: list[int] = await run_node(program, [text, messages])
    return lines


# Parameters.


async def test_the_form_has_the_parameters_that_nodes_read_and_require():
    node = {"kind": "executor", "service": "mail", "params": {"from": "me"}}
    definition = flow(
        "",
        mail={
            **node,
            "prep": {"input_map": {"a": "$params.to.name", "b": '$params["copy to"]', "c": "$params.from"}},
        },
        wait={"kind": "timer"},
        ask={"kind": "approval", "params": {"approval_key": "ok"}},
        inner={"kind": "subflow", "subflow": flow("", all={"kind": "parallel"})},
    )
    program = load("views/flows/parameters.js") + "answer(parametersOf(argument));"
    assert await run_node(program, definition) == [
        {"name": "to", "required": True},
        {"name": "copy to", "required": True},
        {"name": "from", "required": False, "usual": "me"},
        {"name": "delay_ms", "required": True},
        {"name": "services", "required": True},
    ]


@pytest.mark.parametrize("quoted", [r"\q", r"\u12", "a\tb", r"a\"b", "a\\\nb", "__proto__"])
async def test_a_parameter_is_the_name_that_the_engine_reads(quoted):
    path = f'$params["{quoted}"]'
    definition = flow("", a={**TIMER, "params": {"delay_ms": 1, "note": path}})
    program = load("views/flows/parameters.js") + "answer(parametersOf(argument).map(({ name }) => name));"
    assert await run_node(program, definition) == [parse_path(path).steps[0]]


async def test_a_field_contains_json_or_text_and_nothing_between():
    program = load("parts/value.js") + (
        "answer(argument.map(valueOf).map((one) => ({ ...one, value: greenroom.writeExact(one.value) })));"
    )
    texts = [
        "5",
        '"5"',
        "five",
        '{"a": [1]}',
        "9007199254740993",
        '["9007199254740993", 1.0, 0.1]',
    ]
    assert await run_node(program, texts) == [
        {"value": "5", "kind": "JSON: number", "problem": ""},
        {"value": '"5"', "kind": "JSON: string", "problem": ""},
        {"value": '"five"', "kind": "text", "problem": ""},
        {"value": '{"a":[1]}', "kind": "JSON: object", "problem": ""},
        {"value": "9007199254740993", "kind": "JSON: number", "problem": ""},
        {"value": '["9007199254740993",1.0,0.1]', "kind": "JSON: list", "problem": ""},
    ]
    assert all(one["problem"] for one in await run_node(program, ["{a}", "[1, 2,", '"']))
