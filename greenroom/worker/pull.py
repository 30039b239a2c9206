"""Taking work from the server's queue: polls one after the other, and as many calls at once as there is room.

What is taken belongs to the worker for a minute, and for another one with each heartbeat. After that the
server gives it to somebody else, so the call is ended and its result isn't wanted any more.
"""

from __future__ import annotations

import logging

import trio

from ..protocol.errors import Conflict, GreenroomError, Invalid, NotFound, Unavailable
from .calls import Calls, Outcome, asked
from .presence import Presence, delays
from .registry import Item, Registry
from .services import Services, unknown_service

logger = logging.getLogger("greenroom.worker")

HOLD = 20.0
"""Seconds between two heartbeats for what is being worked on."""
LEASE = 60.0
"""Seconds for which something taken belongs to the worker."""
_PAUSE = 1.0
"""Seconds between two polls of a server that does not let them wait."""


class Pull:
    """The calls that a worker fetches for itself."""

    def __init__(self, registry: Registry, calls: Calls, services: Services, presence: Presence) -> None:
        self._registry = registry
        self._calls = calls
        self._services = services
        self._presence = presence
        self._taking = trio.CancelScope()

    def stop(self) -> None:
        """Take nothing more. What the server is just handing over goes to somebody else a minute later."""
        self._taking.cancel()

    async def run(self) -> None:
        """Take and do work until told to stop; returns when all of it is done and handed in."""
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
                if not isinstance(error, Unavailable):  # which the registry tells itself
                    logger.error("a poll was refused: %s", error.message)
                await trio.sleep(next(pauses))
                continue
            pauses = delays()
            if item is None:
                await trio.sleep_until(began + _PAUSE)
            else:
                await nursery.start(self._work, _Held(item, trio.current_time() + LEASE))

    async def _work(self, held: _Held, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with self._calls.one(held.item.service):
            task_status.started()
            outcome: Outcome | None = None
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._hold, held, nursery.cancel_scope)
                outcome = await self._execute(held.item)
                nursery.cancel_scope.cancel()
            if outcome is not None and not held.lost:
                await self._hand_in(held, outcome)

    async def _execute(self, item: Item) -> Outcome:
        service = self._services.get(item.service)
        if service is None:
            return Outcome(error=unknown_service(item.service, self._services))
        try:
            what = asked(item.input_json, item.idempotency_key)
        except Invalid as error:
            return Outcome(error=f"input_json can't be read: {error.message}")
        return await self._calls.execute(service, what)

    async def _hold(self, held: _Held, scope: trio.CancelScope) -> None:
        """Keep what is being worked on, for as long as the server leaves it to this worker."""
        due = trio.current_time() + HOLD
        while not held.lost:
            with trio.move_on_at(held.until):
                await trio.sleep_until(due)
                began = trio.current_time()
                due = began + HOLD
                try:
                    await self._registry.hold(held.item.id)
                except (NotFound, Conflict):
                    held.lost = True
                except GreenroomError:
                    due = began + _PAUSE
                else:
                    held.until = began + LEASE
            held.lost = held.lost or trio.current_time() >= held.until
        logger.warning(
            "item %s is nobody's or somebody else's by now: %r is cancelled", held.item.id, held.item.service
        )
        scope.cancel()

    async def _hand_in(self, held: _Held, outcome: Outcome) -> None:
        item = held.item
        pauses = delays(longest=5.0)
        with trio.move_on_at(held.until):
            while True:
                try:
                    await self._registry.complete(item.id, outcome)
                except Unavailable:
                    await trio.sleep(next(pauses))
                except (NotFound, Conflict) as error:
                    logger.warning("nobody waits for the result of item %s: %s", item.id, error.message)
                    return
                except GreenroomError as error:
                    logger.error("the result of item %s was refused: %s", item.id, error.message)
                    if outcome.result is None:
                        return
                    outcome = Outcome(error=f"the server refused the result: {error.message}")
                else:
                    return
        logger.error("the result of item %s could not be handed in while it was wanted", item.id)


class _Held:
    """An item that this worker has taken. `until` is when it belongs to the worker no longer."""

    def __init__(self, item: Item, until: float) -> None:
        self.item = item
        self.until = until
        self.lost = False
