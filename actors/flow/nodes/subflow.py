"""`subflow`: an embedded graph with its own shared, which becomes the output.

Its shared starts as the node's input, if that is an object. The frame of its walk is stored in the enclosing
shared, so after a restart the walk continues in the subflow.
"""

from __future__ import annotations

from typing import Any

from ....protocol.flow.model import Graph, Subflow
from ....protocol.values import copied
from ...run.pause import Pause
from ..node_context import Done, Level, NodeContext
from ..state import Frame, result_of

MAX_DEPTH = 20
"""Maximum nesting depth of flows."""


async def subflow(context: NodeContext[Subflow]) -> Done | Pause:
    """Walk the embedded graph."""
    node, graph = context.node, context.node.subflow
    level = context.level.within(context.path, context.level.unhandled_errors, node.subflow_execs)
    return await walk_within(context, graph, enter(context, graph, None), level)


def enter(context: NodeContext[Any], graph: Graph, version: str | None) -> Frame:
    """The frame of this node's subflow; creates it on the first call."""
    frame = context.nested()
    if frame is None:
        context.walk.announce_start(context)
        shared = result_of(copied(context.input)) if isinstance(context.input, dict) else {}
        frame = Frame(graph.start, shared, version=version, since=context.began_at)
        context.keep("sf", frame)
    elif frame.since is not None:
        context.began_at = frame.since  # the visit began before this body
    return frame


async def walk_within(context: NodeContext[Any], graph: Graph, frame: Frame, level: Level) -> Done | Pause:
    """Walk a graph within another."""
    if level.depth > MAX_DEPTH:
        return context.failed("too_deep", f"flows can be nested at most {MAX_DEPTH} deep")
    pause = await context.walk.walk(graph, frame, context.params, level)
    if pause is not None:
        return pause
    if frame.error is not None:
        return context.failed("subflow_failed", frame.error)
    return context.ok(result_of(frame.shared))
