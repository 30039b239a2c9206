"""The client's `executors`: the methods of `engine.executors`, each as one command over the connection."""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol import commands as wire
from ...protocol.records import ExecutorInfo
from ...protocol.validation import check_text
from .link import Link


class ClientExecutors:
    """See `Executors`."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def list(self) -> Sequence[ExecutorInfo]:
        """See `Executors.list`."""
        parts = await self._link.ask_for_parts(wire.ListExecutors(id=self._link.number()))
        return [executor for part in parts for executor in part.executors or ()]

    async def drain(self, executor: str) -> None:
        """See `Executors.drain`."""
        check_text("executor", executor)
        command = wire.DrainExecutor(id=self._link.number(), executor_id=executor)
        await self._link.ask(command, repeatable=True)
