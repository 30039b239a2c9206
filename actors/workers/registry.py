"""The registry: the actor that knows which workers there are and which of them live.

Workers tell it that they are there and how busy they are; bodies ask it whom to call. A worker that is not
heard of for a while is offline, and after a day it is forgotten. That a worker is there, goes and comes back
is an event; its heartbeats are not. What has been sent to the journal is `announced`, and shows in the
`status` that everyone sees only once it is committed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec
import trio

from ...persistence.flows import WorkerGone, WorkerRow
from ...protocol.errors import GreenroomError, NotFound, QueueFull, Unavailable
from ...protocol.events import NodeWorkerChanged
from ...protocol.flow.records import WorkerState, WorkerStatus
from ...protocol.values import shown
from ..actor import Actor
from ..journal.change import Change
from ..journal.journal import Journal
from .messages import (
    Allocate,
    CallEnded,
    Choose,
    Chosen,
    HasOther,
    Heard,
    Heartbeat,
    ListWorkers,
    Register,
    Restored,
    Stands,
)
from .states import WorkFailed

MAX_WORKERS = 10_000

OFFLINE_AFTER = 15.0
"""Seconds without a sign of life after which a worker gets nothing."""

FORGOTTEN_AFTER = 24 * 3600.0
"""Seconds that a worker is offline, or that this engine has not heard of it, until it is forgotten."""

LAST_FOR = 30.0
"""Seconds for which a worker that has failed is called only if there is no other."""


class _Worker(msgspec.Struct):
    row: WorkerRow
    load: float
    last_heartbeat: float  # Unix seconds
    status: WorkerStatus  # what is committed
    announced: Literal["online", "offline", "forgotten"]  # what will be
    beat: int = 0  # counts the heartbeats that brought a load
    calls: int = 0  # that have begun since, and go on
    turn: int = 0  # when it was chosen last
    last_until: float = -math.inf  # it has failed: until then the others come first

    def state(self) -> WorkerState:
        return _state(self.row, self.load, self.last_heartbeat, self.status)


class Registry(Actor):
    """See the module's text."""

    def __init__(self, journal: Journal, clock: Callable[[], float]) -> None:
        super().__init__("registry", "")
        self._journal = journal
        self._clock = clock
        self._workers: dict[str, _Worker] = {}
        self._serving: dict[str, dict[str, _Worker]] = {}  # by service: those that can be called over HTTP
        self._living: dict[str, float] = {}  # told to be online: when heard of, the longest ago first
        self._silent: dict[str, float] = {}  # told to be offline: since when, the longest first
        self._names: set[str] = set()  # of all that are, or are being, registered
        self._registering = 0
        self._turns = 0
        self._heard_by = -math.inf  # when all that lived before a restart have been heard of again
        self._choosing: list[Choose] = []  # those who wait until somebody can be called again

    def restore(self, rows: Sequence[WorkerRow]) -> None:
        """Know the workers that the store holds: they are offline until they are heard of. Who needs one of
        them waits for that as long as one that lives may keep silent."""
        now = trio.current_time()
        for row in rows:
            self._add(_Worker(row, row.load, row.registered_at, "offline", "offline"))
            self._names.add(row.id)
            self._silent[row.id] = now
        if rows:
            self._heard_by = math.inf
            events = tuple(_changed(row, "offline", "engine") for row in rows)
            self._journal.tell(Change(events, notify=(("registry", "", Restored()),)))
        self._set_deadline()

    def report(self) -> dict[str, Any]:
        return super().report() | {"workers": len(self._workers), "online": len(self._living)}

    async def on_batch(self, messages: Sequence[Any]) -> None:
        for message in messages:
            try:
                _HANDLERS[type(message)](self, message)
            except (GreenroomError, WorkFailed) as error:
                message.reply.fail(error)
        self._set_deadline()

    async def on_deadline(self) -> None:
        now = trio.current_time()
        for id in list(_until(self._living, OFFLINE_AFTER, now)):
            self._goes_offline(self._workers[id])
        for id in list(_until(self._silent, FORGOTTEN_AFTER, now)):
            self._forget(self._workers[id])
        self._choose_for_those_who_wait()
        self._set_deadline()

    def _set_deadline(self) -> None:
        offline = next(iter(self._living.values()), math.inf) + OFFLINE_AFTER
        forgotten = next(iter(self._silent.values()), math.inf) + FORGOTTEN_AFTER
        early = self._heard_by > trio.current_time()
        heard = self._heard_by if self._choosing and early else math.inf
        self.deadline = min(offline, forgotten, heard)

    # What workers say.

    def _register(self, message: Register) -> None:
        row = message.row
        if self._registering >= MAX_WORKERS:
            raise Unavailable("too many registrations wait for the store: try again later")
        if row.id not in self._names:
            self._make_room(row.id)
            self._names.add(row.id)
        self._registering += 1
        known = self._workers.get(row.id)
        if known is not None:
            self._is_heard(known)
            known.announced = "online"
        state = _state(row, row.load, row.registered_at, "online")
        self._journal.tell(
            Change(
                (_changed(row, "online", message.by),),
                memos=(row,),
                notify=(("registry", "", Stands(row.id, "online", row)),),
                reply=message.reply,
                answer=state,
            )
        )

    def _make_room(self, id: str) -> None:
        if len(self._names) < MAX_WORKERS:
            return
        if not self._silent:
            raise QueueFull(
                f"worker {shown(id)} can't be registered: {MAX_WORKERS:,} are, as many as there may be, "
                "and all of them are online",
                limit=MAX_WORKERS,
            )
        self._forget(self._workers[next(iter(self._silent))])

    def _heartbeat(self, message: Heartbeat) -> None:
        worker = self._workers.get(message.worker)
        if worker is None or worker.announced == "forgotten":
            raise NotFound(
                f"no worker {shown(message.worker)} is registered: register it", value=message.worker
            )
        if message.load is not None:
            worker.load, worker.calls = message.load, 0
            worker.beat += 1
        back = self._hear(worker, message.by)
        if back is None:
            message.reply.set(None)
        else:
            back.reply, back.answer = message.reply, None
            self._journal.tell(back)

    def _heard(self, message: Heard) -> None:
        worker = self._workers.get(message.worker)
        if worker is not None and worker.announced != "forgotten":
            back = self._hear(worker, "engine")
            if back is not None:
                self._journal.tell(back)

    def _hear(self, worker: _Worker, by: str) -> Change | None:
        """The change that a worker is online again, where it is one."""
        was = worker.announced
        self._is_heard(worker)
        if was == "online":
            return None
        worker.announced = "online"
        return _change(worker.row, "online", by)

    def _is_heard(self, worker: _Worker) -> None:
        worker.last_heartbeat = self._clock()
        self._silent.pop(worker.row.id, None)
        self._living.pop(worker.row.id, None)
        self._living[worker.row.id] = trio.current_time()

    def _goes_offline(self, worker: _Worker) -> None:
        worker.announced = "offline"
        del self._living[worker.row.id]
        self._silent[worker.row.id] = trio.current_time()
        self._journal.tell(_change(worker.row, "offline", "engine"))

    def _forget(self, worker: _Worker) -> None:
        worker.announced = "forgotten"
        id = worker.row.id
        del self._silent[id]
        self._names.remove(id)
        change = _change(worker.row, "forgotten", "engine")
        change.memos = (WorkerGone(id),)
        self._journal.tell(change)

    def _stands(self, message: Stands) -> None:
        worker = self._workers.get(message.worker)
        if message.row is not None:
            self._registering -= 1
            self._has_registered(worker, message.row)
            self._choose_for_those_who_wait()
            return
        assert worker is not None, "only what is told here takes one out, and nothing follows it"
        if message.status != "forgotten":
            worker.status = message.status
            self._choose_for_those_who_wait()
        elif worker.announced == "forgotten":
            self._take_out(worker)
            del self._workers[message.worker]
        else:  # it is registering again
            worker.status = "offline"

    def _restored(self, message: Restored) -> None:
        self._heard_by = trio.current_time() + OFFLINE_AFTER

    def _has_registered(self, before: _Worker | None, row: WorkerRow) -> None:
        """What has been told about a worker since then still holds, and will stand next."""
        worker = _Worker(row, row.load, row.registered_at, "online", "online")
        if before is not None:
            self._take_out(before)
            worker.announced = before.announced
        self._add(worker)
        if worker.announced == "online":
            self._is_heard(worker)

    def _add(self, worker: _Worker) -> None:
        self._workers[worker.row.id] = worker
        if worker.row.kind == "http":
            for service in worker.row.services:
                self._serving.setdefault(service, {})[worker.row.id] = worker

    def _take_out(self, worker: _Worker) -> None:
        if worker.row.kind == "http":
            for service in worker.row.services:
                serving = self._serving[service]
                del serving[worker.row.id]
                if not serving:
                    del self._serving[service]

    # What others ask.

    def _list(self, message: ListWorkers) -> None:
        since = -math.inf if message.ttl is None else self._clock() - message.ttl
        message.reply.set(
            [
                worker.state()
                for worker in self._workers.values()
                if (message.service is None or message.service in worker.row.services)
                and worker.last_heartbeat >= since
            ]
        )

    def _allocate(self, message: Allocate) -> None:
        found = min(self._callable(message.service), key=lambda worker: worker.load, default=None)
        message.reply.set(None if found is None else found.state())

    def _choose(self, message: Choose) -> None:
        worker = self._workers.get(message.named) if message.named is not None else None
        if worker is not None and message.service not in worker.row.services:
            worker = None
        if worker is None or not _is_callable(worker):
            if (worker is not None and self._is_coming(worker)) or self._waits_for_another(message):
                self._choosing.append(message)
                return
            worker = self._best(message)
        self._turns += 1
        worker.turn = self._turns
        worker.calls += 1
        message.reply.set(Chosen(worker.state(), worker.beat))

    def _waits_for_another(self, message: Choose) -> bool:
        """Whether somebody is on his way who is to be preferred to all that can be called."""
        avoid, serving = message.avoid, self._serving.get(message.service, {})
        called = {id for id, worker in serving.items() if _is_callable(worker)}
        coming = {id for id, worker in serving.items() if self._is_coming(worker)}
        if not coming or called.difference(avoid):
            return False
        return not called or bool(coming.difference(avoid))

    def _is_coming(self, worker: _Worker) -> bool:
        """Whether it may be callable soon: it was heard of again, which is not committed yet; or it lived
        before a restart, and has not had the time to say that it still does."""
        early = trio.current_time() < self._heard_by
        if worker.row.kind != "http" or _is_callable(worker):
            return False
        return worker.announced == "online" or (early and worker.announced == "offline")

    def _has_other(self, message: HasOther) -> None:
        message.reply.set(
            any(
                id not in message.tried and (_is_callable(worker) or self._is_coming(worker))
                for id, worker in self._serving.get(message.service, {}).items()
            )
        )

    def _choose_for_those_who_wait(self) -> None:
        waiting, self._choosing = self._choosing, []
        for message in waiting:
            if message.reply.done:
                continue  # nobody waits any more
            try:
                self._choose(message)
            except WorkFailed as error:
                message.reply.fail(error)

    def _best(self, message: Choose) -> _Worker:
        now = trio.current_time()

        def reluctance(worker: _Worker) -> tuple[bool, bool, float, int]:
            load = worker.load + worker.calls if message.weighted_by_load else 0.0
            return worker.row.id in message.avoid, worker.last_until > now, load, worker.turn

        best = min(self._callable(message.service), key=reluctance, default=None)
        if best is None:
            offline = len(self._serving.get(message.service, ()))
            rest = f"; {offline} that would are offline" if offline else ": start one that registers here"
            raise WorkFailed("no_worker", f"no worker that is online serves {shown(message.service)}{rest}")
        return best

    def _callable(self, service: str) -> Iterable[_Worker]:
        return (worker for worker in self._serving.get(service, {}).values() if _is_callable(worker))

    def _call_ended(self, message: CallEnded) -> None:
        worker = self._workers.get(message.worker)
        if worker is None:
            return
        if worker.beat == message.beat and worker.calls:
            worker.calls -= 1
        if message.failed is not None:
            worker.last_until = trio.current_time() + LAST_FOR if message.failed else -math.inf


