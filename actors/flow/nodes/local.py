"""`local`: calls a function that is registered in the process."""

from __future__ import annotations

from ....protocol.flow.model import Local
from ..calls import FunctionCall
from ..node_context import Done, NodeContext
from ..retries import carry_out


async def local(context: NodeContext[Local]) -> Done:
    """Call it, and try again as the node says."""
    return await carry_out(context, FunctionCall(context.node.target, context.input, context.params))
