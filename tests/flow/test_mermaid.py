"""Graphs drawn as Mermaid flowcharts."""

import re

from hypothesis import given

from greenroom.protocol.flow.check import check
from greenroom.protocol.flow.mermaid import mermaid
from greenroom.protocol.flow.reading import read_graph

from .definitions import Definition, flow, graphs


def drawn(definition: Definition) -> list[str]:
    checked = check(definition, allow_scripts=True)
    assert checked.graph is not None, checked.errors
    return [line.strip() for line in mermaid(checked.graph).splitlines()]


def test_a_flow_is_drawn_with_its_nodes_and_the_actions_of_its_edges():
    lines = drawn(
        flow(
            "pick pay,pick:later wait,wait pay,pay -",
            pick={"kind": "choice"},
            pay={"kind": "executor", "service": "charge"},
            wait={"kind": "wait_event", "params": {"signal_key": "paid"}},
        )
    )
    assert lines == [
        "flowchart TD",
        "n_begin(( ))",
        'n0{"pick<br/>choice"}',
        'n1["pay<br/>executor: charge"]',
        'n2{{"wait<br/>wait_event"}}',
        "n_end((( )))",
        "n_begin --> n0",
        "n0 --> n1",
        'n0 -->|"later"| n2',
        "n2 --> n1",
        "n1 --> n_end",
    ]


def test_a_subflow_is_a_box_around_its_nodes():
    inner = flow("a b", a={"kind": "local", "func": "f"}, b={"kind": "timer"})
    lines = drawn(flow("sub after", sub={"kind": "subflow", "subflow": inner}, after={"kind": "timer"}))
    begin, end = lines.index('subgraph n0["sub"]'), lines.index("end")
    assert lines[begin + 1 : end] == [
        "n0__begin(( ))",
        'n0_0("a<br/>local: f")',
        'n0_1(["b<br/>timer"])',
        "n0__begin --> n0_0",
        "n0_0 --> n0_1",
    ]
    assert "n0 --> n1" in lines[end:]


def test_a_label_shows_what_is_called():
    lines = drawn(
        flow(
            "script all,all each,each other,other newest",
            script={"kind": "executor", "exec_type": "local_script", "script": ["sort", "-u"]},
            all={"kind": "parallel", "parallel_services": ["a", "b"]},
            each={"kind": "foreach", "service": "c"},
            other={"kind": "flow_ref", "flow": "refund", "version": 3},
            newest={"kind": "flow_ref", "flow": "refund"},
        )
    )
    labels = [re.sub(r".*<br/>(.*)\".*", r"\1", line) for line in lines if "<br/>" in line]
    assert labels == [
        "executor: sort",
        "parallel: a, b",
        "foreach: c",
        "flow_ref: refund 3",
        "flow_ref: refund",
    ]


def test_names_are_escaped_for_mermaid_and_html():
    name = '"] end %% <script>`#'
    lines = drawn(flow(f"end:{'<b>'} end", end={"kind": "local", "func": name}))
    assert 'n0("end<br/>local: #34;#93; end #37;#37; #60;script#62;#96;#35;")' in lines
    assert 'n0 -->|"#60;b#62;"| n0' in lines


def test_a_long_name_is_cut():
    [node] = [line for line in drawn(flow(a={"kind": "local", "func": "f" * 200})) if "<br/>" in line]
    assert len(node) < 100
    assert "ff…" in node


_LINE = re.compile(
    r"""flowchart\ TD | end
    | subgraph\ n[\d_]*\["[^"<>]*"\]
    | n[\d_]*(_begin\(\(\ \)\)|_end\(\(\(\ \)\)\))
    | n[\d_]*[\[({/\\]{1,2}"[^"<>]*<br/>[^"<>]*"[\])}/\\]{1,2}
    | n[\w]*\ -->(\|"[^"<>]*"\|)?\ n[\w]*""",
    re.VERBOSE,
)


@given(graphs(depth=2))
def test_the_chart_of_any_flow_has_only_known_kinds_of_lines(definition: Definition):
    for line in mermaid(read_graph(definition)).splitlines():
        assert _LINE.fullmatch(line.strip()), line
