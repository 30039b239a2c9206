"""Queries of a SQL store, and the conversion of rows to records."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from sys import intern
from typing import Any, TypeVar

import msgspec
from msgspec.structs import force_setattr, replace
from sqlalchemy import ColumnElement, Connection, and_, false, func, or_, select

from ..protocol.events import Event, InterruptClosed
from ..protocol.lanes import DEFAULT_RULES, LaneRules
from ..protocol.records import KEPT_ENDED_RUNS, UNTIL_TIME, ExecutorState, RunRecord
from ..protocol.schedules import ScheduleRecord
from ..protocol.states import PENDING
from . import schema
from .conditions import conditions_of_status
from .reading_flows import read_flows
from .reading_webhooks import read_due_webhooks, read_types_of_pending
from .store import (
    Checkpoint,
    DeletionOwed,
    Stored,
    StoredInterrupt,
    StoredLane,
    StoredRequest,
    StoredRun,
    Terms,
    TokenTaken,
)
from .writing import key_of

T = TypeVar("T")

KEPT_REQUESTS = 24 * 3600.0
"""Seconds for which a request id is kept after its run's end."""

_ID_LENGTH = 32  # characters of a run's id

_NOTHING: list[Any] = []
_NO_FILES: dict[str, list[str]] = {}
_NO_TAGS: dict[str, str] = {}

_json: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_record = msgspec.json.Decoder(RunRecord)
_terms = msgspec.json.Decoder(Terms)
_event: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
_interrupt = msgspec.json.Decoder(StoredInterrupt)
_closed = msgspec.json.Decoder(InterruptClosed)
_schedule = msgspec.json.Decoder(ScheduleRecord)
_executor = msgspec.json.Decoder(ExecutorState)
_rules = msgspec.json.Decoder(LaneRules)
_deletion = msgspec.json.Decoder(DeletionOwed)


def read_run(connection: Connection, id: str) -> RunRecord | None:
    """Return one run."""
    text = connection.scalar(select(schema.runs.c.record).where(schema.runs.c.id == id))
    return None if text is None else _record.decode(text)


def read_history(
    connection: Connection,
    run: str,
    after: int = 0,
    limit: int | None = None,
    types: Sequence[str] | None = None,
    before: int | None = None,
) -> list[Event]:
    """Return the first events of a run after a seq; with `before`, the last ones before that seq. Their JSON
    begins with their type."""
    events = schema.events
    found = (events.c.run == run) & (events.c.seq > after)
    if types is not None:
        of_types = (events.c.event.startswith(f'{{"type":"{type}"', autoescape=True) for type in types)
        found &= or_(false(), *of_types)
    if before is not None:
        found &= events.c.seq < before
    order = events.c.seq if before is None else events.c.seq.desc()
    rows = connection.scalars(select(events.c.event).where(found).order_by(order).limit(limit))
    read = [_event.decode(text) for text in rows]
    return read if before is None else read[::-1]


def read_files(connection: Connection, run: str) -> list[tuple[str, str]]:
    """Return the paths of a run's files, each with the id of its data folder."""
    files = schema.files
    rows = connection.execute(select(files.c.path, files.c.folder).where(files.c.run == run))
    return [(row.path, row.folder) for row in rows]


def read_events(connection: Connection, after: int, limit: int) -> list[Event]:
    """Return the events after a seq."""
    events = schema.events
    found = select(events.c.event).where(events.c.seq > after).order_by(events.c.seq).limit(limit)
    return [_event.decode(text) for text in connection.scalars(found)]


def read_checkpoint(connection: Connection, handle: str, job: str) -> Checkpoint | None:
    """Return the last checkpoint of a handle for a job."""
    found = select(schema.checkpoints).where(schema.checkpoints.c.id == key_of(handle, job))
    row = connection.execute(found).first()
    if row is None:
        return None
    value = _json.decode(row.value)
    return Checkpoint(row.handle, row.job, row.run, value, row.interrupts, row.calls)


def read_closed_interrupt(connection: Connection, id: str) -> InterruptClosed | None:
    """Return how an interrupt was closed."""
    text = connection.scalar(select(schema.interrupts.c.closed).where(schema.interrupts.c.id == id))
    return None if text is None else _closed.decode(text)


def read_all(connection: Connection, now: float) -> Stored:
    """Return everything that an engine needs at its start."""
    meta = connection.execute(select(schema.meta)).one()
    runs, lanes, handles, held = schema.runs, schema.lanes, schema.handles, schema.held
    ended = (
        select(runs.c.record)
        .where(runs.c.ended_seq.is_not(None))
        .order_by(runs.c.ended_seq.desc())
        .limit(KEPT_ENDED_RUNS)
    )
    abandoned = select(runs.c.record).where(runs.c.id.in_(select(held.c.run))).order_by(runs.c.id)
    stored = Stored(
        epoch=meta.epoch,
        last_seq=meta.last_seq,
        last_place=meta.last_place,
        max_concurrent=meta.max_concurrent,
        draining=meta.draining,
        lanes={row.name: _as_lane(row) for row in connection.execute(select(lanes))},
        drafts={
            row.name: draft
            for row in connection.execute(select(handles))
            if (draft := _json.decode(row.params)) is not None
        },
        held={row.handle: row.run for row in connection.execute(select(held))},
        pending=_read_pending(connection),
        ended=[_record.decode(text) for text in connection.scalars(ended)][::-1],
        requests=_read_requests(connection, now),
        executors=_read_executors(connection),
        schedules=_read_schedules(connection),
        deletions=_read_deletions(connection),
        last_id=connection.scalar(select(func.max(runs.c.id))) or "",
        abandoned=[_record.decode(text) for text in connection.scalars(abandoned)],
        buckets=[_as_bucket(row) for row in connection.execute(select(schema.buckets))],
        webhooks=read_types_of_pending(connection),
        owes_deliveries=bool(read_due_webhooks(connection, 1, [], [])),
    )
    read_flows(connection, stored)
    return stored


