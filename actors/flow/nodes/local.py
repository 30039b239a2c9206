"""`local`: calls a function that is registered in the process."""

from __future__ import annotations

from ....protocol.flow.model import Local
from ..calls import FunctionCall
from ..node_context import Done, NodeContext
from ..retries import execute_with_retries


async def local(context: NodeContext[Local]) -> Done:
    """Call the function, with the node's retries."""
    return await execute_with_retries(
        context, FunctionCall(context.node.target, context.input, context.params)
    )
