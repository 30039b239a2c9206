"""`executor`: calls a service of a worker, or instead a function or a script."""

from __future__ import annotations

from ....protocol.flow.model import Executor, Script
from ..calls import Call, FunctionCall, ScriptCall, ServiceCall
from ..node_context import Done, NodeContext
from ..retries import execute_with_retries


async def executor(context: NodeContext[Executor]) -> Done:
    """Make the call, with the node's retries."""
    context.walk.announce_start(context)
    return await execute_with_retries(context, _call(context))


def _call(context: NodeContext[Executor]) -> Call:
    node = context.node
    match node.exec_type:
        case "local":
            return FunctionCall(node.target, context.input, context.params)
        case "local_script":
            return ScriptCall(Script.of(node.script), context.input, context.params)
    return ServiceCall(node.target, node.exec_type, context.input, context.params)
