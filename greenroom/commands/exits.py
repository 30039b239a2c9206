"""The exit codes of commands, and their error messages."""

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
    """The exit codes."""

    DONE = 0
    """The command succeeded."""
    FAILED = 1
    """The command failed, or a check found an error."""
    NOT_UNDERSTOOD = 2
    """The arguments or the configuration are not valid."""
    UNREACHABLE = 3
    """The server is unreachable."""
    NOT_PERMITTED = 4
    """The server requires a token, or the token's role does not permit the command."""
    RUN_NOT_SUCCEEDED = 5
    """The run has ended, but has not succeeded."""
    LEASE_LOST = 6
    """A body still executed when the server's lease on the store, or an executor's lease, expired."""
    INTERRUPTED = 130
    """Ctrl-C."""


class Stopped(click.ClickException):
    """End the command with an error message and an exit code.

    With --json the error is printed as JSON on standard error, in the form of HTTP errors. Its code is the
    code of the error that stopped the command, or the name of the exit code.
    """

    def __init__(self, message: str, code: Exit, error: GreenroomError | None = None) -> None:
        super().__init__(message)
        vars(self)["exit_code"] = int(code)  # click reads the instance's attribute first
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


def report_errors(function: Callable[P, None]) -> Callable[P, None]:
    """Print expected errors of a command as a message, or as JSON with `--json` (the parameter `as_json`),
    and exit with their code."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except BrokenPipeError:
            raise  # the reader of the output has closed it; click handles that
        except (Stopped, GreenroomError, RunEnded, OSError) as error:
            stopped = error if isinstance(error, Stopped) else _stopped(error)
            stopped.in_json = bool(kwargs.get("as_json"))
            raise stopped from None
        except KeyboardInterrupt:
            sys.exit(Exit.INTERRUPTED)
        except BaseExceptionGroup as group:
            if group.split(KeyboardInterrupt)[1] is not None:
                raise
            sys.exit(Exit.INTERRUPTED)  # Ctrl-C inside a nursery

    return call


def _stopped(error: GreenroomError | RunEnded | OSError) -> Stopped:
    """The `Stopped` for an error."""
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
