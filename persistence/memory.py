"""The `memory:` store: a store in dictionaries, for tests, simulation and temporary engines.

It uses no threads and never waits. It exists as long as its object: opened again, it recovers like a file.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, takewhile
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from ..protocol.errors import Conflict
from ..protocol.events import (
    EngineChanged,
    Event,
    ExecutorChanged,
    HandleChanged,
    InterruptClosed,
    InterruptOpened,
    LaneChanged,
    RunChanged,
    RunEvent,
    RunMessage,
    RunProgress,
    RunSignal,
    RunStateChanged,
)
from ..protocol.flow.records import NodeRun, VersionRow
from ..protocol.records import KEPT_ENDED_RUNS, UNTIL_HANDLE_FREE, ExecutorState, RunRecord
from ..protocol.schedules import ScheduleRecord
from ..protocol.states import ENDED
from ..protocol.webhooks import Webhook
from .failures import StoreBroken
from .flows import FlowRunPage, FlowRunQuery, StoredFlow, page_of
from .memory_flows import FlowsInMemory
from .memory_webhooks import WebhooksInMemory
from .store import (
    AnswersSpent,
    Batch,
    BucketsFull,
    Checkpoint,
    Deaths,
    DeletionDone,
    DeletionOwed,
    FileFinished,
    FileGivenUp,
    FilesDoomed,
    Found,
    Memo,
    MessagesTaken,
    Requested,
    Retention,
    RunQuery,
    ScheduleGone,
    Stored,
    StoredInterrupt,
    StoredLane,
    StoredRequest,
    StoredRun,
    Terms,
    TokenTaken,
    WakesAt,
)
from .webhooks import DueWebhooks, WebhookCounts, WebhookMemo

_KEPT_REQUESTS = 24 * 3600.0


class MemoryStore:
    """A store that exists as long as this object."""

    def __init__(self) -> None:
        self._is_open = False
        self._epoch: str | None = None
        self._last_seq = 0
        self._max_concurrent = 0
        self._draining = False
        self._runs: dict[str, RunRecord] = {}
        self._ids: list[str] = []  # sorted; ids are drawn in order of time, so new ones go to the end
        self._terms: dict[str, Terms] = {}
        self._created: dict[str, int] = {}  # the seq of the event since which each run counts as submitted
        self._ended: OrderedDict[str, None] = OrderedDict()  # in the order of the ends
        # By run. Those of an ended run are a tuple, which the garbage collector need not track.
        self._events: dict[str, list[Event] | tuple[Event, ...]] = {}
        self._others: list[Event] = []  # events without a run
        self._lanes: dict[str, StoredLane] = {}
        self._drafts: dict[str, Any] = {}
        self._held: dict[str, str] = {}
        self._checkpoints: dict[tuple[str, str], Checkpoint] = {}
        self._interrupts: dict[str, dict[str, StoredInterrupt]] = {}
        self._closed: dict[str, InterruptClosed] = {}
        self._messages: dict[str, dict[int, Any]] = {}
        self._files: dict[str, dict[tuple[str, str], None]] = {}  # paths and folders, by run
        self._deletions: dict[tuple[str, str], DeletionOwed] = {}
        self._executors: dict[str, ExecutorState] = {}
        self._schedules: dict[str, ScheduleRecord] = {}
        self._doomed: dict[str, None] = {}
        self._wakes_at: dict[str, float | None] = {}
        self._requests: dict[str, Requested] = {}
        self._deaths: dict[str, Deaths] = {}
        self._buckets: dict[tuple[str, str | None], TokenTaken] = {}
        self._flows = FlowsInMemory()
        self._webhooks = WebhooksInMemory()

    async def open(self, epoch: str, max_concurrent: int, now: float) -> Stored:
        if self._is_open:
            raise Conflict(
                "this memory: store is in use by another engine: close that engine, or use another store"
            )
        self._is_open = True
        if self._epoch is None:
            self._epoch, self._max_concurrent = epoch, max_concurrent
        pending = [run for run in self._runs.values() if not run.ended]
        pending.sort(key=lambda run: self._created[run.id])
        stored = Stored(
            epoch=self._epoch,
            last_seq=self._last_seq,
            last_place=max((run.place or 0 for run in self._runs.values()), default=0),
            max_concurrent=self._max_concurrent,
            draining=self._draining,
            lanes=dict(self._lanes),
            drafts=dict(self._drafts),
            held=dict(self._held),
            pending=[self._stored(run) for run in pending],
            ended=[self._runs[id] for id in list(self._ended)[-KEPT_ENDED_RUNS:]],
            requests=[
                StoredRequest(request.request_id, request.run, request.fingerprint, made.ended_at)
                for request in self._requests.values()
                if (made := self._runs.get(request.run)) is not None
                and (
                    made.ended_at is None
                    or made.ended_at > now - _KEPT_REQUESTS
                    or self._is_of_pending_parent(request)
                )
            ],
            executors=dict(sorted(self._executors.items())),
            schedules=dict(sorted(self._schedules.items())),
            deletions=[self._deletions[key] for key in sorted(self._deletions)],
            last_id=self._ids[-1] if self._ids else "",
            abandoned=[self._runs[id] for id in sorted(self._held.values())],
            buckets=list(self._buckets.values()),
            webhooks=self._webhooks.types_of(run.id for run in pending),
            owes_deliveries=bool(self._webhooks.due(1, [], [], None, None)),
        )
        self._flows.load(stored)
        return stored

    @property
    def lease(self) -> None:
        return None

    @property
    def check_every(self) -> float:
        return math.inf

    async def check(self) -> None:
        pass

    async def commit(self, batch: Batch) -> None:
        self._check(batch)
        self._last_seq = batch.after
        ended: list[tuple[int, str]] = []
        for id, write in batch.runs.items():
            record = write.record
            if write.expected is None:
                self._insert(id, write.terms or Terms())
                self._created[id] = write.created or batch.after
            if write.holds_handle:
                self._held[record.handle] = id
            if write.ended is not None:
                ended.append((write.ended, id))
            self._runs[id] = record
        for _, id in sorted(ended):
            self._ended[id] = None
        for event in batch.events:
            self._remember_event(event)
        for memo in batch.memos:
            self._remember(memo)

    def _check(self, batch: Batch) -> None:
        """Check the compare-and-sets of a batch, as SQL does. Raises `StoreBroken`; nothing is changed."""
        if batch.before != self._last_seq:
            raise StoreBroken(f"the store is at seq {self._last_seq}, not {batch.before}")
        for id, write in batch.runs.items():
            run = self._runs.get(id)
            as_expected = write.expected is None if run is None else run.status in (write.expected or ())
            if not as_expected:
                raise StoreBroken(f"run {id} has an unexpected status in the store ({run and run.status})")
        if batch.memos:
            self._flows.check(batch)

    async def committed(self, batch: Batch) -> bool:
        return self._last_seq == batch.after and bool(batch.events)

    async def run(self, id: str) -> RunRecord | None:
        return self._runs.get(id)

    async def runs(self, query: RunQuery) -> list[RunRecord]:
        return (await self.search(query, len(self._ids))).runs

    async def search(self, query: RunQuery, most: int) -> Found:
        found: list[RunRecord] = []
        for number, run in enumerate(self._newest_first(query.before), 1):
            if query.accepts(run):
                found.append(run)
            if len(found) == query.limit:
                break
            if number == most:
                return Found(found, run.id)
        return Found(found)

    async def history(
        self,
        run: str,
        after: int = 0,
        limit: int | None = None,
        types: Sequence[str] | None = None,
        before: int | None = None,
    ) -> list[Event]:
        events = self._events.get(run, ())
        start = bisect_right(events, after, key=attrgetter("seq"))
        end = len(events) if before is None else bisect_left(events, before, key=attrgetter("seq"))
        if types is None and limit is not None:
            if before is None:
                end = min(end, start + limit)
            else:
                start = max(start, end - limit)
        if types is None:
            return list(events[start:end])
        if before is None:
            wanted = (event for event in islice(events, start, end) if event.type in types)
            return list(islice(wanted, limit))
        last = (event for event in reversed(events[start:end]) if event.type in types)
        return list(islice(last, limit))[::-1]

    async def events(self, after: int, limit: int) -> list[Event]:
        sequences = (*self._events.values(), self._others)
        later = (event for events in sequences for event in events if event.seq > after)
        return sorted(later, key=lambda event: event.seq)[:limit]

    async def files(self, run: str) -> list[tuple[str, str]]:
        return list(self._files.get(run, ()))

    async def checkpoint(self, handle: str, job: str) -> Checkpoint | None:
        return self._checkpoints.get((handle, job))

    async def closed_interrupt(self, id: str) -> InterruptClosed | None:
        return self._closed.get(id)

    async def version(self, id: str) -> VersionRow | None:
        return self._flows.version(id)

    async def flow(self, run: str) -> StoredFlow | None:
        state = self._flows.state(run)
        if state is None:
            return None
        signals = list(self._messages.get(run, {}).items())
        return StoredFlow(state, signals, self._flows.node_runs(run, after=state.numbered))

    async def flow_runs(self, query: FlowRunQuery) -> FlowRunPage:
        return self._flows.runs(self._newest_first(None), query)

    async def versions(self, ids: Sequence[str]) -> list[VersionRow]:
        found = [row for row in map(self._flows.version, ids) if row is not None]
        return page_of((row, len(row.definition)) for row in found)

    async def node_runs(self, run: str, after: int = 0, limit: int | None = None) -> list[NodeRun]:
        rows = self._flows.node_runs(run, after)
        if limit is None:
            return rows
        rows = rows[:limit]
        return page_of((row, len(msgspec.json.encode(row))) for row in rows)

    async def request_ids(self, runs: Sequence[str]) -> dict[str, str]:
        wanted = frozenset(runs)
        made = sorted(self._requests.values(), key=lambda request: request.request_id, reverse=True)
        return {request.run: request.request_id for request in made if request.run in wanted}

    async def runs_of_requests(self, runs: Sequence[str], prefix: str) -> set[str]:
        wanted = frozenset(runs)
        made = (request for request in self._requests.values() if request.run in wanted)
        return {request.run for request in made if request.request_id.startswith(prefix)}

    async def due_webhooks(
        self,
        most: int,
        busy: Sequence[str],
        without: Sequence[str],
        among: Sequence[str] | None = None,
        failed: bool | None = None,
        horizon: float = math.inf,
    ) -> DueWebhooks:
        return self._webhooks.due(most, busy, without, among, failed, horizon)

    async def webhook(self, id: str) -> Webhook | None:
        return self._webhooks.get(id)

    async def dead_webhooks(self, limit: int, after: str | None) -> list[Webhook]:
        return self._webhooks.dead(limit, after)

    async def failing_webhooks(self, limit: int, after: str | None) -> list[Webhook]:
        return self._webhooks.failing(limit, after)

    async def count_webhooks(self) -> WebhookCounts:
        return self._webhooks.count()

    async def prune(self, retention: Retention, now: float, most: int) -> int:
        surplus = 0 if retention.keep_runs is None else max(0, len(self._ended) - retention.keep_runs)
        oldest = None if retention.keep_runs_for is None else now - retention.keep_runs_for
        repeatable = {request.run for request in self._requests.values()}
        called = {request.run for request in self._requests.values() if self._is_of_pending_parent(request)}
        doomed: list[str] = []
        for position, id in enumerate(self._ended):
            ended_at = self._runs[id].ended_at or 0.0
            too_old = oldest is not None and ended_at < oldest
            if len(doomed) == most or not (too_old or position < surplus):
                break
            if self._webhooks.keep(id):
                continue
            if id not in called and (id not in repeatable or ended_at < now - _KEPT_REQUESTS):
                doomed.append(id)
        for id in doomed:
            self._forget(id)
        return len(doomed) + self._prune_events(retention, now, most)

    def _is_of_pending_parent(self, request: Requested) -> bool:
        """Whether it is of a child of a pending run, whose id begins the request id."""
        parent = self._runs.get(request.request_id.partition(".")[0])
        return parent is not None and not parent.ended

    def _prune_events(self, retention: Retention, now: float, most: int) -> int:
        first = 0 if retention.keep_events is None else self._last_seq - retention.keep_events
        oldest = -math.inf if retention.keep_events_for is None else now - retention.keep_events_for

        def count(events: Sequence[Event], most: int) -> int:
            old = takewhile(lambda event: event.seq <= first or event.at < oldest, events[:most])
            return sum(1 for _ in old)

        pruned = 0
        for id, events in self._events.items():
            if self._runs[id].ended and not self._webhooks.has(id):
                old = count(events, most - pruned)
                if old:
                    self._events[id] = events[old:]
                pruned += old
        old = count(self._others, most - pruned)
        del self._others[:old]
        return pruned + old

    async def close(self) -> None:
        self._is_open = False

    def _insert(self, id: str, terms: Terms) -> None:
        if not self._ids or id > self._ids[-1]:
            self._ids.append(id)
        else:
            self._ids.insert(bisect_left(self._ids, id), id)
        self._terms[id] = terms
        if terms.request_id is not None:
            self._requests[terms.request_id] = Requested(terms.request_id, id, terms.fingerprint)

    def _remember_event(self, event: Event) -> None:
        kind = type(event)
        if not isinstance(event, RunEvent):
            self._others.append(event)
        elif kind is not RunProgress:
            self._append(event.run, event)
        remember = _BY_EVENT.get(kind)
        if remember is not None:
            remember(self, event)

    def _append(self, run: str, event: Event) -> None:
        events = self._events.get(run)
        if events is None:
            self._events[run] = [event]
        elif isinstance(events, list) and not (type(event) is RunStateChanged and event.to in ENDED):
            events.append(event)
        else:
            self._events[run] = (*events, event)

    def _message(self, event: RunMessage) -> None:
        self._messages.setdefault(event.run, {})[event.seq] = event.message

    def _signal(self, event: RunSignal) -> None:
        self._messages.setdefault(event.run, {})[event.seq] = {"key": event.key, "value": event.value}

    def _changed(self, event: RunChanged) -> None:
        if event.waiting_for == UNTIL_HANDLE_FREE:
            self._created[event.run] = event.seq

    def _interrupt(self, event: InterruptOpened) -> None:
        interrupt = StoredInterrupt(
            event.interrupt, event.run, event.key, event.data, event.at, event.deadline
        )
        self._interrupts.setdefault(event.run, {})[event.interrupt] = interrupt

    def _answer(self, event: InterruptClosed) -> None:
        interrupts = self._interrupts[event.run]
        opened = interrupts[event.interrupt]
        interrupts[event.interrupt] = replace(opened, outcome=event.outcome, answer=event.answer)
        self._closed[event.interrupt] = event

    def _lane(self, event: LaneChanged) -> None:
        self._lanes[event.lane] = StoredLane(event.limit, event.generation, event.paused, event.rules)

    def _handle(self, event: HandleChanged) -> None:
        if event.params is not UNSET:
            self._drafts.pop(event.handle, None)
            if event.params is not None:
                self._drafts[event.handle] = event.params
        if event.freed is not None:
            self._held.pop(event.handle, None)

    def _engine(self, event: EngineChanged) -> None:
        self._max_concurrent, self._draining = event.max_concurrent, event.draining

    def _executor(self, event: ExecutorChanged) -> None:
        self._executors.pop(event.executor, None)
        if event.state is not None:
            self._executors[event.executor] = event.state

    def _remember(self, memo: Memo) -> None:
        if isinstance(memo, Checkpoint):
            self._checkpoints[memo.handle, memo.job] = memo
        elif isinstance(memo, AnswersSpent):
            interrupts = self._interrupts[memo.run]
            for id in memo.interrupts:
                interrupts[id] = replace(interrupts[id], spent=True)
        elif isinstance(memo, MessagesTaken):
            for seq in memo.seqs:
                self._messages[memo.run].pop(seq, None)
        elif isinstance(memo, FileFinished):
            self._files.setdefault(memo.run, {})[memo.path, memo.folder] = None
        elif isinstance(memo, FileGivenUp):
            self._files.get(memo.run, {}).pop((memo.path, memo.folder), None)
        elif isinstance(memo, FilesDoomed):
            self._doomed[memo.run] = None
        elif isinstance(memo, DeletionOwed):
            self._deletions[memo.folder, memo.run] = memo
        elif isinstance(memo, DeletionDone):
            self._deletions.pop((memo.folder, memo.run), None)
        elif isinstance(memo, WakesAt):
            self._wakes_at[memo.run] = memo.at
            if memo.terms is not None:
                self._terms[memo.run] = memo.terms
        elif isinstance(memo, Requested):
            self._requests[memo.request_id] = memo
        elif isinstance(memo, TokenTaken):
            self._buckets[memo.lane, memo.key] = memo
        elif isinstance(memo, BucketsFull):
            for key in memo.keys:
                self._buckets.pop((memo.lane, key), None)
        elif isinstance(memo, Deaths):
            self._deaths[memo.run] = memo
            if not memo.count:
                del self._deaths[memo.run]
        elif isinstance(memo, ScheduleRecord):
            self._schedules[memo.name] = memo
        elif isinstance(memo, ScheduleGone):
            self._schedules.pop(memo.schedule, None)
        elif isinstance(memo, WebhookMemo):
            self._webhooks.remember(memo)
        else:
            self._flows.remember(memo)

    def _stored(self, run: RunRecord) -> StoredRun:
        deaths = self._deaths.get(run.id, Deaths(run.id, 0))
        files: dict[str, list[str]] = {"": []}
        for path, folder in self._files.get(run.id, ()):
            files.setdefault(folder, []).append(path)
        return StoredRun(
            record=run,
            terms=self._terms[run.id],
            wakes_at=self._wakes_at.get(run.id),
            files_doomed=run.id in self._doomed,
            messages=list(self._messages.get(run.id, {}).items()),
            interrupts=list(self._interrupts.get(run.id, {}).values()),
            files=files.pop(""),
            foreign_files=files,
            deaths=deaths.count,
            tried=deaths.tried,
        )

    def _forget(self, id: str) -> None:
        del self._ended[id]
        del self._ids[bisect_left(self._ids, id)]
        self._requests = {key: made for key, made in self._requests.items() if made.run != id}
        about = (self._runs[id].handle, self._runs[id].job)
        if about in self._checkpoints and self._checkpoints[about].run == id:
            del self._checkpoints[about]
        for interrupt in self._interrupts.pop(id, {}):
            self._closed.pop(interrupt, None)
        by_run: tuple[dict[str, Any], ...] = (
            self._runs,
            self._terms,
            self._created,
            self._events,
            self._messages,
            self._files,
            self._doomed,
            self._wakes_at,
            self._deaths,
        )
        for held in by_run:
            held.pop(id, None)
        self._flows.forget(id)
        self._webhooks.forget(id)

    def _newest_first(self, before: str | None) -> Iterator[RunRecord]:
        end = len(self._ids) if before is None else bisect_left(self._ids, before)
        for position in range(end - 1, -1, -1):
            yield self._runs[self._ids[position]]


_BY_EVENT: dict[type, Callable[[MemoryStore, Any], None]] = {
    RunMessage: MemoryStore._message,
    RunSignal: MemoryStore._signal,
    RunChanged: MemoryStore._changed,
    InterruptOpened: MemoryStore._interrupt,
    InterruptClosed: MemoryStore._answer,
    LaneChanged: MemoryStore._lane,
    HandleChanged: MemoryStore._handle,
    EngineChanged: MemoryStore._engine,
    ExecutorChanged: MemoryStore._executor,
}
