"""How a command ends: its exit code, and one sentence about what kept it from being done."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import IntEnum
from functools import wraps
from typing import IO, Any, ParamSpec

import click
import msgspec

from ..config.mistakes import ConfigMistakes
from ..protocol.errors import Forbidden, GreenroomError, RunEnded, Unauthorized

P = ParamSpec("P")


class Exit(IntEnum):
    """What the exit codes mean."""

    DONE = 0
    """It is done, or all is well."""
    FAILED = 1
    """It could not be done, or something is wrong."""
    NOT_UNDERSTOOD = 2
    """The command or the configuration was not understood."""
    UNREACHABLE = 3
    """No server answers at this address."""
    NOT_PERMITTED = 4
    """The server wants a token, or the token's role does not permit this."""
    RUN_NOT_SUCCEEDED = 5
    """The run that was waited for has ended, but has not succeeded."""
    LEASE_LOST = 6
    """The server's lease on the store was over, and a body still executed."""
    INTERRUPTED = 130
    """Ctrl-C."""


class Stopped(click.ClickException):
    """The command ends here, with this sentence and this code.

    A program is told of it as it would be over HTTP: in JSON, on standard error. The code in there is that of
    the error that stopped the command, or else the name of the exit code.
    """

    def __init__(self, message: str, code: Exit, error: GreenroomError | None = None) -> None:
        super().__init__(message)
        vars(self)["exit_code"] = int(code)  # where click looks for it first
        self.in_json = False
        self._json = {
            "code": code.name.lower() if error is None else error.code,
            "message": message,
            "details": {} if error is None else dict(error.details),
        }

    def show(self, file: IO[Any] | None = None) -> None:
        if self.in_json:
            click.echo(msgspec.json.encode(self._json, enc_hook=repr), err=True)
        else:
            super().show(file)


def told(function: Callable[P, None]) -> Callable[P, None]:
    """Errors that have a message for people are shown as that, and end the program with their code. Of a
    command with `--json` (its parameter `as_json`), programs can read them, too."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except BrokenPipeError:
            raise  # whoever read the output has had enough; click knows what to do
        except (Stopped, GreenroomError, RunEnded, OSError) as error:
            stopped = error if isinstance(error, Stopped) else _stopped(error)
            stopped.in_json = bool(kwargs.get("as_json"))
            raise stopped from None
        except KeyboardInterrupt:
            sys.exit(Exit.INTERRUPTED)
        except BaseExceptionGroup as group:
            if group.split(KeyboardInterrupt)[1] is not None:
                raise
            sys.exit(Exit.INTERRUPTED)  # Ctrl-C, come out of a nursery

    return call


def _stopped(error: GreenroomError | RunEnded | OSError) -> Stopped:
    """How a command ends that met this error."""
    if isinstance(error, OSError):
        return Stopped(str(error), Exit.FAILED)
    if isinstance(error, RunEnded):
        return Stopped(str(error), Exit.RUN_NOT_SUCCEEDED)
    code = Exit.FAILED
    if isinstance(error, ConfigMistakes):
        code = Exit.NOT_UNDERSTOOD
    elif isinstance(error, Unauthorized | Forbidden):
        code = Exit.NOT_PERMITTED
    return Stopped(error.message, code, error)
