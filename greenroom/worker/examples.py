"""Example services, which `greenroom worker` serves if no others are given."""

from __future__ import annotations

from typing import Any

from .services import Services

services = Services()


@services.service("transform")
async def transform(input: Any, params: dict[str, Any]) -> Any:
    """A string in `upper` or `lower` case, as `op` requires, or a number times `mul` (default 1)."""
    if isinstance(input, str):
        op = params.get("op")
        if op == "upper":
            return input.upper()
        if op == "lower":
            return input.lower()
        raise ValueError(f"params.op must be upper or lower for a string (got {op!r:.100})")
    return _number("the input, unless it is a string,", input) * _number("params.mul", params.get("mul", 1))


@services.service("sum")
async def total(input: Any) -> int | float:
    """The sum of an array of numbers; strings that contain a number are converted."""
    if not isinstance(input, list):
        raise ValueError(f"the input must be an array of numbers (got {input!r:.100})")
    return sum(
        float(item) if isinstance(item, str) else _number(f"item {index}", item)
        for index, item in enumerate(input)
    )


@services.service("route")
async def route(input: Any, params: dict[str, Any]) -> dict[str, str]:
    """`{"action": …}` with the action in the parameters, or `goB` without one."""
    action = params.get("action") or "goB"
    if not isinstance(action, str):
        raise ValueError(f"params.action must be a string (got {action!r:.100})")
    return {"action": action}


def _number(what: str, value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{what} must be a number (got {value!r:.100})")
    return value
