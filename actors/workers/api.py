"""`engine.workers`: the calls of workers to an engine, and queries about workers. The gateway uses it."""

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
    Heard,
    Heartbeat,
    ListWorkers,
    Poll,
    Register,
    ReturnItem,
    Unpoll,
)
from .networks import Networks, refusal_of_url
from .registry import Registry
from .states import FailureCode, WorkFailed
from .urls import check_url
from .workqueue import WorkQueue

_COMMITTED_WITHIN = 30.0
"""Seconds that `complete` waits for the commit: the store may be down."""


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
        """Register a worker, or replace the one that was registered under this id. The engine calls a worker
        of the kind `http` under `url`; a worker of the kind `queue` polls. `listed_as` is the type and the
        URL in the compatible task API."""
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
        """Raise `Invalid` if the engine would never call this URL, because its address is in none of the
        `worker_networks`. The gateway calls this at registration, so that workers learn it before their first
        call fails. A host name is not checked here; it is resolved at each call."""
        if isinstance(url, str) and url:
            _refuse_url(url, refusal_of_url(check_url(url, "http"), self._networks))

    async def heartbeat(self, id: str, load: float | None = None, *, by: str = "app") -> None:
        """Report that a worker is alive. Raises `NotFound` if it is not registered; it must register then."""
        check_text("id", id)
        number = None if load is None else check_load(load)
        await self._entry.ask(Heartbeat(id, number, by, Reply()), self._registry)

    async def list(self, service: str | None = None, ttl: float | None = None) -> Sequence[WorkerState]:
        """The workers that serve a service (or all), and were in contact within the last `ttl` seconds."""
        if service is not None:
            check_text("service", service)
        if ttl is not None:
            check_seconds("ttl", ttl, 0)
        workers: Sequence[WorkerState] = await self._entry.ask(
            ListWorkers(service, ttl, Reply()), self._registry
        )
        return workers

    async def allocate(self, service: str) -> WorkerState | None:
        """The worker with the least load among those that are online and can be called, if there is one."""
        check_text("service", service)
        worker: WorkerState | None = await self._entry.ask(Allocate(service, Reply()), self._registry)
        return worker

    async def poll(
        self, worker_id: str, services: Sequence[str], wait: float = LONGEST_POLL
    ) -> QueueItem | None:
        """Wait for work of one of these services. Returns `None` after `wait` seconds, or when the same
        worker polls again."""
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
        """How many items wait for a worker, and how many workers have taken; for the gateway's metrics."""
        found = self._queue.report()
        return found["waiting"], found["leased"]

    def give_back(self, queue_id: str, worker_id: str) -> None:
        """Return an item that did not reach its worker to the queue. Has no effect if the worker has reported
        about the item since."""
        self._queue.tell(ReturnItem(queue_id, worker_id))

    async def complete(
        self, queue_id: str, result: Any = None, error: str = "", *, worker_id: str | None = None
    ) -> None:
        """Complete an item, or report its failure with `error`. Returns when that is committed. Raises
        `Conflict` if the worker no longer has the item (completed, withdrawn, or expired). A result that is
        not valid or too large is refused, and the work fails. Raises `Unavailable` if the commit takes too
        long."""
        check_text("queue_id", queue_id)
        if worker_id is not None:
            check_text("worker_id", worker_id)
            self._registry.tell(Heard(worker_id))
        if not isinstance(error, str | None):
            raise Invalid(f"error must be a string (got {shown(error)})", value=shown(error))
        refused: Invalid | TooLarge | None = None
        failed = None
        if error:
            failed = WorkFailed("service_error", error_text(error))
        else:
            try:
                result = json_value(result, "result", self._entry.max_value_bytes)
            except (Invalid, TooLarge) as unfit:
                refused = unfit
                code: FailureCode = "too_large" if isinstance(unfit, TooLarge) else "bad_answer"
                failed = WorkFailed(code, unfit.message)
        with trio.move_on_after(_COMMITTED_WITHIN) as scope:
            await self._entry.ask(Complete(queue_id, worker_id, result, failed, Reply()), self._queue)
        if scope.cancelled_caught:
            raise Unavailable(
                f"the result of queue item {shown(queue_id)} was received, but is not committed yet"
            )
        if refused is not None:
            raise refused

    async def extend(self, queue_id: str, worker_id: str) -> None:
        """Keep an item for another minute, because the worker still works on it. Raises `Conflict` as
        `complete` does; the worker must then stop working on it."""
        check_text("queue_id", queue_id)
        check_text("worker_id", worker_id)
        self._registry.tell(Heard(worker_id))
        await self._entry.ask(Extend(queue_id, worker_id, Reply()), self._queue)


def _refuse_url(url: str, refusal: str | None) -> None:
    if refusal is not None:
        raise Invalid(f"url {shown(url)} cannot be used for a worker: {refusal}", value=shown(url))
