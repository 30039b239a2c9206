"""The work queue: the actor that passes work to polling workers.

Bodies offer work and wait; workers poll. A worker has an item for a minute, and for another minute after each
heartbeat. Without one, the item expires: the body receives a failure and may offer the work again, and the
worker's completion is refused. Nothing is stored: a run that resumes after a restart offers its work again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import trio

from ...protocol.errors import Conflict
from ...protocol.flow.records import QueueItem
from ...protocol.values import shown
from ..actor import Actor
from ..channel import Reply
from .messages import Complete, End, Extend, Offer, Poll, ReturnItem, Unpoll, Withdraw
from .states import Work, Worked, WorkFailed

VISIBLE_FOR = 60.0
"""Seconds for which a worker has an item exclusively."""


class _Item(msgspec.Struct):
    work: Work
    reply: Reply[Worked]
    number: int  # the order of the offers
    lease: _Lease | None = None


class _Lease(msgspec.Struct):
    id: str
    item: _Item
    worker: str
    poll: Poll
    until: float


class WorkQueue(Actor):
    """See the module's docstring."""

    def __init__(self, ids: Callable[[], str]) -> None:
        super().__init__("workqueue", "")
        self._ids = ids
        self._offered: dict[Reply[Worked], _Item] = {}
        self._waiting: dict[str, dict[int, _Item]] = {}  # by service, in the order of the offers
        self._leases: dict[str, _Lease] = {}  # by id, in the order of their expiry
        self._polls: dict[str, Poll] = {}  # by worker
        self._polling: dict[str, dict[str, Poll]] = {}  # by service and worker, the longest wait first
        self._number = 0
        self._ended = False

    def report(self) -> dict[str, Any]:
        return super().report() | {
            "waiting": len(self._offered) - len(self._leases),
            "leased": len(self._leases),
            "polls": len(self._polls),
        }

    async def on_batch(self, messages: Sequence[Any]) -> None:
        for message in messages:
            try:
                _HANDLERS[type(message)](self, message)
            except Conflict as error:
                message.reply.fail(error)
        self._set_deadline()

    async def on_deadline(self) -> None:
        now = trio.current_time()
        while self._leases:
            lease = next(iter(self._leases.values()))
            if lease.until > now:
                break
            self._expire(lease)
        self._set_deadline()

    def _set_deadline(self) -> None:
        first = next(iter(self._leases.values()), None)
        self.deadline = math.inf if first is None else first.until

    # Messages from bodies.

    def _offer(self, message: Offer) -> None:
        if self._ended:
            message.reply.fail(_stopped())
            return
        self._number += 1
        item = _Item(message.work, message.reply, self._number)
        self._offered[item.reply] = item
        self._assign_or_queue(item)

    def _withdraw(self, message: Withdraw) -> None:
        item = self._offered.pop(message.offered, None)
        worker = None
        if item is not None and item.lease is not None:
            worker = item.lease.worker
            del self._leases[item.lease.id]
        elif item is not None:
            self._remove_waiting(item)
        message.reply.set(worker)

    # Messages from workers.

    def _poll(self, message: Poll) -> None:
        older = self._polls.get(message.worker)
        if older is not None:
            self._remove_poll(older)
            older.reply.set(None)
        heads = [
            next(iter(self._waiting[name].values())) for name in message.services if name in self._waiting
        ]
        if heads:
            item = min(heads, key=lambda item: item.number)
            self._remove_waiting(item)
            self._assign(item, message)
            return
        if self._ended or not message.waits:
            message.reply.set(None)
            return
        self._polls[message.worker] = message
        for service in message.services:
            self._polling.setdefault(service, {})[message.worker] = message

    def _unpoll(self, message: Unpoll) -> None:
        poll = message.poll
        if self._polls.get(poll.worker) is poll:
            self._remove_poll(poll)
            return
        for lease in self._leases.values():
            if lease.poll is poll:  # the item was assigned just when the poll was abandoned
                self._requeue(lease)
                return

    def _return_item(self, message: ReturnItem) -> None:
        lease = self._leases.get(message.item)
        if lease is not None and lease.worker == message.worker:
            self._requeue(lease)

    def _complete(self, message: Complete) -> None:
        lease = self._leased(message.item, message.worker)
        del self._leases[lease.id]
        del self._offered[lease.item.reply]
        failed = message.failed
        if failed is None:
            lease.item.reply.set(Worked(message.result, lease.worker, completion=message.reply))
        else:
            failed.worker, failed.completion = lease.worker, message.reply
            lease.item.reply.fail(failed)

    def _extend(self, message: Extend) -> None:
        lease = self._leased(message.item, message.worker)
        del self._leases[lease.id]
        lease.until = trio.current_time() + VISIBLE_FOR
        self._leases[lease.id] = lease
        message.reply.set(None)

    def _leased(self, id: str, worker: str | None) -> _Lease:
        lease = self._leases.get(id)
        if lease is None:
            raise Conflict(
                f"queue item {shown(id)} is not assigned: it was completed or withdrawn, or "
                f"its worker sent no heartbeat for {VISIBLE_FOR:g} s; drop it",
                item=id,
            )
        if worker is not None and worker != lease.worker:
            raise Conflict(
                f"queue item {shown(id)} is assigned to another worker, not to {shown(worker)}", item=id
            )
        return lease

    # Assigning items.

    def _requeue(self, lease: _Lease) -> None:
        del self._leases[lease.id]
        lease.item.lease = None
        self._assign_or_queue(lease.item)

    def _assign_or_queue(self, item: _Item) -> None:
        """Assign the item to the worker that has waited longest for its service, or queue it in order."""
        polls = self._polling.get(item.work.service)
        if polls:
            poll = next(iter(polls.values()))
            self._remove_poll(poll)
            self._assign(item, poll)
            return
        waiting = self._waiting.setdefault(item.work.service, {})
        last = next(reversed(waiting), 0)
        waiting[item.number] = item
        if item.number < last:  # it was requeued, which is rare
            self._waiting[item.work.service] = dict(sorted(waiting.items()))

    def _assign(self, item: _Item, poll: Poll) -> None:
        lease = _Lease(self._ids(), item, poll.worker, poll, trio.current_time() + VISIBLE_FOR)
        item.lease = lease
        self._leases[lease.id] = lease
        work = item.work
        trace = work.trace
        poll.reply.set(
            QueueItem(
                id=lease.id,
                run=work.run,
                node=work.node,
                service=work.service,
                key=work.key,
                input=work.input,
                params=work.params,
                visible_for=VISIBLE_FOR,
                traceparent=None if trace is None else trace.parent,
                tracestate=None if trace is None else trace.state,
            )
        )

    def _expire(self, lease: _Lease) -> None:
        del self._leases[lease.id]
        del self._offered[lease.item.reply]
        why = (
            f"worker {shown(lease.worker)} took it from the queue and sent no heartbeat for {VISIBLE_FOR:g} s"
        )
        lease.item.reply.fail(WorkFailed("expired", why, lease.worker))

    def _remove_waiting(self, item: _Item) -> None:
        waiting = self._waiting[item.work.service]
        del waiting[item.number]
        if not waiting:
            del self._waiting[item.work.service]

    def _remove_poll(self, poll: Poll) -> None:
        del self._polls[poll.worker]
        for service in poll.services:
            polls = self._polling[service]
            del polls[poll.worker]
            if not polls:
                del self._polling[service]

    def _end(self, message: End) -> None:
        self._ended = True
        for poll in list(self._polls.values()):
            self._remove_poll(poll)
            poll.reply.set(None)
        offered, self._offered = self._offered, {}
        self._leases.clear()
        self._waiting.clear()
        for reply in offered:
            reply.fail(_stopped())
        message.reply.set(None)


def _stopped() -> WorkFailed:
    return WorkFailed("stopped", "engine is shutting down")


_HANDLERS: dict[type, Callable[[WorkQueue, Any], None]] = {
    Offer: WorkQueue._offer,
    Withdraw: WorkQueue._withdraw,
    Poll: WorkQueue._poll,
    Unpoll: WorkQueue._unpoll,
    ReturnItem: WorkQueue._return_item,
    Complete: WorkQueue._complete,
    Extend: WorkQueue._extend,
    End: WorkQueue._end,
}
