"""`choice`: the first case that holds gives the action."""

from __future__ import annotations

from ....protocol.flow.model import Choice
from ..node_context import Done, Visit


async def choice(visit: Visit[Choice]) -> Done:
    """Its output is its input."""
    return visit.ok(visit.input, action=visit.node.choose(visit.scope))
