"""`parallel`: one input for several services, one after the other or at once."""

from __future__ import annotations

from ....protocol.flow.model import Parallel
from ..branches import carry_out_all
from ..calls import service_or_function
from ..visit import Done, Visit


async def parallel(visit: Visit[Parallel]) -> Done:
    """The output is an array of the results, in the order of the services."""
    node = visit.node
    services = node.parallel_services or visit.params.get("services")
    if not isinstance(services, list | tuple) or not all(isinstance(name, str) for name in services):
        return visit.failed("bad_params", f"params.services must be a list of names, not {services!r:.100}")
    calls = [service_or_function(node.exec_type, name, visit.input) for name in services]
    return await carry_out_all(visit, calls)
