"""`ProcessEnding`: what a body raised that ends its executor's process, such as `SystemExit`."""

from __future__ import annotations

from ..actors.run.failures import error_text


class ProcessEnding(Exception):
    """The process must end: `what`, as in "body of run 01a…", has raised `error`."""

    def __init__(self, what: str, error: BaseException) -> None:
        super().__init__(
            f"{what} raised {error_text(error)}, which ends this process like a crash: raise an Exception to "
            "fail only the run"
        )
        self.__cause__ = error
