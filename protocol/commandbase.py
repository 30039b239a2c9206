"""What all commands of clients have: an id, and times that JSON can carry."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

Id = str | int

Seconds = Annotated[float, msgspec.Meta(ge=0)]
Timeout = Seconds | Annotated[str, msgspec.Meta(pattern="^none$")] | None
"""A time-out on the wire."""


def timeout_from_wire(timeout: Timeout) -> float | None:
    """A time-out as the engine takes it: seconds, `math.inf` for no limit, `None` for the default."""
    return math.inf if isinstance(timeout, str) else timeout


def timeout_to_wire(timeout: float | None) -> Timeout:
    """A time-out of the engine as it stands on the wire."""
    return "none" if timeout == math.inf else timeout


class CommandBase(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="type",
):
    """What every command has."""

    id: Id