def _is_callable(worker: _Worker) -> bool:
    return worker.status == worker.announced == "online" and worker.row.kind == "http"


def _until(times: dict[str, float], seconds: float, now: float) -> Iterable[str]:
    """The first of the names, which are in the order of their times: those for which so many seconds are
    over, reckoned as the deadline is."""
    for name, time in times.items():
        if time + seconds > now:
            return
        yield name


def _change(row: WorkerRow, status: Literal["online", "offline", "forgotten"], by: str) -> Change:
    return Change((_changed(row, status, by),), notify=(("registry", "", Stands(row.id, status)),))


def _state(row: WorkerRow, load: float, heartbeat: float, status: WorkerStatus) -> WorkerState:
    return WorkerState(row.id, row.url, row.services, row.kind, load, heartbeat, status, row.listed_as)


def _changed(row: WorkerRow, status: str, by: str) -> NodeWorkerChanged:
    return NodeWorkerChanged(
        seq=0,
        at=0,
        by=by,
        worker=row.id,
        url=row.url,
        services=row.services,
        kind=row.kind,
        status=status,
    )


_HANDLERS: dict[type, Callable[[Registry, Any], None]] = {
    Register: Registry._register,
    Heartbeat: Registry._heartbeat,
    Heard: Registry._heard,
    Stands: Registry._stands,
    Restored: Registry._restored,
    ListWorkers: Registry._list,
    Allocate: Registry._allocate,
    Choose: Registry._choose,
    HasOther: Registry._has_other,
    CallEnded: Registry._call_ended,
}
