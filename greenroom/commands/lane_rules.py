"""The rules of a lane as text."""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins

from ..protocol.lanes import LaneRules
from ..protocol.notify import USUAL_TYPES


def described(rules: LaneRules, *, paused: bool = False) -> str:
    """The rules of a lane that are not the defaults, and whether it is paused."""
    values = to_builtins(rules)
    if rules.notify is not None:
        types = rules.notify.types
        values["notify"] = rules.notify.url
        if types != USUAL_TYPES:
            values["notify"] += f" ({', '.join(types)})"
    found = [f"{name}={_written(value)}" for name, value in values.items()]
    return ", ".join(["paused", *found] if paused else found)


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{key}:{weight}" for key, weight in value.items())
    return "none" if value is None else str(value)
