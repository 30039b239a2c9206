"""`engine.workers`: what workers say to an engine, and what others ask about them. The gateway calls this."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import trio

from ...persistence.flows import WorkerRow
from ...protocol.errors import Invalid, TooLarge, Unavailable
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
from ..channel import Reply
from ..engine.entry_point import EntryPoint
from .answers import error_text
from .messages import (
    Allocate,
    Complete,
    Extend,
    GiveBack,
    Heard,
    Heartbeat,
    ListWorkers,
    Poll,
    Register,
    Unpoll,
)
from .networks import Networks, refusal_of_url
from .registry import Registry
from .states import Failing, WorkFailed
from .urls import check_url
from .workqueue import WorkQueue

_COMMITTED_WITHIN = 30.0
"""Seconds that a worker waits until what it completed is committed: its store may be down."""


class Workers:
    """The workers of an engine. `by` names who caused a change, in its event."""

    def __init__(
        self,
        entry: EntryPoint,
        registry: Registry,
        queue: WorkQueue,
        clock: Callable[[], float],
        networks: Networks,
    ) -> None:
        self._entry = entry
        self._registry = registry
        self._queue = queue
        self._clock = clock
        self._networks = networks

    async def register(
        self,
        id: str,
        url: str,
        services: Sequence[str],
        *,
        kind: Literal["http", "queue"] = "http",
        load: float = 0,
        listed_as: tuple[str, str] | None = None,
        by: str = "app",
    ) -> WorkerState:
        """A worker is there. One of this id that was registered before is replaced. It is called under `url`
        if its kind is `http`, and polls otherwise. `listed_as` is the type and the URL that clients of tasks
        are shown."""
        kind = check_kind(kind)
        checked = check_url(url, kind)
        _refuse_url(url, refusal_of_url(checked))
        row = WorkerRow(
            check_name("id", id),
            checked,
            check_services(services),
            kind,
            check_load(load),
            self._clock(),
            listed_as,
        )
        state: WorkerState = await self._entry.ask(Register(row, by, Reply()), self._registry)
        return state

    def permit(self, url: str) -> None:
        """Refuse a worker's URL by which it would never be called, because its address is in none of the
        `worker_networks`. For the gateway, whose callers are to hear that before their first call fails; a
        host's name is only resolved then. Raises `Invalid`."""
        if isinstance(url, str) and url:
            _refuse_url(url, refusal_of_url(check_url(url, "http"), self._networks))

    async def heartbeat(self, id: str, load: float | None = None, *, by: str = "app") -> None:
        """A worker lives. One that isn't registered is `NotFound`, and is to register."""
        check_text("id", id)
        number = None if load is None else check_load(load)
        await self._entry.ask(Heartbeat(id, number, by, Reply()), self._registry)

    async def list(self, service: str | None = None, ttl: float | None = None) -> Sequence[WorkerState]:
        """The workers that serve a service (without one, all), and were heard of within `ttl` seconds."""
        if service is not None:
            check_text("service", service)
        if ttl is not None:
            check_seconds("ttl", ttl, 0)
        workers: Sequence[WorkerState] = await self._entry.ask(
            ListWorkers(service, ttl, Reply()), self._registry
        )
        return workers

    async def allocate(self, service: str) -> WorkerState | None:
        """The worker with the least load of those that are online and can be called, if there is one."""
        check_text("service", service)
        worker: WorkerState | None = await self._entry.ask(Allocate(service, Reply()), self._registry)
        return worker

    async def poll(
        self, worker_id: str, services: Sequence[str], wait: float = LONGEST_POLL
    ) -> QueueItem | None:
        """Work of one of these services, as soon as there is some; `None` if there is none for `wait`
        seconds, or the same worker polls anew meanwhile."""
        check_wait(wait)
        worker = check_name("worker_id", worker_id)
        poll = Poll(worker, check_services(services), wait > 0, Reply())
        self._registry.tell(Heard(worker))
        try:
            with trio.move_on_after(wait or math.inf):
                item: QueueItem | None = await self._entry.ask(poll, self._queue)
                return item
        except BaseException:
            self._queue.tell(Unpoll(poll))
            raise
        self._queue.tell(Unpoll(poll))
        return None

    def queued(self) -> tuple[int, int]:
        """How many items wait for a worker, and how many workers have in hand; for the gateway's metrics."""
        found = self._queue.report()
        return found["waiting"], found["leased"]

    def give_back(self, queue_id: str, worker_id: str) -> None:
        """What a poll has answered didn't get to its worker: another one gets it, unless something was said
        about it already."""
        self._queue.tell(GiveBack(queue_id, worker_id))

    async def complete(
        self, queue_id: str, result: Any = None, error: str = "", *, worker_id: str | None = None
    ) -> None:
        """An item is done, or has failed if there is an `error`. Returns when that is committed. A `Conflict`
        if it isn't that worker's any more: completed, withdrawn, or lost. A result that can't be taken is
        refused, and the work has failed with it. `Unavailable` if it takes long to commit it."""
        check_text("queue_id", queue_id)
        if worker_id is not None:
            check_text("worker_id", worker_id)
            self._registry.tell(Heard(worker_id))
        if not isinstance(error, str | None):
            raise Invalid(f"error must be a string, not {shown(error)}", value=shown(error))
        refused: Invalid | TooLarge | None = None
        failed = None
        if error:
            failed = WorkFailed("service_error", error_text(error))
        else:
            try:
                result = json_value(result, "result", self._entry.max_value_bytes)
            except (Invalid, TooLarge) as unfit:
                refused = unfit
                code: Failing = "too_large" if isinstance(unfit, TooLarge) else "bad_answer"
                failed = WorkFailed(code, unfit.message)
        with trio.move_on_after(_COMMITTED_WITHIN) as scope:
            await self._entry.ask(Complete(queue_id, worker_id, result, failed, Reply()), self._queue)
        if scope.cancelled_caught:
            raise Unavailable(
                f"what became of queue item {shown(queue_id)} is known, but isn't committed yet"
            )
        if refused is not None:
            raise refused

    async def extend(self, queue_id: str, worker_id: str) -> None:
        """The worker still works on an item, and keeps it for another minute. A `Conflict` as for
        `complete`: then it is to stop."""
        check_text("queue_id", queue_id)
        check_text("worker_id", worker_id)
        self._registry.tell(Heard(worker_id))
        await self._entry.ask(Extend(queue_id, worker_id, Reply()), self._queue)


def _refuse_url(url: str, refusal: str | None) -> None:
    if refusal is not None:
        raise Invalid(f"url {shown(url)} can't be a worker's: {refusal}", value=shown(url))
