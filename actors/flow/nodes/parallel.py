"""`parallel`: calls several services with one input, sequentially or concurrently."""

from __future__ import annotations

from ....protocol.flow.model import BranchExec, Parallel
from ....protocol.flow.paths import Scope
from ....protocol.values import copied
from ..branches import execute_branches
from ..calls import Call, service_or_function
from ..node_context import Done, NodeContext


async def parallel(context: NodeContext[Parallel]) -> Done:
    """The output is an array of the results, in the order of the services."""
    node = context.node
    services = node.parallel_services or (() if node.parallel_execs else context.params.get("services"))
    if not isinstance(services, list | tuple) or not all(isinstance(name, str) for name in services):
        return context.failed(
            "bad_params", f"params.services must be a list of names (got {services!r:.100})"
        )
    branches = node.branches(services)
    return await execute_branches(
        context,
        [_call(context, branch) for branch in branches],
        [branch.post for branch in branches],
    )


def _call(context: NodeContext[Parallel], branch: BranchExec) -> Call:
    params = {**context.params, **branch.params} if branch.params else context.params
    input = context.input
    if branch.prep is not None:
        input = copied(branch.prep.input(Scope(params, context.frame.shared, context.input)))
    exec_type = branch.elsewhere(context.node.exec_type)
    return service_or_function(exec_type, branch.target(exec_type, None, None), input, params)
