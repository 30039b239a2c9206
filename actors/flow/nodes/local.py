"""`local`: calls a function that is registered in the process."""

from __future__ import annotations

from ....protocol.flow.model import Local
from ..calls import FunctionCall
from ..retries import carry_out
from ..node_context import Done, Visit


async def local(visit: Visit[Local]) -> Done:
    """Call it, and try again as the node says."""
    return await carry_out(visit, FunctionCall(visit.node.target, visit.input, visit.params))
