"""The example flows, each drawn from its definition."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from greenroom.protocol.flow.check import check
from greenroom.protocol.flow.mermaid import caption
from greenroom.protocol.flow.model import DEFAULT_ACTION, Executor, Foreach, Graph, Node, Parallel, Subflow

from .layout import Layout, lay_out
from .svg import Drawing, width_of

FLOWS = Path(__file__).resolve().parents[1] / "examples" / "flows"

_WAITING = {"timer", "wait_event", "approval"}
_BEGIN, _END = "(begin)", "(end)"
_MARGIN = 20
_HEADING = 26


def pictures() -> Iterator[tuple[str, str]]:
    """The name and the SVG of each."""
    for file in sorted(FLOWS.iterdir()):
        if file.suffix in {".yaml", ".json"}:
            yield f"flows/{file.stem}.svg", draw(file.stem, file.read_text(encoding="utf-8"))


def draw(name: str, definition: str) -> str:
    """A flow as SVG."""
    graph = check(definition, allow_scripts=True).graph
    drawing = Drawing(f"The flow {name}: its nodes, and the edges between them")
    layout = _lay_out(graph)
    _draw(drawing, graph, layout, _MARGIN, _MARGIN)
    return drawing.svg(layout.width + 2 * _MARGIN, layout.height + 2 * _MARGIN)


def _lay_out(graph: Graph) -> Layout:
    sizes = {_BEGIN: (12.0, 12.0)}
    sizes |= {key: _size(key, node) for key, node in graph.nodes.items()}
    edges = _edges(graph)
    if any(to == _END for _, to in edges):
        sizes[_END] = (14.0, 14.0)
    return lay_out(sizes, list(edges))


def _edges(graph: Graph) -> dict[tuple[str, str], str]:
    """The edges, each with the actions that take it."""
    edges = {(_BEGIN, graph.start): ""}
    for edge in graph.edges:
        ends = (edge.from_, edge.to or _END)
        action = "" if edge.action == DEFAULT_ACTION else edge.action
        edges[ends] = ", ".join(filter(None, [edges.get(ends, ""), action]))
    return edges


def _size(key: str, node: Node) -> tuple[float, float]:
    if isinstance(node, Subflow):
        within = _lay_out(node.subflow)
        return max(within.width, width_of(key)) + 2 * _MARGIN, within.height + 2 * _MARGIN + _HEADING
    aside = 20 if node.kind == "choice" else 0
    return max(width_of(key), width_of(caption(node), 11)) + 24 + aside, 44


def _draw(drawing: Drawing, graph: Graph, layout: Layout, left: float, top: float) -> None:
    for route in layout.routes:
        drawing.curve([(left + x, top + y) for x, y in route])
    for actions, ((x, y), (to_x, to_y), *_) in zip(_edges(graph).values(), layout.routes, strict=True):
        if actions:
            drawing.note(left + x + 0.65 * (to_x - x), top + y + 0.58 * (to_y - y), actions)
    for key, (x, y) in layout.centres.items():
        if key == _BEGIN:
            drawing.dot(left + x, top + y, 6)
        elif key == _END:
            drawing.dot(left + x, top + y, 7, "plain")
            drawing.dot(left + x, top + y, 4)
        else:
            _draw_node(drawing, key, graph.nodes[key], left + x, top + y)


def _draw_node(drawing: Drawing, key: str, node: Node, x: float, y: float) -> None:
    width, height = _size(key, node)
    left, top, right, bottom = x - width / 2, y - height / 2, x + width / 2, y + height / 2
    if isinstance(node, Subflow):
        drawing.box(left, top, width, height, "group")
        drawing.text(x, top + 16, key, "strong")
        within = _lay_out(node.subflow)
        _draw(drawing, node.subflow, within, x - within.width / 2, top + _MARGIN + _HEADING)
        return
    if node.kind == "choice":
        corners = [
            (left + 14, top),
            (right - 14, top),
            (right, y),
            (right - 14, bottom),
            (left + 14, bottom),
            (left, y),
        ]
        drawing.polygon(corners)
    else:
        drawing.box(left, top, width, height, _colour(node), height / 2 if node.kind in _WAITING else 6)
    if node.kind == "flow_ref":
        drawing.box(left + 3, top + 3, width - 6, height - 6)
    drawing.text(x, y - 8, key, "strong")
    drawing.text(x, y + 9, caption(node), "small")


def _colour(node: Node) -> str:
    if node.kind in _WAITING:
        return "wait"
    by_workers = isinstance(node, Executor | Parallel | Foreach) and node.exec_type in ("http", "queue")
    return "work" if by_workers else "plain"
