"""`approval`: waits for people. Whoever answers the open interrupt or signals `params.approval_key` decides.

The decision is the output. `true` and `false` become the actions `approved` and `rejected`; a text is the
action itself. Whoever answers with null has not agreed.
"""

from __future__ import annotations

from typing import Any

from ....protocol.errors import Invalid
from ....protocol.flow.model import Approval
from ....protocol.flow.paths import Path, parse_path, parse_target
from ....protocol.values import copied
from ...run.pause import AwaitedInterrupt, Pause
from ..node_context import Done, NodeContext, text


async def approval(context: NodeContext[Approval]) -> Done | Pause:
    """Be done, wait on, or time out."""
    try:
        path = parse_path(text(context, "approval_key"))
    except (Invalid, ValueError) as error:
        return context.failed("bad_params", str(error))
    interrupt = f"{context.path}:{context.number}"
    since = context.waited_since("ap")
    try:
        decision = _decision(context, path, interrupt)
    except Invalid as error:  # there is no place for the answer
        return context.failed("bad_params", error.message)
    if decision is not None:
        context.walk.body.withdraw(interrupt)
        action = context.node.post.action(decision, context.scope) or _as_action(decision)
        return context.ok(copied(decision), action=action)
    timeout_ms = context.node.timeout_ms
    until = None if timeout_ms is None else since + timeout_ms / 1000
    if until is not None and context.is_over(until):
        context.walk.body.withdraw(interrupt)
        return context.failed("timeout", f"nobody decided in {until - since:g} s")
    asked = {
        "node": context.path,
        "approval_key": path.text,
        "input": context.input,
        "params": context.params,
    }
    key = path.text if path.root == "shared" else None  # a part of the input may come from anywhere
    return context.pause(
        "answer", since=since, until=until, key=key, interrupt=AwaitedInterrupt(interrupt, asked)
    )


def _decision(context: NodeContext[Approval], path: Path, interrupt: str) -> Any:
    """What was decided. An answer to the interrupt is put where a signal would have put it."""
    decision = path.get(context.scope)
    answers = context.walk.body.answers
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
