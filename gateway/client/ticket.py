"""The client's ticket: the same as the engine's, and good for as long as the client is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, cast

import trio

from ...actors.channel import Result_co
from ...protocol.jobs import AnyJob
from ...protocol.records import RunRecord
from ...protocol.results import raise_unless_succeeded
from ...protocol.validation import FilesFate, check_seconds

if TYPE_CHECKING:
    from .client import Client


class ClientTicket(Generic[Result_co]):
    """`id` is the run's; `joined` says that the run was there before."""

    def __init__(self, id: str, joined: bool, client: Client, job: AnyJob | None = None) -> None:
        self.id = id
        self.joined = joined
        self._client = client
        self._job = job

    async def result(self) -> Result_co:
        """Wait for the end, also while the gateway can't be reached; return the result, or raise `RunFailed`,
        `RunCancelled`, `RunTimedOut` or `RunRejected`, each with the run's last state. It is converted as
        `Ticket.result` says."""
        return cast(Result_co, raise_unless_succeeded(await self._client.ended(self.id), self._job))

    async def wait(self, timeout: float | None = 15) -> bool:
        """Whether the run ends within `timeout` seconds."""
        with trio.move_on_after(check_seconds("timeout", timeout, 15)):
            await self._client.ended(self.id)
            return True
        return False

    async def cancel(self, files: FilesFate = "keep") -> RunRecord:
        """See `Client.cancel`."""
        return await self._client.cancel(self.id, files)
