"""A ticket: what a caller holds for a run that was accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from ...protocol.records import RunRecord
from ...protocol.results import raise_unless_succeeded
from ...protocol.validation import FilesFate, check_seconds
from ..channel import Reply

if TYPE_CHECKING:
    from .api import Engine


class Ticket:
    """`id` is the run's; `joined` says that the run was there before."""

    def __init__(self, id: str, joined: bool, ended: Reply[RunRecord | None], engine: Engine) -> None:
        self.id = id
        self.joined = joined
        self._ended = ended
        self._engine = engine

    async def result(self) -> Any:
        """Wait for the end; return the result, or raise `RunFailed`, `RunCancelled`, `RunTimedOut` or
        `RunRejected`, each with the run's last state."""
        run = await self._ended.get()
        return raise_unless_succeeded(run or await self._engine.get_run(self.id))

    async def wait(self, timeout: float | None = 15) -> bool:
        """Whether the run ends within `timeout` seconds."""
        with trio.move_on_after(check_seconds("timeout", timeout, 15)):
            await self._ended.get()
            return True
        return False

    async def cancel(self, files: FilesFate = "keep", *, by: str = "app") -> RunRecord:
        """See `Engine.cancel`."""
        return await self._engine.cancel(self.id, files, by=by)
