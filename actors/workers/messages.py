"""What the registry and the queue are told. Each message says who sends it, and what its answer means."""

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
    """From a worker: it is there, perhaps again. Answered with its state when it is committed."""

    row: WorkerRow
    by: str
    reply: Reply[WorkerState]


class Heartbeat(msgspec.Struct):
    """From a worker: it lives. Answered with `None` once it is known as `online`; refused with `not_found`
    if it isn't registered. Without a `load` that stays as it is."""

    worker: str
    load: float | None
    by: str
    reply: Reply[None]


class Heard(msgspec.Struct):
    """From the queue's API: a worker has asked for work, or spoken about it. One that isn't registered may
    do that, too."""

    worker: str


class ListWorkers(msgspec.Struct):
    """From a caller: the workers that serve a service, and were heard of in the last `ttl` seconds."""

    service: str | None
    ttl: float | None
    reply: Reply[list[WorkerState]]


class Chosen(msgspec.Struct, frozen=True):
    """The worker that is to be called; `beat` is given back with `CallEnded`."""

    worker: WorkerState
    beat: int


class Choose(msgspec.Struct):
    """From a body that wants to call a worker: which one? Answered with `no_worker` if there is none. `named`
    is taken if it is online, those in `avoid` only if there is no other."""

    service: str
    named: str | None
    avoid: Collection[str]
    weighted_by_load: bool
    reply: Reply[Chosen]


class HasOther(msgspec.Struct):
    """From a body whose call has failed: is there anyone to call who hasn't tried?"""

    service: str
    tried: Collection[str]
    reply: Reply[bool]


class Allocate(msgspec.Struct):
    """From a caller who calls a worker himself: the one with the least load, or `None`."""

    service: str
    reply: Reply[WorkerState | None]


class CallEnded(msgspec.Struct):
    """From a body: its call of a worker is over. `failed` says that it was the worker's fault, `None` that
    the call was given up before that showed."""

    worker: str
    beat: int
    failed: bool | None


class Stands(msgspec.Struct):
    """From the journal: this is committed. `row` is given where the worker has registered."""

    worker: str
    status: Literal["online", "offline", "forgotten"]
    row: WorkerRow | None = None


class Restored(msgspec.Struct):
    """From the journal: the engine writes again after a restart, and can hear those who live."""


# To the queue.


class Offer(msgspec.Struct):
    """From a body: have this done. Answered when a worker has completed it, or with why not."""

    work: Work
    reply: Reply[Worked]


class Withdraw(msgspec.Struct):
    """From a body: what was offered under this reply is not wanted any more. Answered with the worker that
    has it."""

    offered: Reply[Worked]
    reply: Reply[str | None]


class Poll(msgspec.Struct):
    """From a worker: is there work of these services? Answered when there is; with `None` when the same
    worker polls anew, or the engine ends, or at once if it doesn't wait."""

    worker: str
    services: tuple[str, ...]
    waits: bool
    reply: Reply[QueueItem | None]


class Unpoll(msgspec.Struct):
    """From the queue's API: nobody takes the answer of this poll any more."""

    poll: Poll


class GiveBack(msgspec.Struct):
    """From the queue's API: an item has not got to its worker. Nothing happens if it isn't his any more."""

    item: str
    worker: str


class Complete(msgspec.Struct):
    """From a worker: what became of an item. Answered when the body that wanted it has committed that;
    refused with `conflict` if the item isn't his any more."""

    item: str
    worker: str | None
    result: Any
    failed: WorkFailed | None
    reply: Reply[None]


class Extend(msgspec.Struct):
    """From a worker: it still works on an item. Refused like `Complete`."""

    item: str
    worker: str
    reply: Reply[None]


class End(msgspec.Struct):
    """From the engine: it has been left. Answered when nobody waits any more."""

    reply: Reply[None]
