"""Work from the server's queue: one poll at a time, and concurrent calls up to the limit.

A worker has an item for a minute, and for another minute after each heartbeat. When that has expired, the
server gives the work to another worker. Then the call is cancelled, because its result would be refused.
"""

from __future__ import annotations

import logging

import trio

from ..protocol.errors import Conflict, GreenroomError, Invalid, NotFound, Unavailable
from ..protocol.tracecontext import trace_context
from .calls import Calls, Outcome, parse_request
from .presence import Presence, delays
from .registry import Item, Registry
from .services import Services, unknown_service

logger = logging.getLogger("greenroom.worker")

EXTEND_EVERY = 20.0
"""Seconds between two heartbeats for an item."""
LEASE = 60.0
"""Seconds for which the worker has an item."""
_PAUSE = 1.0
"""Minimum seconds between two polls, for servers that answer polls immediately."""


class Pull:
    """Takes work by polling."""

    def __init__(self, registry: Registry, calls: Calls, services: Services, presence: Presence) -> None:
        self._registry = registry
        self._calls = calls
        self._services = services
        self._presence = presence
        self._taking = trio.CancelScope()

    def stop(self) -> None:
        """Take no new work. An item that the server is just sending expires and goes to another worker."""
        self._taking.cancel()

    async def run(self) -> None:
        """Take and execute work until `stop`; returns when all results are reported."""
        async with trio.open_nursery() as nursery:
            with self._taking:
                await self._presence.registered.wait()
                await self._take(nursery)

    async def _take(self, nursery: trio.Nursery) -> None:
        pauses = delays()
        while True:
            await self._calls.room()
            began = trio.current_time()
            try:
                item = await self._registry.poll(self._services.names)
            except GreenroomError as error:
                if not isinstance(error, Unavailable):  # the registry logs that one
                    logger.error("poll refused: %s", error.message)
                await trio.sleep(next(pauses))
                continue
            pauses = delays()
            if item is None:
                await trio.sleep_until(began + _PAUSE)
            else:
                await nursery.start(self._work, _Leased(item, trio.current_time() + LEASE))

    async def _work(
        self, leased: _Leased, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        with self._calls.counted(leased.item.service):
            task_status.started()
            outcome: Outcome | None = None
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_lease, leased, nursery.cancel_scope)
                outcome = await self._execute(leased.item)
                nursery.cancel_scope.cancel()
            if outcome is not None and not leased.lost:
                await self._report(leased, outcome)

    async def _execute(self, item: Item) -> Outcome:
        service = self._services.get(item.service)
        if service is None:
            return Outcome(error=unknown_service(item.service, self._services))
        try:
            what = parse_request(item.input_json, item.idempotency_key)
        except Invalid as error:
            return Outcome(error=f"input_json is not valid: {error.message}")
        trace = trace_context(item.traceparent, item.tracestate)
        return await self._calls.execute(service, what, trace)

    async def _keep_lease(self, leased: _Leased, scope: trio.CancelScope) -> None:
        """Send heartbeats for an item; cancel its call when the worker no longer has it."""
        due = trio.current_time() + EXTEND_EVERY
        while not leased.lost:
            with trio.move_on_at(leased.until):
                await trio.sleep_until(due)
                began = trio.current_time()
                due = began + EXTEND_EVERY
                try:
                    await self._registry.extend(leased.item.id)
                except (NotFound, Conflict):
                    leased.lost = True
                except GreenroomError:
                    due = began + _PAUSE
                else:
                    leased.until = began + LEASE
            leased.lost = leased.lost or trio.current_time() >= leased.until
        logger.warning(
            "queue item %s is no longer assigned to this worker: %r is cancelled",
            leased.item.id,
            leased.item.service,
        )
        scope.cancel()

    async def _report(self, leased: _Leased, outcome: Outcome) -> None:
        item = leased.item
        pauses = delays(longest=5.0)
        with trio.move_on_at(leased.until):
            while True:
                try:
                    await self._registry.complete(item.id, outcome)
                except Unavailable:
                    await trio.sleep(next(pauses))
                except (NotFound, Conflict) as error:
                    logger.warning(
                        "the result of queue item %s is no longer needed: %s", item.id, error.message
                    )
                    return
                except GreenroomError as error:
                    logger.error("the result of queue item %s was refused: %s", item.id, error.message)
                    if outcome.result is None:
                        return
                    outcome = Outcome(error=f"the server refused the result: {error.message}")
                else:
                    return
        logger.error("the result of queue item %s could not be reported before the item expired", item.id)


class _Leased:
    """An item that this worker has taken. `until` is when its lease expires."""

    def __init__(self, item: Item, until: float) -> None:
        self.item = item
        self.until = until
        self.lost = False
