"""`timer`: waits for `params.delay_ms`. Its output is its input."""

from __future__ import annotations

from ....protocol.flow.model import Timer
from ...run.pause import Pause
from ..node_context import Done, NodeContext, milliseconds


async def timer(context: NodeContext[Timer]) -> Done | Pause:
    """Finish, or continue to wait."""
    try:
        delay = milliseconds(context, "delay_ms") or 0.0
    except ValueError as error:
        return context.failed("bad_params", str(error))
    since = context.waited_since("tm")
    if context.is_due(since + delay):
        return context.ok(context.input)
    return context.pause("time", since=since, until=since + delay)
