"""Arguments of the client's methods, as they go over the wire."""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.commandbase import Timeout, timeout_to_wire
from ...protocol.errors import Invalid
from ...protocol.states import Status
from ...protocol.validation import check_seconds


def seconds(what: str, timeout: float | None) -> Timeout:
    """A time-out."""
    return None if timeout is None else timeout_to_wire(check_seconds(what, timeout, 0))


def status_names(status: str | Iterable[str] | None) -> str | list[str] | None:
    """A status, or several."""
    try:
        return status if status is None or isinstance(status, str) else [str(one) for one in status]
    except TypeError:
        known = ", ".join(Status)
        raise Invalid(f"status must be one or several of {known}", value=repr(status)) from None
