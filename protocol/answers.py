"""Answers to interrupts as yes or no."""

from __future__ import annotations

from typing import Any


class Denial(dict[str, Any]):
    """An answer that denies: equal to the original dict, but false."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False


def approves(answer: Any) -> bool:
    """Whether an answer is exactly `true`, or has `"approved": true`."""
    return answer is True or (isinstance(answer, dict) and answer.get("approved") is True)


def with_truth(answer: Any) -> Any:
    """Return the answer, or an equal `Denial` if it is a dict whose `approved` is not `true`."""
    if isinstance(answer, dict) and "approved" in answer and not approves(answer):
        return Denial(answer)
    return answer
