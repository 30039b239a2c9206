"""Errors between a client and its gateway, in addition to the engine's errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ...protocol.commands import Error
from ...protocol.errors import GreenroomError, Invalid, Unavailable, from_code
from ...protocol.records import RunRecord


class OutcomeUnknown(Unavailable):
    """The connection was lost before the reply: it is unknown whether the command was executed.

    Check the state before you repeat it; `details` contains the `command`.
    """


class ConnectionLost(Exception):
    """The connection failed; the client reconnects. The message is the reason."""


class Refused(Exception):
    """The gateway refuses this client, so a reconnection is useless. `make` creates the error to raise, a new
    one for each waiting caller."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def make(self) -> GreenroomError:
        return from_code(self.code, self.message, {})


class NotAGateway(Refused):
    """The server at this address is not a gateway. With several addresses, the client tries the next one."""


class NotHere(NotAGateway):
    """No gateway answers at this path. The client then tries the path with a trailing slash."""


def refusal(error: Error) -> Exception:
    """The exception for an error reply to a subscription."""
    if error.code in ("invalid", "unauthorized", "forbidden"):
        return Refused(error.code, error.message)
    return ConnectionLost(error.message)


def raised(error: Error) -> GreenroomError:
    """The exception for an error reply: the same class as the embedded engine's."""
    return raised_from(error.code, error.message, error.details)


def raised_from(code: str, message: str, received: Mapping[str, Any]) -> GreenroomError:
    """The same, for the parts of an error."""
    details = dict(received)
    if isinstance(details.get("run"), dict):
        try:
            details["run"] = msgspec.convert(details["run"], RunRecord)
        except msgspec.ValidationError as reason:
            return Invalid(f"{message} (its run is malformed: {reason})")
    return from_code(code, message, details)
