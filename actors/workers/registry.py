"""The registry: the actor that knows the workers and which of them are online.

Workers register and report their load; bodies request a worker to call. A worker without contact for
`OFFLINE_AFTER` seconds is offline, and is forgotten a day later. Registrations and changes between online and
offline are events; heartbeats are not. `announced` is the status that was sent to the journal; it becomes the
visible `status` once it is committed.
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
    Committed,
    HasOther,
    Heard,
    Heartbeat,
    ListWorkers,
    Register,
    Restored,
)
from .states import WorkFailed

MAX_WORKERS = 10_000

OFFLINE_AFTER = 15.0
"""Seconds without contact after which a worker receives no calls."""

FORGOTTEN_AFTER = 24 * 3600.0
"""Seconds that a worker is offline, or that it has no contact with this engine, until it is forgotten."""

PENALTY_FOR = 30.0
"""Seconds for which a worker that has failed is called only if there is no other."""


class _Worker(msgspec.Struct):
    row: WorkerRow
    load: float
    last_heartbeat: float  # Unix seconds
    status: WorkerStatus  # committed
    announced: Literal["online", "offline", "forgotten"]  # sent to the journal
    beat: int = 0  # counts the heartbeats that contained a load
    calls: int = 0  # those that began since the last such heartbeat and have not ended
    turn: int = 0  # when it was chosen last
    penalty_until: float = -math.inf  # it has failed: workers without a penalty are preferred

    def state(self) -> WorkerState:
        return _state(self.row, self.load, self.last_heartbeat, self.status)


class Registry(Actor):
    """See the module's docstring."""

    def __init__(self, journal: Journal, clock: Callable[[], float]) -> None:
        super().__init__("registry", "")
        self._journal = journal
        self._clock = clock
        self._workers: dict[str, _Worker] = {}
        self._serving: dict[str, dict[str, _Worker]] = {}  # by service: those that can be called over HTTP
        self._last_heard: dict[str, float] = {}  # of those announced online, the longest ago first
        self._offline_since: dict[str, float] = {}  # of those announced offline, the longest first
        self._names: set[str] = set()  # of all that are registered or being registered
        self._registering = 0
        self._turns = 0
        self._return_deadline = -math.inf  # until then, workers from before a restart may return
        self._waiting_choices: list[Choose] = []  # requests that wait until a worker can be called again

    def restore(self, rows: Sequence[WorkerRow]) -> None:
        """Restore the workers of the store. They are offline until they contact this engine. A request that
        needs one of them waits for at most `OFFLINE_AFTER` seconds."""
        now = trio.current_time()
        for row in rows:
            self._add(_Worker(row, row.load, row.registered_at, "offline", "offline"))
            self._names.add(row.id)
            self._offline_since[row.id] = now
        if rows:
            self._return_deadline = math.inf
            events = tuple(_changed(row, "offline", "engine") for row in rows)
            self._journal.tell(Change(events, notify=(("registry", "", Restored()),)))
        self._set_deadline()

    def report(self) -> dict[str, Any]:
        return super().report() | {"workers": len(self._workers), "online": len(self._last_heard)}

    async def on_batch(self, messages: Sequence[Any]) -> None:
        for message in messages:
            try:
                _HANDLERS[type(message)](self, message)
            except (GreenroomError, WorkFailed) as error:
                message.reply.fail(error)
        self._set_deadline()

    async def on_deadline(self) -> None:
        now = trio.current_time()
        for id in list(_until(self._last_heard, OFFLINE_AFTER, now)):
            self._mark_offline(self._workers[id])
        for id in list(_until(self._offline_since, FORGOTTEN_AFTER, now)):
            self._forget(self._workers[id])
        self._retry_waiting_choices()
        self._set_deadline()

    def _set_deadline(self) -> None:
        offline = next(iter(self._last_heard.values()), math.inf) + OFFLINE_AFTER
        forgotten = next(iter(self._offline_since.values()), math.inf) + FORGOTTEN_AFTER
        early = self._return_deadline > trio.current_time()
        heard = self._return_deadline if self._waiting_choices and early else math.inf
        self.deadline = min(offline, forgotten, heard)

    # Messages from workers.

    def _register(self, message: Register) -> None:
        row = message.row
        if self._registering >= MAX_WORKERS:
            raise Unavailable("too many registrations wait for the store: retry later")
        if row.id not in self._names:
            self._make_room(row.id)
            self._names.add(row.id)
        self._registering += 1
        known = self._workers.get(row.id)
        if known is not None:
            self._record_contact(known)
            known.announced = "online"
        state = _state(row, row.load, row.registered_at, "online")
        self._journal.tell(
            Change(
                (_changed(row, "online", message.by),),
                memos=(row,),
                notify=(("registry", "", Committed(row.id, "online", row)),),
                reply=message.reply,
                answer=state,
            )
        )

    def _make_room(self, id: str) -> None:
        if len(self._names) < MAX_WORKERS:
            return
        if not self._offline_since:
            raise QueueFull(
                f"worker {shown(id)} cannot be registered: the limit of {MAX_WORKERS:,} workers is reached, "
                "and all of them are online",
                limit=MAX_WORKERS,
            )
        self._forget(self._workers[next(iter(self._offline_since))])

    def _heartbeat(self, message: Heartbeat) -> None:
        worker = self._workers.get(message.worker)
        if worker is None or worker.announced == "forgotten":
            raise NotFound(
                f"worker {shown(message.worker)} is not registered: register it first", value=message.worker
            )
        if message.load is not None:
            worker.load, worker.calls = message.load, 0
            worker.beat += 1
        back = self._mark_online(worker, message.by)
        if back is None:
            message.reply.set(None)
        else:
            back.reply, back.answer = message.reply, None
            self._journal.tell(back)

    def _heard(self, message: Heard) -> None:
        worker = self._workers.get(message.worker)
        if worker is not None and worker.announced != "forgotten":
            back = self._mark_online(worker, "engine")
            if back is not None:
                self._journal.tell(back)

    def _mark_online(self, worker: _Worker, by: str) -> Change | None:
        """Record a contact; return the change to online, if the worker was not online."""
        was = worker.announced
        self._record_contact(worker)
        if was == "online":
            return None
        worker.announced = "online"
        return _change(worker.row, "online", by)

    def _record_contact(self, worker: _Worker) -> None:
        worker.last_heartbeat = self._clock()
        self._offline_since.pop(worker.row.id, None)
        self._last_heard.pop(worker.row.id, None)
        self._last_heard[worker.row.id] = trio.current_time()

    def _mark_offline(self, worker: _Worker) -> None:
        worker.announced = "offline"
        del self._last_heard[worker.row.id]
        self._offline_since[worker.row.id] = trio.current_time()
        self._journal.tell(_change(worker.row, "offline", "engine"))

    def _forget(self, worker: _Worker) -> None:
        worker.announced = "forgotten"
        id = worker.row.id
        del self._offline_since[id]
        self._names.remove(id)
        change = _change(worker.row, "forgotten", "engine")
        change.memos = (WorkerGone(id),)
        self._journal.tell(change)

    def _committed(self, message: Committed) -> None:
        worker = self._workers.get(message.worker)
        if message.row is not None:
            self._registering -= 1
            self._registration_committed(worker, message.row)
            self._retry_waiting_choices()
            return
        assert worker is not None, "only this method removes a worker, and nothing follows `forgotten`"
        if message.status != "forgotten":
            worker.status = message.status
            self._retry_waiting_choices()
        elif worker.announced == "forgotten":
            self._remove_services(worker)
            del self._workers[message.worker]
        else:  # it is being registered again
            worker.status = "offline"

    def _restored(self, message: Restored) -> None:
        self._return_deadline = trio.current_time() + OFFLINE_AFTER

    def _registration_committed(self, before: _Worker | None, row: WorkerRow) -> None:
        """Replace the worker by its new registration. Changes announced since then stay announced."""
        worker = _Worker(row, row.load, row.registered_at, "online", "online")
        if before is not None:
            self._remove_services(before)
            worker.announced = before.announced
        self._add(worker)
        if worker.announced == "online":
            self._record_contact(worker)

    def _add(self, worker: _Worker) -> None:
        self._workers[worker.row.id] = worker
        if worker.row.kind == "http":
            for service in worker.row.services:
                self._serving.setdefault(service, {})[worker.row.id] = worker

    def _remove_services(self, worker: _Worker) -> None:
        if worker.row.kind == "http":
            for service in worker.row.services:
                serving = self._serving[service]
                del serving[worker.row.id]
                if not serving:
                    del self._serving[service]

    # Queries and calls.

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
            if (worker is not None and self._expected_soon(worker)) or self._waits_for_another(message):
                self._waiting_choices.append(message)
                return
            worker = self._best(message)
        self._turns += 1
        worker.turn = self._turns
        worker.calls += 1
        message.reply.set(Chosen(worker.state(), worker.beat))

    def _waits_for_another(self, message: Choose) -> bool:
        """Whether a worker is expected soon that is preferred to all that can be called now."""
        avoid, serving = message.avoid, self._serving.get(message.service, {})
        called = {id for id, worker in serving.items() if _is_callable(worker)}
        expected = {id for id, worker in serving.items() if self._expected_soon(worker)}
        if not expected or called.difference(avoid):
            return False
        return not called or bool(expected.difference(avoid))

    def _expected_soon(self, worker: _Worker) -> bool:
        """Whether it may be callable soon: its return is not committed yet, or it was online before a restart
        and its time to return has not passed."""
        early = trio.current_time() < self._return_deadline
        if worker.row.kind != "http" or _is_callable(worker):
            return False
        return worker.announced == "online" or (early and worker.announced == "offline")

    def _has_other(self, message: HasOther) -> None:
        message.reply.set(
            any(
                id not in message.tried and (_is_callable(worker) or self._expected_soon(worker))
                for id, worker in self._serving.get(message.service, {}).items()
            )
        )

    def _retry_waiting_choices(self) -> None:
        waiting, self._waiting_choices = self._waiting_choices, []
        for message in waiting:
            if message.reply.done:
                continue  # the caller no longer waits
            try:
                self._choose(message)
            except WorkFailed as error:
                message.reply.fail(error)

    def _best(self, message: Choose) -> _Worker:
        now = trio.current_time()

        def reluctance(worker: _Worker) -> tuple[bool, bool, float, int]:
            load = worker.load + worker.calls if message.weighted_by_load else 0.0
            return worker.row.id in message.avoid, worker.penalty_until > now, load, worker.turn

        best = min(self._callable(message.service), key=reluctance, default=None)
        if best is None:
            rest = self._reason_for_none(message.service)
            raise WorkFailed("no_worker", f"no online worker serves {shown(message.service)}{rest}")
        return best

    def _reason_for_none(self, service: str) -> str:
        """Why no worker can be called for a service, with the remedy."""
        offline = len(self._serving.get(service, ()))
        pulling = sum(
            worker.status == "online" and worker.row.kind == "queue" and service in worker.row.services
            for worker in self._workers.values()
        )
        reasons = f"; offline workers that serve it: {offline}" if offline else ""
        if pulling:
            serve = "1 pull worker serves it" if pulling == 1 else f"{pulling} pull workers serve it"
            reasons += f"; {serve}: set exec_type: queue"
        return reasons or ": start one that registers here"

    def _callable(self, service: str) -> Iterable[_Worker]:
        return (worker for worker in self._serving.get(service, {}).values() if _is_callable(worker))

    def _call_ended(self, message: CallEnded) -> None:
        worker = self._workers.get(message.worker)
        if worker is None:
            return
        if worker.beat == message.beat and worker.calls:
            worker.calls -= 1
        if message.failed is not None:
            worker.penalty_until = trio.current_time() + PENALTY_FOR if message.failed else -math.inf


def _is_callable(worker: _Worker) -> bool:
    return worker.status == worker.announced == "online" and worker.row.kind == "http"


def _until(times: dict[str, float], seconds: float, now: float) -> Iterable[str]:
    """The leading names, ordered by time, for which this number of seconds has passed. Computes the sum as
    `_set_deadline` does, so that rounding agrees."""
    for name, time in times.items():
        if time + seconds > now:
            return
        yield name


def _change(row: WorkerRow, status: Literal["online", "offline", "forgotten"], by: str) -> Change:
    return Change((_changed(row, status, by),), notify=(("registry", "", Committed(row.id, status)),))


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
    Committed: Registry._committed,
    Restored: Registry._restored,
    ListWorkers: Registry._list,
    Allocate: Registry._allocate,
    Choose: Registry._choose,
    HasOther: Registry._has_other,
    CallEnded: Registry._call_ended,
}
