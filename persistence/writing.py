"""Convert a batch to rows: everything that one commit of a SQL store writes.

The journal has folded the transitions of each run within a batch into one write; the batch contains all their
events. Each write of a run is a compare-and-set: its WHERE clause contains the statuses that the state
machine allows. If it matches fewer rows than there are runs, the batch is rolled back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

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
from ..protocol.flow.records import FlowRow, NodeRun, VersionRow
from ..protocol.lanes import DEFAULT_RULES
from ..protocol.records import UNTIL_HANDLE_FREE
from ..protocol.schedules import ScheduleRecord
from ..protocol.states import Status
from . import writes
from .failures import StoreBroken
from .flows import FlowMemo, FlowState, WorkerGone, WorkerRow
from .statements import Row, Statements
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
    MessagesTaken,
    Requested,
    RunWrite,
    ScheduleGone,
    StoredInterrupt,
    Terms,
    TokenTaken,
    WakesAt,
)
from .webhooks import WebhookMemo
from .writing_webhooks import write_webhooks

_encode = msgspec.json.Encoder().encode
_NO_TERMS = Terms()


def key_of(*parts: str) -> str:
    """Return one short key for several names of any length."""
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


def tag_key(name: str, value: str) -> str:
    """Return the key of a tag. Names of tags contain no `=`."""
    return key_of(f"{name}={value}")


def child_key(parent: str) -> str:
    """Return the key by which the children of a run are found among the tags. No tag contains a NUL, so it is
    the key of none."""
    return key_of("parent", parent)


def json_text(value: Any) -> str:
    """Return a value as JSON text for a column."""
    return _encode(value).decode()


def write_batch(batch: Batch, engine: str, term: int, statements: Statements) -> None:
    """Write all of a batch, or raise.

    The engine's name is in the row of `meta` that is updated, so that another engine that takes the store
    while this update waits for the row is detected. The term is in the lease.
    """
    place = max([write.record.place or 0 for write in batch.runs.values()], default=0)
    expected = (batch.before, engine, term)
    if statements.one(writes.ADVANCE, (batch.after, place, place, *expected)) != 1:
        raise StoreBroken(
            f"another engine has taken the store, or has written to it: its last seq is no longer "
            f"{batch.before}, or the term of its lease is no longer {term}"
        )
    if batch.runs:
        _write_runs(batch.runs, statements)
    if batch.events:
        _write_events(batch.events, statements)
    if batch.memos:
        _write_memos(batch, statements)


def _write_runs(runs: dict[str, RunWrite], statements: Statements) -> None:
    added: list[Row] = []
    tags: list[Row] = []
    moved: dict[frozenset[Status], list[Row]] = {}
    requests: dict[str, Row] = {}
    held: dict[str, Row] = {}
    known: Terms | None = None
    text = ""  # of the `known` terms, which many runs of a batch share
    for id, write in runs.items():
        run = write.record
        status, ended_at, record = run.status._value_, run.ended_at, json_text(run)
        expected = write.expected
        if expected is None:
            terms, created, ended = write.terms or _NO_TERMS, write.created, write.ended
            if terms is not known:
                known, text = terms, json_text(terms)
            added.append(
                (id, run.handle, run.lane, status, run.place, created, ended, ended_at, False, text, record)
            )
            if terms.request_id is not None:
                requests[terms.request_id] = (terms.request_id, id, terms.fingerprint)
            if run.parent is not None:
                tags.append((child_key(run.parent), id))
            if run.tags:
                tags += [(tag_key(name, value), id) for name, value in run.tags.items()]
        else:
            rows = moved.get(expected)
            if rows is None:
                rows = moved[expected] = []
            rows.append((status, run.place, write.ended, ended_at, record, id))
        if write.holds_handle:
            held[run.handle] = (run.handle, id)
    statements.insert(writes.ADD_RUNS, added)
    statements.insert(writes.ADD_TAGS, tags)
    for expected, rows in moved.items():
        met = statements.update(writes.move_runs(expected), rows)
        if met != len(rows):
            raise StoreBroken(
                f"{len(rows) - met} of {len(rows)} runs are not {' or '.join(sorted(expected))} in the "
                "store as expected: another process has changed them"
            )
    statements.replace(writes.SET_REQUESTS, requests)
    statements.replace(writes.HOLD, held)


def _write_events(events: Sequence[Event], statements: Statements) -> None:
    rows: list[Row] = []
    others: list[Event] = []
    for event in events:
        if type(event) is RunStateChanged:  # most are
            rows.append((event.seq, event.at, event.run, json_text(event)))
        elif type(event) is not RunProgress:  # which is only in the run's row
            run = event.run if isinstance(event, RunEvent) else None
            rows.append((event.seq, event.at, run, json_text(event)))
            others.append(event)
    statements.insert(writes.ADD_EVENTS, rows)
    if others:
        _write_details(others, statements)


def _write_details(events: Sequence[Event], statements: Statements) -> None:
    """Write the data of some events that other tables contain."""
    messages: list[Row] = []
    opened: list[Row] = []
    closed: list[Row] = []
    lanes: dict[str, Row] = {}
    drafts: dict[str, Row] = {}
    freed: list[str] = []
    executors: dict[str, Row | None] = {}
    resubmitted: list[Row] = []
    for event in events:
        if isinstance(event, RunMessage):
            messages.append((event.seq, event.run, json_text(event.message)))
        elif isinstance(event, RunSignal):
            messages.append((event.seq, event.run, json_text({"key": event.key, "value": event.value})))
        elif isinstance(event, RunChanged):
            if event.waiting_for == UNTIL_HANDLE_FREE:
                resubmitted.append((event.seq, event.run))
        elif isinstance(event, InterruptOpened):
            interrupt = StoredInterrupt(
                event.interrupt, event.run, event.key, event.data, event.at, event.deadline
            )
            opened.append((event.interrupt, event.run, json_text(interrupt)))
        elif isinstance(event, InterruptClosed):
            closed.append((json_text(event), event.interrupt))
        elif isinstance(event, LaneChanged):
            rules = None if event.rules == DEFAULT_RULES else json_text(event.rules)
            lanes[event.lane] = (event.lane, event.limit, event.generation, event.paused, rules)
        elif isinstance(event, HandleChanged):
            if event.params is not UNSET:
                drafts[event.handle] = (event.handle, json_text(event.params))
            if event.freed is not None:
                freed.append(event.handle)
        elif isinstance(event, EngineChanged):
            statements.one(writes.SET_ENGINE, (event.max_concurrent, event.draining))
        elif isinstance(event, ExecutorChanged):
            id, state = key_of(event.executor), event.state
            executors[id] = None if state is None else (id, json_text(event.executor), json_text(state))
    statements.update(writes.SET_CREATED, resubmitted)
    statements.insert(writes.ADD_MESSAGES, messages)
    statements.insert(writes.OPEN, opened)
    statements.update(writes.CLOSE, closed)
    statements.replace(writes.SET_LANES, lanes)
    statements.replace(writes.SET_DRAFTS, drafts)
    statements.delete(writes.FREE, freed)
    statements.delete(writes.FORGET_EXECUTORS, list(executors))
    statements.insert(writes.SET_EXECUTORS, [row for row in executors.values() if row])


def _spent(id: str, run: str) -> StoredInterrupt:
    return StoredInterrupt(id, run, key="", data=None, opened_at=0.0, deadline=None, spent=True)


def _file_key(memo: FileFinished | FileGivenUp) -> str:
    """Return the key of a file; without a folder, the same as in version 4."""
    return key_of(memo.run, memo.path, *([memo.folder] if memo.folder else []))


def _bucket_key(lane: str, key: str | None) -> str:
    return key_of(lane) if key is None else key_of(lane, key)


def _write_memos(batch: Batch, statements: Statements) -> None:
    checkpoints: dict[tuple[str, str], Row] = {}
    spent: list[Row] = []
    taken: list[int] = []
    finished: dict[str, Row | None] = {}
    doomed: list[Row] = []
    deletions: dict[str, Row | None] = {}
    wakes: dict[str, Row] = {}
    terms: dict[str, Row] = {}
    requests: dict[str, Row] = {}
    deaths: dict[str, Row | None] = {}
    buckets: dict[str, Row | None] = {}
    schedules: dict[str, Row | None] = {}
    flows: list[FlowMemo] = []
    webhooks: list[WebhookMemo] = []
    for memo in batch.memos:
        if isinstance(memo, Checkpoint):
            key = (memo.handle, memo.job)
            counts = (memo.interrupts, memo.calls)
            checkpoints[key] = (key_of(*key), *key, memo.run, json_text(memo.value), *counts)
        elif isinstance(memo, AnswersSpent):
            spent += [(json_text(_spent(id, memo.run)), id) for id in memo.interrupts]
        elif isinstance(memo, MessagesTaken):
            taken += memo.seqs
        elif isinstance(memo, FileFinished):
            id = _file_key(memo)
            finished[id] = (id, memo.run, memo.path, memo.folder)
        elif isinstance(memo, FileGivenUp):
            finished[_file_key(memo)] = None
        elif isinstance(memo, FilesDoomed):
            doomed.append((True, memo.run))
        elif isinstance(memo, DeletionOwed):
            id = key_of(memo.folder, memo.run)
            deletions[id] = (id, json_text(memo))
        elif isinstance(memo, DeletionDone):
            deletions[key_of(memo.folder, memo.run)] = None
        elif isinstance(memo, WakesAt):
            wakes[memo.run] = (memo.at, memo.run)
            if memo.terms is not None:
                terms[memo.run] = (json_text(memo.terms), memo.run)
        elif isinstance(memo, Requested):
            requests[memo.request_id] = (memo.request_id, memo.run, memo.fingerprint)
        elif isinstance(memo, TokenTaken):
            id = _bucket_key(memo.lane, memo.key)
            buckets[id] = (id, memo.lane, None if memo.key is None else json_text(memo.key), memo.full_at)
        elif isinstance(memo, BucketsFull):
            buckets |= dict.fromkeys(_bucket_key(memo.lane, key) for key in memo.keys)
        elif isinstance(memo, Deaths):
            count = -memo.count if memo.tried else memo.count
            deaths[memo.run] = (memo.run, count) if count else None
        elif isinstance(memo, ScheduleRecord):
            id = key_of(memo.name)
            schedules[id] = (id, json_text(memo))
        elif isinstance(memo, ScheduleGone):
            schedules[key_of(memo.schedule)] = None
        elif isinstance(memo, WebhookMemo):
            webhooks.append(memo)
        else:
            flows.append(memo)
    by_id = {row[0]: row for row in checkpoints.values()}
    statements.replace(writes.SET_CHECKPOINTS, by_id)
    statements.update(writes.SPEND, spent)
    statements.delete(writes.TAKE_MESSAGES, taken)
    statements.delete(writes.FORGET_FILES, list(finished))
    statements.insert(writes.ADD_FILES, [row for row in finished.values() if row])
    statements.update(writes.DOOM_FILES, doomed)
    statements.delete(writes.FORGET_DELETIONS, list(deletions))
    statements.insert(writes.OWE_DELETIONS, [row for row in deletions.values() if row])
    statements.update(writes.SET_WAKES, list(wakes.values()))
    statements.update(writes.SET_TERMS, list(terms.values()))
    statements.replace(writes.SET_REQUESTS, requests)
    statements.delete(writes.FORGET_DEATHS, list(deaths))
    statements.insert(writes.SET_DEATHS, [row for row in deaths.values() if row])
    statements.delete(writes.FORGET_BUCKETS, list(buckets))
    statements.insert(writes.SET_BUCKETS, [row for row in buckets.values() if row])
    statements.delete(writes.FORGET_SCHEDULES, list(schedules))
    statements.insert(writes.SET_SCHEDULES, [row for row in schedules.values() if row])
    if webhooks:
        write_webhooks(webhooks, statements)
    if flows:
        _write_flows(flows, batch.runs, statements)


def _write_flows(memos: Sequence[FlowMemo], runs: dict[str, RunWrite], statements: Statements) -> None:
    begun: dict[str, Row] = {}
    walked: dict[str, Row] = {}
    node_runs: list[Row] = []
    flows: dict[str, Row] = {}
    versions: dict[str, Row] = {}
    workers: dict[str, Row | None] = {}
    for memo in memos:
        if isinstance(memo, FlowState):
            write = runs.get(memo.run)
            if write is not None and write.expected is None:
                begun[memo.run] = (memo.run, memo.version, memo.numbered, memo.state)
            else:
                walked[memo.run] = (memo.numbered, memo.state, memo.run)
        elif isinstance(memo, NodeRun):
            node_runs.append((memo.run, memo.number, json_text(memo)))
        elif isinstance(memo, FlowRow):
            flows[memo.id] = (memo.id, json_text(memo))
        elif isinstance(memo, VersionRow):
            versions[memo.id] = tuple(getattr(memo, column) for column in writes.SET_VERSIONS.columns)
        elif isinstance(memo, WorkerRow):
            key = key_of(memo.id)
            workers[key] = (key, json_text(memo))
        elif isinstance(memo, WorkerGone):
            workers[key_of(memo.worker)] = None
    statements.insert(writes.BEGIN_WALKS, list(begun.values()))
    met = statements.update(writes.MOVE_WALKS, list(walked.values()))
    if met != len(walked):
        raise StoreBroken(f"{len(walked) - met} of {len(walked)} runs have no flow in the store")
    statements.insert(writes.ADD_NODE_RUNS, node_runs)
    statements.replace(writes.SET_FLOWS, flows)
    statements.replace(writes.SET_VERSIONS, versions)
    statements.delete(writes.FORGET_WORKERS, list(workers))
    statements.insert(writes.SET_WORKERS, [row for row in workers.values() if row])
