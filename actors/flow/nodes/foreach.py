"""`foreach`: calls one service for each item of the input array, sequentially or concurrently."""

from __future__ import annotations

from typing import Any

from ....protocol.flow.model import Foreach, ItemExec
from ..branches import execute_branches
from ..calls import Call, service_or_function
from ..node_context import Done, NodeContext


async def foreach(context: NodeContext[Foreach]) -> Done:
    """The output is an array of the results, in the order of the items."""
    node, items = context.node, context.input
    if not isinstance(items, list):
        return context.failed("bad_input", f"the input must be an array (got {items!r:.100})")
    own = {exec.index: exec for exec in node.foreach_execs}
    calls = [_call(context, item, own.get(index)) for index, item in enumerate(items)]
    return await execute_branches(context, calls)


def _call(context: NodeContext[Foreach], item: Any, own: ItemExec | None) -> Call:
    node = context.node
    if own is None:
        return service_or_function(node.exec_type, node.target, item, context.params)
    exec_type = own.elsewhere(node.exec_type)
    target = own.target(exec_type, node.service, node.func)
    return service_or_function(exec_type, target, item, {**context.params, **own.params})
