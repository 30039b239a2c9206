"""The base of all commands of clients: an id, and timeouts that JSON can represent."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

Id = str | int

Seconds = Annotated[float, msgspec.Meta(ge=0)]
Timeout = Seconds | Annotated[str, msgspec.Meta(pattern="^none$")] | None
"""A timeout on the wire: seconds, `"none"` for no limit, null for the default."""


def timeout_from_wire(timeout: Timeout) -> float | None:
    """Return the engine's form of a timeout: seconds, `math.inf` for no limit, `None` for the default."""
    return math.inf if isinstance(timeout, str) else timeout


def timeout_to_wire(timeout: float | None) -> Timeout:
    """Return the wire's form of a timeout."""
    return "none" if timeout == math.inf else timeout


class CommandBase(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="type",
):
    """The fields of every command."""

    id: Id


def submits_runs(command: CommandBase) -> bool:
    """Whether a command submits runs. Repeated with the same `request_id`, it submits each once."""
    return "request_id" in command.__struct_fields__
