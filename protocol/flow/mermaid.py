"""A graph as a Mermaid flowchart, with subflows as boxes around their nodes.

The shape of a node shows its kind, and the label of an edge its action. All text of a definition is escaped,
so that it has no meaning for Mermaid or for the page around the chart.
"""

from __future__ import annotations

from collections.abc import Iterator

from .model import DEFAULT_ACTION, Executor, FlowRef, Foreach, Graph, Local, Node, Parallel, Script, Subflow

_LONGEST_LABEL = 60

_SHAPES = {
    "executor": ("[", "]"),
    "local": ("(", ")"),
    "choice": ("{", "}"),
    "parallel": ("[/", "/]"),
    "foreach": ("[\\", "\\]"),
    "flow_ref": ("[[", "]]"),
    "timer": ("([", "])"),
    "wait_event": ("{{", "}}"),
    "approval": ("[/", "\\]"),
}


def mermaid(graph: Graph) -> str:
    """Return the text of a flowchart."""
    return "\n".join(["flowchart TD", *_lines(graph, "n", "    ")]) + "\n"


def _lines(graph: Graph, prefix: str, indent: str) -> Iterator[str]:
    """Yield the nodes and edges of one graph. Ids are numbers: names could be Mermaid keywords."""
    ids = {key: f"{prefix}{number}" for number, key in enumerate(graph.nodes)}
    begin, end = f"{prefix}_begin", f"{prefix}_end"
    yield f"{indent}{begin}(( ))"
    for key, node in graph.nodes.items():
        if isinstance(node, Subflow):
            yield f'{indent}subgraph {ids[key]}["{_escaped(key)}"]'
            yield from _lines(node.subflow, f"{ids[key]}_", f"{indent}    ")
            yield f"{indent}end"
        else:
            opening, closing = _SHAPES[node.kind]
            yield f'{indent}{ids[key]}{opening}"{_escaped(key)}<br/>{_escaped(caption(node))}"{closing}'
    if any(not edge.to for edge in graph.edges):
        yield f"{indent}{end}((( )))"
    yield f"{indent}{begin} --> {ids[graph.start]}"
    for edge in graph.edges:
        label = "" if edge.action == DEFAULT_ACTION else f'|"{_escaped(edge.action)}"|'
        yield f"{indent}{ids[edge.from_]} -->{label} {ids[edge.to] if edge.to else end}"


def caption(node: Node) -> str:
    """Return the second line of a label: the kind, and what the node calls."""
    match node:
        case Executor(exec_type="local_script"):
            called = Script.of(node.script).cmd
        case Executor() | Local() | Foreach():
            called = node.target
        case Parallel():
            branches = node.branches(node.parallel_services)
            called = ", ".join(branch.service or branch.func or "" for branch in branches)
        case FlowRef():
            called = f"{node.flow} {node.version}" if node.version else node.flow
        case _:
            called = ""
    return f"{node.kind}: {called}" if called else node.kind


def _escaped(text: str) -> str:
    """Return text for use within quotes: special characters are written as their code points."""
    text = " ".join(text.split())
    if len(text) > _LONGEST_LABEL:
        text = f"{text[: _LONGEST_LABEL - 1]}…"
    return "".join(char if char.isalnum() or char in " .,:_-/$…" else f"#{ord(char)};" for char in text)
