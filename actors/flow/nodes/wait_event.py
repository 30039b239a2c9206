"""`wait_event`: waits until `params.signal_key` resolves to a value, which is the output."""

from __future__ import annotations

from ....protocol.errors import Invalid
from ....protocol.flow.model import WaitEvent
from ....protocol.flow.paths import parse_path
from ....protocol.values import copied, shown
from ...run.pause import Pause
from ..node_context import Done, NodeContext, milliseconds, text


async def wait_event(context: NodeContext[WaitEvent]) -> Done | Pause:
    """Finish, continue to wait, or time out."""
    try:
        path = parse_path(text(context, "signal_key"))
        timeout = milliseconds(context, "timeout_ms")
    except (Invalid, ValueError) as error:
        return context.failed("bad_params", str(error))
    value = path.get(context.scope)
    if value is not None:
        context.waited_since("we")
        return context.ok(copied(value))
    since = context.waited_since("we")
    if timeout is None and context.node.timeout_ms is not None:
        timeout = context.node.timeout_ms / 1000
    until = None if timeout is None else since + timeout
    if context.is_due(until):
        return context.failed("timeout", f"signal {shown(path.text)} not received within {timeout:g} s")
    key = path.text if path.root == "shared" else None  # `$input` may be derived from any part of shared
    return context.pause("signal", since=since, until=until, key=key)
