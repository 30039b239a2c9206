"""`approval`: waits for a decision: an answer to the open interrupt, or a signal for `params.approval_key`.

The decision is the output. `true` and `false` become the actions `approved` and `rejected`; a string is the
action itself. The answer null counts as `false`.
"""

from __future__ import annotations

from typing import Any

from ....protocol.errors import Invalid
from ....protocol.executors import WithdrawInterrupt
from ....protocol.flow.model import Approval
from ....protocol.flow.paths import Path, parse_path, parse_target
from ....protocol.values import copied
from ...run.pause import AwaitedInterrupt, Pause
from ..node_context import Done, NodeContext, text


async def approval(context: NodeContext[Approval]) -> Done | Pause:
    """Finish, continue to wait, or time out."""
    try:
        path = parse_path(text(context, "approval_key"))
    except (Invalid, ValueError) as error:
        return context.failed("bad_params", str(error))
    interrupt = f"{context.path}:{context.number}"
    since = context.waited_since("ap")
    try:
        decision = _decision(context, path, interrupt)
    except Invalid as error:  # the answer cannot be stored at the path
        return context.failed("bad_params", error.message)
    if decision is not None:
        context.walk.host.tell(WithdrawInterrupt(interrupt))
        action = context.node.post.action(decision, context.scope) or _as_action(decision)
        return context.ok(copied(decision), action=action)
    timeout_ms = context.node.timeout_ms
    until = None if timeout_ms is None else since + timeout_ms / 1000
    if until is not None and context.is_due(until):
        context.walk.host.tell(WithdrawInterrupt(interrupt))
        return context.failed("timeout", f"no decision within {until - since:g} s")
    asked = {
        "node": context.path,
        "approval_key": path.text,
        "input": context.input,
        "params": context.params,
    }
    key = path.text if path.root == "shared" else None  # `$input` may be derived from any part of shared
    return context.pause(
        "answer", since=since, until=until, key=key, interrupt=AwaitedInterrupt(interrupt, asked)
    )


def _decision(context: NodeContext[Approval], path: Path, interrupt: str) -> Any:
    """The decision, if there is one. An answer to the interrupt is stored where a signal would be."""
    decision = path.get(context.scope)
    answers = context.walk.host.answers
    if decision is None and interrupt in answers:
        decision = False if answers[interrupt] is None else copied(answers[interrupt])
        if path.root == "shared":
            parse_target(path.text).set(context.frame.shared, decision)
    return decision


def _as_action(decision: Any) -> str | None:
    if isinstance(decision, dict):
        decision = decision.get("approved")
    if isinstance(decision, bool):
        return "approved" if decision else "rejected"
    return decision if isinstance(decision, str) and decision else None
