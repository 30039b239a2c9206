"""What an answer to an interrupt says as a yes or no."""

from __future__ import annotations

from typing import Any


class Denial(dict[str, Any]):
    """An answer that denies: equal to the dict that was given, and false."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False


def approves(answer: Any) -> bool:
    """Whether an answer is exactly `true`, or has `"approved": true`."""
    return answer is True or (isinstance(answer, dict) and answer.get("approved") is True)


def with_truth(answer: Any) -> Any:
    """The answer, false if it denies: a dict with any other value than `true` under `approved` does."""
    if isinstance(answer, dict) and "approved" in answer and not approves(answer):
        return Denial(answer)
    return answer