def _read_pending(connection: Connection) -> list[StoredRun]:
    runs = schema.runs
    pending = and_(*conditions_of_status(PENDING))
    # They are sorted here: a database would sort whole rows, of which there can be very many.
    rows = connection.execute(
        select(runs.c.created_seq, runs.c.wakes_at, runs.c.files_doomed, runs.c.terms, runs.c.record).where(
            pending
        )
    )
    created = array("q")
    found: dict[str, StoredRun] = {}
    terms, terms_text = Terms(), ""
    for created_seq, wakes_at, files_doomed, new_text, text in rows:
        record = _record.decode(text)
        created.append(created_seq)
        if new_text != terms_text:  # very many runs can have the same
            terms, terms_text = _terms.decode(new_text), new_text
        if record.delayed:
            found[record.id] = _lean(record, terms)
        else:
            found[record.id] = StoredRun(record, terms, wakes_at, files_doomed)
    messages, interrupts, files = schema.messages, schema.interrupts, schema.files
    ids = select(runs.c.id).where(pending)
    for row in connection.execute(select(messages).where(messages.c.run.in_(ids)).order_by(messages.c.seq)):
        found[row.run].messages.append((row.seq, _json.decode(row.value)))
    for row in connection.execute(select(interrupts).where(interrupts.c.run.in_(ids))):
        found[row.run].interrupts.append(_as_interrupt(row.question, row.closed))
    for row in connection.execute(select(files).where(files.c.run.in_(ids))):
        if row.folder:
            found[row.run].foreign_files.setdefault(row.folder, []).append(row.path)
        else:
            found[row.run].files.append(row.path)
    deaths = schema.deaths
    counts = select(deaths.c.run, deaths.c["count"].label("deaths")).where(deaths.c.run.in_(ids))
    for row in connection.execute(counts):
        found[row.run].deaths, found[row.run].tried = abs(row.deaths), row.deaths < 0
    unsorted = list(found.values())
    return [unsorted[index] for index in sorted(range(len(unsorted)), key=created.__getitem__)]


def _lean(record: RunRecord, terms: Terms) -> StoredRun:
    """A delayed run, of which there can be very many: equal values are one object."""
    for name in ("lane", "job", "kind"):
        force_setattr(record, name, intern(getattr(record, name)))
    force_setattr(record, "tags", record.tags or _NO_TAGS)
    force_setattr(record, "waiting_for", UNTIL_TIME)
    if record.updated_at == record.created_at:
        force_setattr(record, "updated_at", record.created_at)
    return StoredRun(record, terms, None, False, _NOTHING, _NOTHING, _NOTHING, _NO_FILES)


def _as_lane(row: Any) -> StoredLane:
    rules = DEFAULT_RULES if row.rules is None else _rules.decode(row.rules)
    return StoredLane(row.slots, row.generation, row.paused, rules)


def _as_bucket(row: Any) -> TokenTaken:
    return TokenTaken(row.lane, None if row.key is None else _json.decode(row.key), row.full_at)


def _read_executors(connection: Connection) -> dict[str, ExecutorState]:
    rows = connection.execute(select(schema.executors))
    return dict(sorted((_json.decode(row.executor), _executor.decode(row.record)) for row in rows))


def _read_schedules(connection: Connection) -> dict[str, ScheduleRecord]:
    rows = map(_schedule.decode, connection.scalars(select(schema.schedules.c.record)))
    return {row.name: row for row in sorted(rows, key=lambda row: row.name)}


def _read_deletions(connection: Connection) -> list[DeletionOwed]:
    rows = connection.scalars(select(schema.deletions.c.record))
    return sorted(map(_deletion.decode, rows), key=lambda owed: (owed.folder, owed.run))


def _as_interrupt(interrupt: str, closed: str | None) -> StoredInterrupt:
    opened = _interrupt.decode(interrupt)
    if closed is None:
        return opened
    how = _closed.decode(closed)
    return replace(opened, outcome=how.outcome, answer=how.answer)


def is_of_pending_parent() -> ColumnElement[bool]:
    """Whether a request id is that of a child of a pending run, which may repeat its calls. Such a request id
    begins with the parent's id."""
    parents = schema.runs.alias("parents")
    id = func.substr(schema.requests.c.request_id, 1, _ID_LENGTH)
    return select(parents.c.id).where(parents.c.id == id, parents.c.status.in_(sorted(PENDING))).exists()


def _read_requests(connection: Connection, now: float) -> list[StoredRequest]:
    runs, requests = schema.runs, schema.requests
    kept = (
        select(requests, runs.c.ended_at)
        .join(runs, runs.c.id == requests.c.run)
        .where((runs.c.ended_at.is_(None)) | (runs.c.ended_at > now - KEPT_REQUESTS) | is_of_pending_parent())
        .order_by(runs.c.ended_at)
    )
    return [
        StoredRequest(row.request_id, row.run, row.fingerprint, row.ended_at)
        for row in connection.execute(kept)
    ]
