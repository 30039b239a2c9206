"""What can go wrong between a client and its gateway, beyond what the engine refuses."""

from __future__ import annotations

import msgspec

from ...protocol.commands import Error
from ...protocol.errors import GreenroomError, Invalid, Unavailable, from_code
from ...protocol.records import RunRecord


class OutcomeUnknown(Unavailable):
    """The connection was lost before the answer came: the command may have been carried out, or not.

    Look at the state before you give it again; `details` names the `command`.
    """


class ConnectionLost(Exception):
    """This connection can't be used any more; another one may be. The text says why."""


class Refused(Exception):
    """The gateway refuses this client, and would do so again. `make` gives the error to raise, a new one
    for each who waits."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def make(self) -> GreenroomError:
        return from_code(self.code, self.message, {})


class NotHere(Refused):
    """No gateway answers under this path; perhaps one does under the path with a slash at its end."""


def refusal(error: Error) -> Exception:
    """What it means for the connection that it can't follow the events."""
    if error.code in ("invalid", "unauthorized", "forbidden"):
        return Refused(error.code, error.message)
    return ConnectionLost(error.message)


def raised(error: Error) -> GreenroomError:
    """The exception for an error that the gateway sent: the same as the embedded engine's."""
    details = dict(error.details)
    if isinstance(details.get("run"), dict):
        try:
            details["run"] = msgspec.convert(details["run"], RunRecord)
        except msgspec.ValidationError as reason:
            return Invalid(f"{error.message} (with a run that can't be read: {reason})")
    return from_code(error.code, error.message, details)
