"""`executor`: has a service executed by a worker, or what stands for one: a function or a script."""

from __future__ import annotations

from ....protocol.flow.model import Executor, Script
from ..calls import Call, FunctionCall, ScriptCall, ServiceCall
from ..retries import carry_out
from ..node_context import Done, Visit


async def executor(visit: Visit[Executor]) -> Done:
    """Have it executed, and try again as the node says."""
    visit.walk.mention_start(visit)
    return await carry_out(visit, _call(visit))


def _call(visit: Visit[Executor]) -> Call:
    node = visit.node
    match node.exec_type:
        case "local":
            return FunctionCall(node.target, visit.input, visit.params)
        case "local_script":
            return ScriptCall(Script.of(node.script), visit.input, visit.params)
    return ServiceCall(node.target, node.exec_type, visit.input, visit.params)
