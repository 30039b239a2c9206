"""The current shared data of a run's nodes: the last stored state, and what was committed since."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ...persistence.flows import StoredFlow, page_of
from ...protocol.errors import Invalid
from ...protocol.flow.model import Foreach, Graph, Node, Parallel, Subflow
from ...protocol.flow.paths import parse_target
from ...protocol.flow.records import NodeRun
from .branches import max_parallel
from .services import Graphs
from .state import Frame, WalkState, from_text, nested, runtime_key


async def current_state(stored: StoredFlow, graphs: Graphs, max_bytes: int) -> WalkState:
    """The state including signals that were not taken yet and finished branches; of those the first ones, up
    to `max_bytes` of output in total."""
    state = from_text(stored.state.state)
    for _, signal in stored.signals:
        try:
            parse_target(signal["key"]).set(state.frame.shared, signal["value"])
        except Invalid:  # the value cannot be stored at this path; the walk will log that
            continue
    ended = [row for row in stored.later if row.branch is not None and row.last]
    if ended:
        await _show_branches(state.frame, await graphs.get(stored.state.version), graphs, ended, max_bytes)
        state.frame.shared = msgspec.to_builtins(state.frame.shared)  # frames, too
    return state


async def current_node(
    frame: Frame, graph: Graph, find: Callable[[str], Awaitable[Graph]]
) -> tuple[str, Node, Frame] | None:
    """The position of a walk: the path of the innermost node, the node, and its frame."""
    path = ""
    while frame.curr is not None:
        path, node = path + frame.curr, graph.nodes[frame.curr]
        inner = nested(frame.shared, frame.curr)
        if inner is None or inner.curr is None:
            return path, node, frame
        graph = await find(inner.version) if inner.version is not None else _embedded(node)
        frame, path = inner, path + "/"
    return None


async def _show_branches(
    frame: Frame, graph: Graph, graphs: Graphs, ended: list[NodeRun], max_bytes: int
) -> None:
    """Show the finished branches of the current node in shared; this data is never stored."""
    found = await current_node(frame, graph, graphs.get)
    if found is None:
        return
    _, node, frame = found
    if not isinstance(node, Parallel | Foreach):
        return
    assert frame.curr is not None, "the walk is at this node"
    shown = page_of(((row, len(msgspec.json.encode([row.output, row.error]))) for row in ended), max_bytes)
    done = {row.branch: row.output for row in shown if row.status == "ok"}
    errors = {row.branch: row.error for row in shown if row.error is not None}
    kept: dict[str, Any] = {
        "done": done,
        "errs": errors,
        "mode": node.parallel_mode,
        "max": max_parallel(node),
        "strategy": node.failure_strategy,
    }
    if isinstance(node, Foreach):
        kept["idx"] = len(ended)
    mark = "fe" if isinstance(node, Foreach) else "pl"
    frame.shared[runtime_key(mark, frame.curr)] = kept


def _embedded(node: Node) -> Graph:
    assert isinstance(node, Subflow), "a frame without a version is that of an embedded graph"
    return node.subflow
