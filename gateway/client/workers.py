"""The client's `workers`: the methods of `engine.workers`, each as one command over the connection.

They are sufficient to write a worker that polls for its work.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

from ...protocol.errors import Conflict, Invalid, TooLarge
from ...protocol.flow import commands as wire
from ...protocol.flow.records import QueueItem, WorkerState
from ...protocol.names import check_name
from ...protocol.validation import (
    LONGEST_POLL,
    check_kind,
    check_load,
    check_seconds,
    check_services,
    check_text,
    check_wait,
)
from ...protocol.values import json_value, shown
from .calls import expected
from .link import Link


class ClientWorkers:
    """See `Workers`."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def register(
        self,
        id: str,
        url: str,
        services: Sequence[str],
        *,
        kind: Literal["http", "queue"] = "http",
        load: float = 0,
    ) -> WorkerState:
        """See `Workers.register`."""
        kind = check_kind(kind)
        check_text("url", url)
        command = wire.RegisterWorker(
            id=self._link.number(),
            worker_id=check_name("id", id),
            url=url,
            services=list(check_services(services)),
            kind=kind,
            load=check_load(load),
        )
        return expected((await self._link.ask(command, repeatable=True)).worker)

    async def heartbeat(self, id: str, load: float | None = None) -> None:
        """See `Workers.heartbeat`."""
        check_text("id", id)
        number = None if load is None else check_load(load)
        command = wire.HeartbeatWorker(id=self._link.number(), worker_id=id, load=number)
        await self._link.ask(command, repeatable=True)

    async def allocate(self, service: str) -> WorkerState | None:
        """See `Workers.allocate`."""
        check_text("service", service)
        command = wire.AllocateWorker(id=self._link.number(), service=service)
        return (await self._link.ask(command, repeatable=True)).worker

    async def poll(
        self, worker_id: str, services: Sequence[str], wait: float = LONGEST_POLL
    ) -> QueueItem | None:
        """See `Workers.poll`. The poll is sent again if the connection is lost: the lease of an item that was
        lost in transit expires after a minute, and another poll receives the item."""
        check_wait(wait)
        command = wire.PollWork(
            id=self._link.number(),
            worker_id=check_name("worker_id", worker_id),
            services=list(check_services(services)),
            wait=wait,
        )
        return (await self._link.ask(command, repeatable=True)).item

    async def complete(
        self, queue_id: str, result: Any = None, error: str = "", *, worker_id: str | None = None
    ) -> None:
        """See `Workers.complete`."""
        check_text("queue_id", queue_id)
        if worker_id is not None:
            check_text("worker_id", worker_id)
        if not isinstance(error, str | None):
            raise Invalid(f"error must be a string (got {shown(error)})", value=shown(error))
        if error:
            await self._complete(queue_id, None, error, worker_id)
            return
        try:
            await self._complete(queue_id, json_value(result, "result", None), "", worker_id)
        except (Invalid, TooLarge) as unfit:
            with suppress(Conflict):  # the gateway refused the result, and the work has failed already
                await self._complete(queue_id, None, unfit.message, worker_id)
            raise

    async def _complete(self, item: str, result: Any, error: str, worker: str | None) -> None:
        command = wire.CompleteWork(
            id=self._link.number(), item_id=item, result=result, error=error, worker_id=worker
        )
        await self._link.ask(command)

    async def extend(self, queue_id: str, worker_id: str) -> None:
        """See `Workers.extend`."""
        check_text("queue_id", queue_id)
        check_text("worker_id", worker_id)
        command = wire.ExtendWork(id=self._link.number(), item_id=queue_id, worker_id=worker_id)
        await self._link.ask(command, repeatable=True)

    async def list(self, service: str | None = None, ttl: float | None = None) -> Sequence[WorkerState]:
        """See `Workers.list`."""
        if service is not None:
            check_text("service", service)
        if ttl is not None:
            check_seconds("ttl", ttl, 0)
        command = wire.ListWorkers(id=self._link.number(), service=service, ttl=ttl)
        parts = await self._link.ask_for_parts(command)
        return [worker for part in parts for worker in part.workers or ()]
