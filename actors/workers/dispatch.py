"""Dispatch: how a flow's body has work executed by workers. Each call is one attempt; the caller decides
about further ones. When a body is cancelled, its call is withdrawn immediately."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import trio
from msgspec.structs import replace

from ...protocol.errors import Unavailable
from ...protocol.flow.records import WorkerState
from ...protocol.tracecontext import TraceContext
from ...protocol.values import shown
from .. import tracing
from ..channel import Reply
from ..engine.entry_point import EntryPoint
from .answers import request, result
from .messages import CallEnded, Choose, Chosen, HasOther, Offer, Withdraw
from .push import Push, PushFailed
from .registry import Registry
from .states import FailureCode, Work, Worked, WorkFailed
from .urls import exec_url
from .workqueue import WorkQueue

OnAssigned = Callable[[str, str], None]
"""Receives the id and the URL of the worker that has taken a piece of work."""

_WITHDRAW_TIMEOUT = 1.0


class Dispatch:
    """See the module's docstring."""

    def __init__(self, entry: EntryPoint, registry: Registry, queue: WorkQueue, push: Push) -> None:
        self._entry = entry
        self._registry = registry
        self._queue = queue
        self._push = push

    async def push(
        self,
        work: Work,
        *,
        worker: str | None = None,
        avoid: Collection[str] = (),
        weighted_by_load: bool = False,
        on_assigned: OnAssigned | None = None,
    ) -> Worked:
        """Call a worker over HTTP. Raises `WorkFailed`, which names the worker; `on_assigned` receives it
        before the call.

        Calls the worker named by `worker`, if it is online. Otherwise prefers workers that are not in `avoid`
        and have not failed recently; among those the least busy, or each in turn.
        """
        body, headers = _sendable(work, self._entry.max_value_bytes)
        choose = Choose(work.service, worker, avoid, weighted_by_load, Reply())
        chosen: Chosen = await self._ask(choose, self._registry)
        called, failed = chosen.worker, None
        if on_assigned is not None:
            on_assigned(called.id, called.url)
        try:
            with calling(work, "client", called.id) as context:
                headers |= context.headers if context is not None else {}
                value = await self._call(work, called, body, headers)
            failed = False
        except WorkFailed as error:
            failed = error.workers_fault
            raise
        finally:
            self._registry.tell(CallEnded(called.id, chosen.beat, failed))
        return Worked(value, called.id, called.url)

    async def has_other(self, service: str, tried: Collection[str]) -> bool:
        """Whether another worker that is not in `tried` can be called."""
        other: bool = await self._ask(HasOther(service, tried, Reply()), self._registry)
        return other

    async def offer(self, work: Work, *, on_assigned: OnAssigned | None = None) -> Worked:
        """Put work into the queue and wait until a worker has completed it. Raises `WorkFailed`. If the call
        is cancelled, `on_assigned` receives the worker that had taken the work.

        The worker waits for the outcome, too: the caller must `acknowledge` or `refuse` it.
        """
        _sendable(work, self._entry.max_value_bytes)
        with calling(work, "producer") as context:
            return await self._offer(replace(work, trace=context), on_assigned)

    async def _offer(self, work: Work, on_assigned: OnAssigned | None) -> Worked:
        offer = Offer(work, Reply())
        withdraw = Withdraw(offer.reply, Reply())
        holder: str | None
        try:
            with trio.move_on_after(work.timeout):
                worked: Worked = await self._ask(offer, self._queue)
                return worked
        except WorkFailed:
            raise  # the item is no longer in the queue
        except BaseException:
            self._queue.tell(withdraw)
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _WITHDRAW_TIMEOUT):
                holder = await withdraw.reply.get()
                if holder is not None and on_assigned is not None:
                    on_assigned(holder, "")
            raise
        holder = await self._ask(withdraw, self._queue)
        reason = (
            f"worker {shown(holder)} did not complete it" if holder else "no worker took it from the queue"
        )
        raise WorkFailed("timeout", f"{reason} within {work.timeout:g} s", holder)

    async def _call(self, work: Work, worker: WorkerState, body: bytes, headers: dict[str, str]) -> Any:
        def failed(code: FailureCode, message: str) -> WorkFailed:
            return WorkFailed(
                code, f"worker {shown(worker.id)} at {worker.url}: {message}", worker.id, worker.url
            )

        try:
            with trio.move_on_after(work.timeout):
                answer = await self._push.post(exec_url(worker.url, work.service), body, headers)
                return result(*answer, self._entry.max_value_bytes)
        except PushFailed as error:
            raise failed(error.code, error.message) from error
        raise failed("timeout", f"no response within {work.timeout:g} s")

    async def _ask(self, message: Any, actor: Registry | WorkQueue) -> Any:
        try:
            return await self._entry.ask(message, actor)
        except Unavailable as error:
            raise WorkFailed("stopped", error.message) from None


@contextmanager
def calling(work: Work, kind: tracing.Kind, worker: str | None = None) -> Iterator[TraceContext | None]:
    """The span of a call of a worker, if the flow is traced; gives the context that the worker receives."""
    span = tracing.start_below_current(
        f"call {work.service}", kind, run=work.run, node=work.node, service=work.service, worker=worker
    )
    if span is None:
        yield work.trace
        return
    with span:
        yield span.context


def _sendable(work: Work, max_bytes: int) -> tuple[bytes, dict[str, str]]:
    try:
        return request(work, max_bytes)
    except PushFailed as error:
        raise WorkFailed(error.code, error.message) from None
