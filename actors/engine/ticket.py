"""A ticket: what a caller receives for an accepted run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, cast

import trio

from ...protocol.jobs import AnyJob
from ...protocol.records import RunRecord
from ...protocol.results import raise_unless_succeeded
from ...protocol.validation import FilesFate, check_seconds
from ..channel import Reply, Result_co

if TYPE_CHECKING:
    from .api import Engine


class Ticket(Generic[Result_co]):
    """`id` is the run's id; `joined` is true if the run existed before the submission."""

    def __init__(
        self,
        id: str,
        joined: bool,
        ended: Reply[RunRecord | None],
        engine: Engine,
        job: AnyJob | None = None,
    ) -> None:
        self.id = id
        self.joined = joined
        self._ended = ended
        self._engine = engine
        self._job = job

    async def result(self) -> Result_co:
        """Wait for the end and return the result. Raises `RunFailed`, `RunCancelled`, `RunTimedOut` or
        `RunRejected`, each with the run's last state.

        The result is a JSON value. If the job was submitted as its function, the result is converted to the
        function's return annotation; `Invalid` if it does not fit.
        """
        run = await self._ended.get()
        run = run or await self._engine.get_run(self.id)
        return cast(Result_co, raise_unless_succeeded(run, self._job))

    async def wait(self, timeout: float | None = 15) -> bool:
        """Wait for the end; return whether the run ended within `timeout` seconds."""
        with trio.move_on_after(check_seconds("timeout", timeout, 15)):
            await self._ended.get()
            return True
        return False

    async def cancel(self, files: FilesFate = "keep", *, by: str = "app") -> RunRecord:
        """See `Engine.cancel`."""
        return await self._engine.cancel(self.id, files, by=by)
