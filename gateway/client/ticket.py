"""The client's ticket: like the engine's, and valid until the client is closed."""

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
    """A submitted run. `id` is the run's id; `joined` is whether the run existed before."""

    def __init__(self, id: str, joined: bool, client: Client, job: AnyJob | None = None) -> None:
        self.id = id
        self.joined = joined
        self._client = client
        self._job = job

    async def result(self) -> Result_co:
        """Wait for the run's end, also while the gateway is unreachable, and return its result.

        Raises `RunFailed`, `RunCancelled`, `RunTimedOut` or `RunRejected`, each with the run's last state.
        The result is converted like that of `Ticket.result`.
        """
        return cast(Result_co, raise_unless_succeeded(await self._client.ended(self.id), self._job))

    async def wait(self, timeout: float | None = 15) -> bool:
        """Wait at most `timeout` seconds for the run's end. Returns whether it has ended."""
        with trio.move_on_after(check_seconds("timeout", timeout, 15)):
            await self._client.ended(self.id)
            return True
        return False

    async def cancel(self, files: FilesFate = "keep") -> RunRecord:
        """See `Client.cancel`."""
        return await self._client.cancel(self.id, files)
