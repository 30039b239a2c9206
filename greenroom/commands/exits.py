"""How a command ends: its exit code, and one sentence about what kept it from being done."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import IntEnum
from functools import wraps
from typing import ParamSpec

import click

from ..config.mistakes import ConfigMistakes
from ..protocol.errors import Forbidden, GreenroomError, RunEnded, Unauthorized
from ..protocol.records import RunRecord
from ..protocol.states import Status

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
    INTERRUPTED = 130
    """Ctrl-C."""


class Stopped(click.ClickException):
    """The command ends here, with this sentence and this code."""

    def __init__(self, message: str, code: Exit) -> None:
        super().__init__(message)
        vars(self)["exit_code"] = int(code)  # where click looks for it first


def told(function: Callable[P, None]) -> Callable[P, None]:
    """Errors that have a message for people are shown as that, and end the program with their code."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except ConfigMistakes as error:
            raise Stopped(error.message, Exit.NOT_UNDERSTOOD) from error
        except (Unauthorized, Forbidden) as error:
            raise Stopped(error.message, Exit.NOT_PERMITTED) from error
        except GreenroomError as error:
            raise Stopped(error.message, Exit.FAILED) from error
        except RunEnded as error:
            raise Stopped(str(error), Exit.RUN_NOT_SUCCEEDED) from error
        except BrokenPipeError:
            raise  # whoever read the output has had enough; click knows what to do
        except OSError as error:
            raise Stopped(str(error), Exit.FAILED) from error
        except KeyboardInterrupt:
            sys.exit(Exit.INTERRUPTED)
        except BaseExceptionGroup as group:
            if group.split(KeyboardInterrupt)[1] is not None:
                raise
            sys.exit(Exit.INTERRUPTED)  # Ctrl-C, come out of a nursery

    return call


def end_with(run: RunRecord) -> None:
    """End the command as the run that it waited for has ended."""
    if run.status != Status.SUCCEEDED:
        raise Stopped(str(RunEnded(run)), Exit.RUN_NOT_SUCCEEDED)
