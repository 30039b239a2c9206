"""`subflow`: an embedded graph with its own shared, which becomes the output.

Its shared begins as the node's input, if that is an object. The walk of it is kept in the shared around it,
so a restart goes on within it.
"""

from __future__ import annotations

from typing import Any

from ....protocol.flow.model import Graph, Subflow
from ....protocol.values import copied
from ...run.pause import Pause
from ..state import Frame, result_of
from ..node_context import Done, Level, Visit

MAX_DEPTH = 20
"""How many flows may stand in each other."""


async def subflow(visit: Visit[Subflow]) -> Done | Pause:
    """Walk the embedded graph."""
    node, graph = visit.node, visit.node.subflow
    level = visit.level.within(visit.path, visit.level.unhandled_errors, node.subflow_execs)
    return await walk_within(visit, graph, enter(visit, graph, None), level)


def enter(visit: Visit[Any], graph: Graph, version: str | None) -> Frame:
    """The frame that the walk is in already, or a new one."""
    frame = visit.nested()
    if frame is None:
        visit.walk.mention_start(visit)
        shared = result_of(copied(visit.input)) if isinstance(visit.input, dict) else {}
        frame = Frame(graph.start, shared, version=version, since=visit.began_at)
        visit.keep("sf", frame)
    elif frame.since is not None:
        visit.began_at = frame.since  # the node has been at it for longer than this body
    return frame


async def walk_within(visit: Visit[Any], graph: Graph, frame: Frame, level: Level) -> Done | Pause:
    """Walk a graph within another."""
    if level.depth > MAX_DEPTH:
        return visit.failed("too_deep", f"flows may stand in each other {MAX_DEPTH} deep")
    pause = await visit.walk.walk(graph, frame, visit.params, level)
    if pause is not None:
        return pause
    if frame.error is not None:
        return visit.failed("subflow_failed", frame.error)
    return visit.ok(result_of(frame.shared))
