"""Dispatch: what a flow's body uses to have work done elsewhere. One call is one try; whether another one
follows is the caller's matter. A body that is cancelled takes its call back at once."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import trio

from ...protocol.errors import Unavailable
from ...protocol.flow.records import WorkerState
from ...protocol.values import shown
from ..channel import Reply
from ..engine.entry_point import EntryPoint
from .answers import request, result
from .messages import CallEnded, Choose, Chosen, HasOther, Offer, Withdraw
from .push import Push, PushFailed
from .registry import Registry
from .states import Failing, Work, Worked, WorkFailed
from .urls import exec_url
from .workqueue import WorkQueue

Given = Callable[[str, str], None]
"""Hears which worker has a piece of work in hand, and under which URL."""

_TO_WITHDRAW = 1.0


class Dispatch:
    """See the module's text."""

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
        given: Given | None = None,
    ) -> Worked:
        """Call a worker over HTTP. Raises `WorkFailed`, which names who it was; `given` hears it before.

        It is the one named as `worker`, if that is online; else one that isn't in `avoid` and hasn't failed
        lately, if there is one: the least busy, or each in turn.
        """
        body, headers = _sendable(work, self._entry.max_value_bytes)
        choose = Choose(work.service, worker, avoid, weighted_by_load, Reply())
        chosen: Chosen = await self._ask(choose, self._registry)
        called, failed = chosen.worker, None
        if given is not None:
            given(called.id, called.url)
        try:
            value = await self._call(work, called, body, headers)
            failed = False
        except WorkFailed as error:
            failed = error.workers_fault
            raise
        finally:
            self._registry.tell(CallEnded(called.id, chosen.beat, failed))
        return Worked(value, called.id, called.url)

    async def has_other(self, service: str, tried: Collection[str]) -> bool:
        """Whether there is a worker to call who hasn't tried yet."""
        other: bool = await self._ask(HasOther(service, tried, Reply()), self._registry)
        return other

    async def offer(self, work: Work, *, given: Given | None = None) -> Worked:
        """Put it into the queue and wait until a worker has done it. Raises `WorkFailed`; where it is
        cancelled, `given` hears who had taken it.

        The worker waits in turn: `acknowledge` what comes of it, or `refuse` it.
        """
        _sendable(work, self._entry.max_value_bytes)
        offer = Offer(work, Reply())
        withdraw = Withdraw(offer.reply, Reply())
        taker: str | None
        try:
            with trio.move_on_after(work.timeout):
                worked: Worked = await self._ask(offer, self._queue)
                return worked
        except WorkFailed:
            raise  # it isn't there any more
        except BaseException:
            self._queue.tell(withdraw)
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _TO_WITHDRAW):
                taker = await withdraw.reply.get()
                if taker is not None and given is not None:
                    given(taker, "")
            raise
        taker = await self._ask(withdraw, self._queue)
        waited = (
            f"worker {shown(taker)} has not completed it" if taker else "no worker took it from the queue"
        )
        raise WorkFailed("timeout", f"{waited} within {work.timeout:g} s", taker)

    async def _call(self, work: Work, worker: WorkerState, body: bytes, headers: dict[str, str]) -> Any:
        def failed(code: Failing, message: str) -> WorkFailed:
            return WorkFailed(
                code, f"worker {shown(worker.id)} at {worker.url}: {message}", worker.id, worker.url
            )

        try:
            with trio.move_on_after(work.timeout):
                answer = await self._push.post(exec_url(worker.url, work.service), body, headers)
                return result(*answer, self._entry.max_value_bytes)
        except PushFailed as error:
            raise failed(error.code, error.message) from error
        raise failed("timeout", f"no answer within {work.timeout:g} s")

    async def _ask(self, message: Any, actor: Registry | WorkQueue) -> Any:
        try:
            return await self._entry.ask(message, actor)
        except Unavailable as error:
            raise WorkFailed("stopped", error.message) from None


def _sendable(work: Work, max_bytes: int) -> tuple[bytes, dict[str, str]]:
    try:
        return request(work, max_bytes)
    except PushFailed as error:
        raise WorkFailed(error.code, error.message) from None
