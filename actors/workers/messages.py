"""The messages to the registry and the queue: who sends each one, and what its reply means."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

import msgspec

from ...persistence.flows import WorkerRow
from ...protocol.flow.records import QueueItem, WorkerState
from ..channel import Reply
from .states import Work, Worked, WorkFailed

# To the registry.


class Register(msgspec.Struct):
    """From a worker: register it, or replace its registration. The reply is its state, once committed."""

    row: WorkerRow
    by: str
    reply: Reply[WorkerState]


class Heartbeat(msgspec.Struct):
    """From a worker: it is alive. The reply is `None` once it is known as `online`; `not_found` if it is not
    registered. `load=None` leaves the load unchanged."""

    worker: str
    load: float | None
    by: str
    reply: Reply[None]


class Heard(msgspec.Struct):
    """From the queue's API: a worker has polled, or reported about an item. The worker need not be
    registered. There is no reply."""

    worker: str


class ListWorkers(msgspec.Struct):
    """From a caller. The reply: the workers that serve a service and were in contact in the last `ttl`
    seconds."""

    service: str | None
    ttl: float | None
    reply: Reply[list[WorkerState]]


class Chosen(msgspec.Struct, frozen=True):
    """The worker to call. The caller returns `beat` with `CallEnded`."""

    worker: WorkerState
    beat: int


class Choose(msgspec.Struct):
    """From a body that is about to call a worker. The reply is the worker to call, or fails with `no_worker`.
    `named` is chosen if it is online; those in `avoid` only if there is no other."""

    service: str
    named: str | None
    avoid: Collection[str]
    weighted_by_load: bool
    reply: Reply[Chosen]


class HasOther(msgspec.Struct):
    """From a body whose call has failed. The reply: whether a worker that is not in `tried` can be called."""

    service: str
    tried: Collection[str]
    reply: Reply[bool]


class Allocate(msgspec.Struct):
    """From a client that calls workers itself. The reply is the online worker with the least load, or
    `None`."""

    service: str
    reply: Reply[WorkerState | None]


class CallEnded(msgspec.Struct):
    """From a body: its call of a worker has ended. `failed` says whether it failed by the worker's fault;
    `None` if the call was withdrawn before its outcome was known. There is no reply."""

    worker: str
    beat: int
    failed: bool | None


class Committed(msgspec.Struct):
    """From the journal: this change is committed. `row` is set for a registration."""

    worker: str
    status: Literal["online", "offline", "forgotten"]
    row: WorkerRow | None = None


class Restored(msgspec.Struct):
    """From the journal: its first commit after a restart has succeeded, so workers can be heard again."""


# To the queue.


class Offer(msgspec.Struct):
    """From a body: have this work executed. The reply is a worker's result, or the failure."""

    work: Work
    reply: Reply[Worked]


class Withdraw(msgspec.Struct):
    """From a body: withdraw the work that was offered under this reply. The reply is the worker that has
    taken it, or `None`."""

    offered: Reply[Worked]
    reply: Reply[str | None]


class Poll(msgspec.Struct):
    """From a worker: request work of these services. The reply is an item; `None` when the same worker polls
    again, when the engine ends, or immediately if the poll does not wait."""

    worker: str
    services: tuple[str, ...]
    waits: bool
    reply: Reply[QueueItem | None]


class Unpoll(msgspec.Struct):
    """From the queue's API: the caller of this poll no longer waits. There is no reply."""

    poll: Poll


class ReturnItem(msgspec.Struct):
    """From the queue's API: an item did not reach its worker. There is no reply, and no effect if the worker
    no longer has the item."""

    item: str
    worker: str


class Complete(msgspec.Struct):
    """From a worker: the outcome of an item. The reply is set when the body that offered the item has
    committed it; `conflict` if the worker no longer has the item."""

    item: str
    worker: str | None
    result: Any
    failed: WorkFailed | None
    reply: Reply[None]


class Extend(msgspec.Struct):
    """From a worker: it still works on an item. The reply confirms that; `conflict` as for `Complete`."""

    item: str
    worker: str
    reply: Reply[None]


class End(msgspec.Struct):
    """From the engine: it shuts down. The reply is set when no worker waits and all offers have failed."""

    reply: Reply[None]
