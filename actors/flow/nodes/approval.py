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
from ...run.pause import Pause, Question
from ..node_context import Done, Visit, text


async def approval(visit: Visit[Approval]) -> Done | Pause:
    """Be done, wait on, or time out."""
    try:
        path = parse_path(text(visit, "approval_key"))
    except (Invalid, ValueError) as error:
        return visit.failed("bad_params", str(error))
    question = f"{visit.path}:{visit.number}"
    since = visit.waited_since("ap")
    try:
        decision = _decision(visit, path, question)
    except Invalid as error:  # there is no place for the answer
        return visit.failed("bad_params", error.message)
    if decision is not None:
        visit.walk.body.withdraw(question)
        action = visit.node.post.action(decision, visit.scope) or _as_action(decision)
        return visit.ok(copied(decision), action=action)
    timeout_ms = visit.node.timeout_ms
    until = None if timeout_ms is None else since + timeout_ms / 1000
    if until is not None and visit.is_over(until):
        visit.walk.body.withdraw(question)
        return visit.failed("timeout", f"nobody decided in {until - since:g} s")
    asked = {"node": visit.path, "approval_key": path.text, "input": visit.input, "params": visit.params}
    key = path.text if path.root == "shared" else None  # a part of the input may come from anywhere
    return visit.pause("answer", since=since, until=until, key=key, question=Question(question, asked))


def _decision(visit: Visit[Approval], path: Path, question: str) -> Any:
    """What was decided. An answer to the question is put where a signal would have put it."""
    decision = path.get(visit.scope)
    answers = visit.walk.body.answers
    if decision is None and question in answers:
        decision = False if answers[question] is None else copied(answers[question])
        if path.root == "shared":
            parse_target(path.text).set(visit.frame.shared, decision)
    return decision


def _as_action(decision: Any) -> str | None:
    if isinstance(decision, dict):
        decision = decision.get("approved")
    if isinstance(decision, bool):
        return "approved" if decision else "rejected"
    return decision if isinstance(decision, str) and decision else None
