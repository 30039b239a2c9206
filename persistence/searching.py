"""Queries of runs of a SQL store by a filter.

Handle, lane, status and tags have indexes. A run's job, flow, error and time of creation are only in its
record. So the database reads the records of the runs that the indexes find, at most `most` of them in one
query, and returns those that contain the filter's texts; `RunQuery.accepts` then decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, TextClause, and_, case, false, func, or_, select

from ..protocol.names import FLOW
from ..protocol.records import RunRecord
from . import schema
from .conditions import conditions_of_status, conditions_within
from .store import Found, RunQuery
from .writing import child_key, json_text, tag_key

_record = msgspec.json.Decoder(RunRecord)


def read_runs(connection: Connection, query: RunQuery) -> list[RunRecord]:
    """Return a page of runs, newest first."""
    return _search(connection, query, None).runs


def search_runs(connection: Connection, query: RunQuery, most: int) -> Found:
    """Return the first runs of a page, newest first, after reading at most `most` runs."""
    return _search(connection, query, most)


def read_runs_of_requests(connection: Connection, runs: Sequence[str], prefix: str) -> set[str]:
    """Return those of the runs that have a request id with this prefix."""
    requests = schema.requests.c
    rows = connection.execute(select(requests.run, requests.request_id).where(requests.run.in_(runs)))
    return {row.run for row in rows if row.request_id.startswith(prefix)}


def _search(connection: Connection, query: RunQuery, most: int | None) -> Found:
    runs = schema.runs
    record: ColumnElement[str | None] = runs.c.record
    limit = most
    if query.is_indexed:
        limit = query.limit
    elif texts := _contained(connection, query):
        record = case((and_(*texts), runs.c.record), else_=None)
    tables: Any = runs
    ids: ColumnElement[str] = runs.c.id
    conditions: list[ColumnElement[bool] | TextClause] = []
    keys = [tag_key(name, value) for name, value in query.tags.items()]
    if query.parent is not None:
        keys.append(child_key(query.parent))
    for number, key in enumerate(keys):
        tagged = schema.run_tags.alias(f"tag_{number}")
        tables = tables.join(tagged, tagged.c.run == runs.c.id)
        conditions.append(tagged.c.tag == key)
        ids = tagged.c.run  # so that the index of one tag gives the order
    if query.handle is not None:
        conditions.append(runs.c.handle == query.handle)
    if query.lane is not None:
        conditions.append(runs.c.lane == query.lane)
    if query.status is not None:
        conditions += conditions_of_status(query.status)
    conditions += conditions_within(connection, query.within)
    if query.before is not None:
        conditions.append(ids < query.before)
    page = select(ids, record).select_from(tables).where(*conditions).order_by(ids.desc()).limit(limit)
    found: list[RunRecord] = []
    read, last = 0, None
    for id, text in connection.execute(page):
        read, last = read + 1, id
        if text is not None and query.accepts(run := _record.decode(text)):
            found.append(run)
            if len(found) == query.limit:
                return Found(found)
    return Found(found, last if read == most and not query.is_indexed else None)


def _contained(connection: Connection, query: RunQuery) -> list[ColumnElement[bool]]:
    """The conditions that a record contains the texts of the filter, encoded as in the record. They hold for
    every run that matches, and for few others."""
    texts: list[str] = []
    if query.job is not None:
        texts.append(_field("job", query.job))
    if query.flow is not None:
        texts += [_field("job", FLOW), _field("flow", query.flow)]
    if query.error is not None:
        texts.append(_inner(query.error))
    conditions = [_contains(connection, text) for text in texts]
    jobs = None if query.within is None else query.within.jobs
    if jobs is not None:
        some = [_field("job", name) for name in sorted(jobs.names)]
        some += [_field("job", prefix).removesuffix('"') for prefix in jobs.prefixes]
        conditions.append(or_(false(), *(_contains(connection, text) for text in some)))
    return conditions


def _field(name: str, value: str) -> str:
    return f'"{name}":{json_text(value)}'


def _inner(text: str) -> str:
    """A text as a part of a longer one in JSON."""
    return json_text(text)[1:-1]


def _contains(connection: Connection, text: str) -> ColumnElement[bool]:
    """Without LIKE, which ignores case in SQLite, and has wildcards."""
    function = func.strpos if connection.dialect.name == "postgresql" else func.instr
    return function(schema.runs.c.record, text) > 0
