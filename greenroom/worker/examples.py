"""Services to try a flow with: what `greenroom worker` serves if it is given no others."""

from __future__ import annotations

from typing import Any

from .services import Services

services = Services()


@services.service("transform")
async def transform(input: Any, params: dict[str, Any]) -> Any:
    """A text in the letters that `op` says (`upper` or `lower`), or a number times `mul` (default 1)."""
    if isinstance(input, str):
        op = params.get("op")
        if op == "upper":
            return input.upper()
        if op == "lower":
            return input.lower()
        raise ValueError(f"params.op must be upper or lower for a text, not {op!r:.100}")
    return _number("the input, where it is no text,", input) * _number("params.mul", params.get("mul", 1))


@services.service("sum")
async def total(input: Any) -> int | float:
    """The sum of an array of numbers; texts that are numbers count as such."""
    if not isinstance(input, list):
        raise ValueError(f"the input must be an array of numbers, not {input!r:.100}")
    return sum(
        float(item) if isinstance(item, str) else _number(f"item {index}", item)
        for index, item in enumerate(input)
    )


@services.service("route")
async def route(input: Any, params: dict[str, Any]) -> dict[str, str]:
    """`{"action": …}` with the action that the parameters name; `goB` where they name none."""
    action = params.get("action") or "goB"
    if not isinstance(action, str):
        raise ValueError(f"params.action must be a text, not {action!r:.100}")
    return {"action": action}


def _number(what: str, value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{what} must be a number, not {value!r:.100}")
    return value
