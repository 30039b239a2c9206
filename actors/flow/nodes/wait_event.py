"""`wait_event`: waits until `params.signal_key` leads to something. Its output is what that is."""

from __future__ import annotations

from ....protocol.errors import Invalid
from ....protocol.flow.model import WaitEvent
from ....protocol.flow.paths import parse_path
from ....protocol.values import copied
from ...run.pause import Pause
from ..node_context import Done, Visit, milliseconds, text


async def wait_event(visit: Visit[WaitEvent]) -> Done | Pause:
    """Be done, wait on, or time out."""
    try:
        path = parse_path(text(visit, "signal_key"))
        timeout = milliseconds(visit, "timeout_ms")
    except (Invalid, ValueError) as error:
        return visit.failed("bad_params", str(error))
    value = path.get(visit.scope)
    if value is not None:
        visit.waited_since("we")
        return visit.ok(copied(value))
    since = visit.waited_since("we")
    if timeout is None and visit.node.timeout_ms is not None:
        timeout = visit.node.timeout_ms / 1000
    until = None if timeout is None else since + timeout
    if visit.is_over(until):
        return visit.failed("timeout", f"no signal {path.text!r} came in {timeout:g} s")
    key = path.text if path.root == "shared" else None  # a part of the input may come from anywhere
    return visit.pause("signal", since=since, until=until, key=key)
