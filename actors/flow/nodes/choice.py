"""`choice`: the first case whose expression is true determines the action."""

from __future__ import annotations

from ....protocol.flow.model import Choice
from ..node_context import Done, NodeContext


async def choice(context: NodeContext[Choice]) -> Done:
    """The output is the input."""
    return context.ok(context.input, action=context.node.choose(context.scope))
