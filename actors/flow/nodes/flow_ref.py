"""`flow_ref`: another published flow, walked like a subflow.

The version is resolved when the walk arrives, and stays the same until the node is done.
"""

from __future__ import annotations

from ....protocol.errors import GreenroomError
from ....protocol.flow.model import FlowRef
from ...run.pause import Pause
from ..node_context import Done, NodeContext
from .subflow import enter, walk_within


async def flow_ref(context: NodeContext[FlowRef]) -> Done | Pause:
    """Walk the other flow's graph."""
    node, services, frame = context.node, context.walk.services, context.nested()
    try:
        if frame is None or frame.version is None:
            _, row = await services.resolve(node.flow, node.version)
            version = row.id
        else:
            version = frame.version
        graph = await services.graph(version)
    except GreenroomError as error:
        return context.failed("unknown_flow", error.message)
    new = frame is None
    frame = enter(context, graph, version)
    if new and not node.version:
        await context.walk.save()  # after a crash, another version could be the latest
    return await walk_within(context, graph, frame, context.level.within(context.path))
