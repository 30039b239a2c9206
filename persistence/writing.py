"""From a batch to rows: everything that one commit of a SQL store writes.

Several transitions of one run within a batch have been folded into one write by the journal, with all their
events beside it. Each write of a run is a compare-and-set: its WHERE clause holds the statuses that the state
machine allows, and the number of rows that it met is the number of runs, or nothing of the batch is kept.
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
    HandleChanged,
    InterruptClosed,
    InterruptOpened,
    LaneChanged,
    RunEvent,
    RunMessage,
    RunProgress,
    RunSignal,
)
from ..protocol.flow.records import FlowRow, NodeRun, VersionRow
from . import schema
from .failures import StoreBroken
from .flows import FlowMemo, FlowState, WorkerGone, WorkerRow
from .lease import FENCE
from .statements import Row, Statements, status_in
from .store import (
    AnswersSpent,
    Batch,
    Checkpoint,
    Deaths,
    FileFinished,
    FileGivenUp,
    FilesDoomed,
    MessagesTaken,
    Question,
    Requested,
    RunWrite,
    Terms,
    WakesAt,
)

_encoder = msgspec.json.Encoder()

_RUN = (
    "id",
    "handle",
    "lane",
    "status",
    "place",
    "created_seq",
    "ended_seq",
    "ended_at",
    "files_doomed",
    "terms",
    "record",
)
_VERSION = ("id", "flow", "version", "status", "created_at", "definition")
_CHECKPOINT = ("id", "handle", "job", "run", "value", "interrupts", "calls")
_RUN_UPDATE = ("status", "place", "ended_seq", "ended_at", "record")


def key_of(*parts: str) -> str:
    """One short key for several names of any length."""
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


def json_text(value: Any) -> str:
    """A value as it stands in a column."""
    return _encoder.encode(value).decode()


def write_batch(batch: Batch, engine: str, term: int, statements: Statements) -> None:
    """Write all of a batch, or raise. The engine's name stands in the row that is updated, so that somebody
    who takes the store while this waits for the row is seen; the term stands in the lease."""
    advanced = statements.one(
        f"UPDATE meta SET last_seq = ? WHERE id = 1 AND last_seq = ? AND engine = ? AND {FENCE}",
        (batch.after, batch.before, engine, term),
    )
    if advanced != 1:
        raise StoreBroken(
            f"another engine has taken the store, or has written to it: its last seq is not {batch.before} "
            f"any more, or the term of its lease is not {term}"
        )
    _write_runs(batch.runs, statements)
    _write_events(batch.events, statements)
    _write_memos(batch, statements)


def _write_runs(writes: dict[str, RunWrite], statements: Statements) -> None:
    inserts: list[Row] = []
    updates: dict[frozenset[Any], list[Row]] = {}
    requests: dict[str, Row] = {}
    held: dict[str, Row] = {}
    for id, write in writes.items():
        run = write.record
        record = json_text(run)
        if write.expected is None:
            terms = write.terms or Terms()
            inserts.append(
                (
                    id,
                    run.handle,
                    run.lane,
                    run.status.value,
                    run.place,
                    write.created,
                    write.ended,
                    run.ended_at,
                    False,
                    json_text(terms),
                    record,
                )
            )
            if terms.request_id is not None:
                requests[terms.request_id] = (terms.request_id, id, terms.fingerprint)
        else:
            row = (run.status.value, run.place, write.ended, run.ended_at, record, id)
            updates.setdefault(write.expected, []).append(row)
        if write.holds_handle:
            held[run.handle] = (run.handle, id)
    statements.insert(schema.runs, _RUN, inserts)
    for expected, rows in updates.items():
        met = statements.update(schema.runs, "id", _RUN_UPDATE, rows, status_in(sorted(expected)))
        if met != len(rows):
            raise StoreBroken(
                f"{len(rows) - met} of {len(rows)} runs are not {' or '.join(sorted(expected))} in the "
                "store, as they should be: somebody else has changed them"
            )
    statements.replace(schema.requests, ("request_id", "run", "fingerprint"), requests)
    statements.replace(schema.held, ("handle", "run"), held)


def _write_events(events: Sequence[Event], statements: Statements) -> None:
    rows: list[Row] = []
    messages: list[Row] = []
    opened: list[Row] = []
    closed: list[Row] = []
    lanes: dict[str, Row] = {}
    drafts: dict[str, Row] = {}
    freed: list[str] = []
    for event in events:
        kind = type(event)
        if kind is RunProgress:
            continue  # it is kept on the run's row only
        run = event.run if isinstance(event, RunEvent) else None
        rows.append((event.seq, event.at, run, json_text(event)))
        if isinstance(event, RunMessage):
            messages.append((event.seq, event.run, json_text(event.message)))
        elif isinstance(event, RunSignal):
            messages.append((event.seq, event.run, json_text({"key": event.key, "value": event.value})))
        elif isinstance(event, InterruptOpened):
            question = Question(event.interrupt, event.run, event.key, event.data, event.at, event.deadline)
            opened.append((event.interrupt, event.run, json_text(question)))
        elif isinstance(event, InterruptClosed):
            closed.append((json_text(event), event.interrupt))
        elif isinstance(event, LaneChanged):
            lanes[event.lane] = (event.lane, event.limit, event.generation)
        elif isinstance(event, HandleChanged):
            if event.params is not UNSET:
                drafts[event.handle] = (event.handle, json_text(event.params))
            if event.freed is not None:
                freed.append(event.handle)
        elif isinstance(event, EngineChanged):
            statements.one(
                "UPDATE meta SET max_concurrent = ?, draining = ? WHERE id = 1",
                (event.max_concurrent, event.draining),
            )
    statements.insert(schema.events, ("seq", "at", "run", "event"), rows)
    statements.insert(schema.messages, ("seq", "run", "value"), messages)
    statements.insert(schema.interrupts, ("id", "run", "question"), opened)
    statements.update(schema.interrupts, "id", ("closed",), closed)
    statements.replace(schema.lanes, ("name", "slots", "generation"), lanes)
    statements.replace(schema.handles, ("name", "params"), drafts)
    statements.delete(schema.held, "handle", freed)


def _spent(id: str, run: str) -> Question:
    return Question(id, run, key="", data=None, opened_at=0.0, deadline=None, spent=True)


def _write_memos(batch: Batch, statements: Statements) -> None:
    if not batch.memos:
        return
    checkpoints: dict[tuple[str, str], Row] = {}
    spent: list[Row] = []
    taken: list[int] = []
    finished: dict[tuple[str, str], Row | None] = {}
    doomed: list[Row] = []
    wakes: dict[str, Row] = {}
    terms: dict[str, Row] = {}
    requests: dict[str, Row] = {}
    deaths: dict[str, Row | None] = {}
    flows: list[FlowMemo] = []
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
            finished[memo.run, memo.path] = (key_of(memo.run, memo.path), memo.run, memo.path)
        elif isinstance(memo, FileGivenUp):
            finished[memo.run, memo.path] = None
        elif isinstance(memo, FilesDoomed):
            doomed.append((True, memo.run))
        elif isinstance(memo, WakesAt):
            wakes[memo.run] = (memo.at, memo.run)
            if memo.terms is not None:
                terms[memo.run] = (json_text(memo.terms), memo.run)
        elif isinstance(memo, Requested):
            requests[memo.request_id] = (memo.request_id, memo.run, memo.fingerprint)
        elif isinstance(memo, Deaths):
            count = -memo.count if memo.tried else memo.count
            deaths[memo.run] = (memo.run, count) if count else None
        else:
            flows.append(memo)
    by_id = {row[0]: row for row in checkpoints.values()}
    statements.replace(schema.checkpoints, _CHECKPOINT, by_id)
    statements.update(schema.interrupts, "id", ("question",), spent)
    statements.delete(schema.messages, "seq", taken)
    statements.delete(schema.files, "id", [key_of(*key) for key in finished])
    statements.insert(schema.files, ("id", "run", "path"), [row for row in finished.values() if row])
    statements.update(schema.runs, "id", ("files_doomed",), doomed)
    statements.update(schema.runs, "id", ("wakes_at",), list(wakes.values()))
    statements.update(schema.runs, "id", ("terms",), list(terms.values()))
    statements.replace(schema.requests, ("request_id", "run", "fingerprint"), requests)
    statements.delete(schema.deaths, "run", list(deaths))
    statements.insert(schema.deaths, ("run", "count"), [row for row in deaths.values() if row])
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
            versions[memo.id] = tuple(getattr(memo, column) for column in _VERSION)
        elif isinstance(memo, WorkerRow):
            key = key_of(memo.id)
            workers[key] = (key, json_text(memo))
        elif isinstance(memo, WorkerGone):
            workers[key_of(memo.worker)] = None
    statements.insert(schema.flow_runs, ("run", "version", "numbered", "state"), list(begun.values()))
    met = statements.update(schema.flow_runs, "run", ("numbered", "state"), list(walked.values()))
    if met != len(walked):
        raise StoreBroken(f"{len(walked) - met} of {len(walked)} runs walk no flow in the store")
    statements.insert(schema.node_runs, ("run", "number", "record"), node_runs)
    statements.replace(schema.flows, ("id", "record"), flows)
    statements.replace(schema.flow_versions, _VERSION, versions)
    statements.delete(schema.workers, "id", list(workers))
    statements.insert(schema.workers, ("id", "record"), [row for row in workers.values() if row])
