"""`timer`: waits for `params.delay_ms`. Its output is its input."""

from __future__ import annotations

from ....protocol.flow.model import Timer
from ...run.pause import Pause
from ..node_context import Done, Visit, milliseconds


async def timer(visit: Visit[Timer]) -> Done | Pause:
    """Be done, or wait until it is time."""
    try:
        delay = milliseconds(visit, "delay_ms") or 0.0
    except ValueError as error:
        return visit.failed("bad_params", str(error))
    since = visit.waited_since("tm")
    if visit.is_over(since + delay):
        return visit.ok(visit.input)
    return visit.pause("time", since=since, until=since + delay)
