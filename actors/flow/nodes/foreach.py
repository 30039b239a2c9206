"""`foreach`: one service for each item of the input array, one after the other or several at once."""

from __future__ import annotations

from ....protocol.flow.model import Foreach
from ..branches import carry_out_all
from ..calls import service_or_function
from ..visit import Done, Visit


async def foreach(visit: Visit[Foreach]) -> Done:
    """The output is an array of the results, in the order of the items."""
    node, items = visit.node, visit.input
    if not isinstance(items, list):
        return visit.failed("bad_input", f"the input must be an array, not {items!r:.100}")
    calls = [service_or_function(node.exec_type, node.target, item) for item in items]
    return await carry_out_all(visit, calls)
