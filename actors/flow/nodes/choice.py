"""`choice`: the first case that holds gives the action."""

from __future__ import annotations

from ....protocol.flow.model import Choice
from ..node_context import Done, NodeContext


async def choice(context: NodeContext[Choice]) -> Done:
    """Its output is its input."""
    return context.ok(context.input, action=context.node.choose(context.scope))
