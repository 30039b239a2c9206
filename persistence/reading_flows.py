"""Queries of a SQL store for flows and workers (`flows.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, Select, TextClause, func, select

from ..protocol.flow.records import FlowRow, NodeRun, VersionRow
from ..protocol.records import RunRecord
from . import schema
from .conditions import conditions_of_status, conditions_within
from .flows import FlowRunPage, FlowRunQuery, FlowState, StoredFlow, WorkerRow, page_of
from .store import Stored

_json: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_record = msgspec.json.Decoder(RunRecord)
_flow = msgspec.json.Decoder(FlowRow)
_node_run = msgspec.json.Decoder(NodeRun)
_worker = msgspec.json.Decoder(WorkerRow)


def read_flows(connection: Connection, stored: Stored) -> None:
    """Add flows, versions and workers to what an engine reads when it opens the store."""
    versions = schema.flow_versions.c
    shown = select(versions.id, versions.flow, versions.version, versions.status, versions.created_at)
    flows = map(_flow.decode, connection.scalars(select(schema.flows.c.record)))
    workers = map(_worker.decode, connection.scalars(select(schema.workers.c.record)))
    stored.flows = sorted(flows, key=lambda row: (row.created_at, row.id))
    stored.versions = [
        VersionRow(*row) for row in connection.execute(shown.order_by(versions.flow, versions.version))
    ]
    stored.workers = sorted(workers, key=lambda row: (row.registered_at, row.id))


def read_version(connection: Connection, id: str) -> VersionRow | None:
    """Return a version of a flow, with its definition."""
    versions = schema.flow_versions
    row = connection.execute(select(versions).where(versions.c.id == id)).first()
    return None if row is None else VersionRow(*row)


def read_versions(connection: Connection, ids: Sequence[str]) -> list[VersionRow]:
    """Return versions with their definitions, in this order, up to the size of a page."""
    versions = schema.flow_versions
    sizes = select(versions.c.id, func.length(versions.c.definition)).where(versions.c.id.in_(ids))
    size_of = dict(_pairs(connection, sizes))
    page = page_of((id, size_of[id]) for id in ids if id in size_of)
    found = {row.id: row for row in connection.execute(select(versions).where(versions.c.id.in_(page)))}
    return [VersionRow(*found[id]) for id in page if id in found]


def read_flow(connection: Connection, run: str) -> StoredFlow | None:
    """Return the state of a run's walk, its signals and its later node runs."""
    flow_runs, messages = schema.flow_runs, schema.messages
    row = connection.execute(select(flow_runs).where(flow_runs.c.run == run)).first()
    if row is None:
        return None
    waiting = connection.execute(select(messages).where(messages.c.run == run).order_by(messages.c.seq))
    signals = [(message.seq, _json.decode(message.value)) for message in waiting]
    return StoredFlow(_state(row), signals, read_node_runs(connection, run, after=row.numbered))


def read_node_runs(
    connection: Connection, run: str, after: int = 0, limit: int | None = None
) -> list[NodeRun]:
    """Return the node runs with a number above `after`, in order; with a limit, up to the size of a page."""
    rows = schema.node_runs.c
    wanted = [rows.run == run, rows.number > after]
    if limit is not None:
        sizes = select(rows.number, func.length(rows.record)).where(*wanted)
        page = page_of(_pairs(connection, sizes.order_by(rows.number).limit(limit)))
        wanted.append(rows.number <= (page[-1] if page else after))
    found = select(rows.record).where(*wanted).order_by(rows.number)
    return [_as_node_run(text) for text in connection.scalars(found)]


def _as_node_run(text: str) -> NodeRun:
    """Decode a stored node run. Version 0.1 wrote the status `cancelled` with one l."""
    try:
        return _node_run.decode(text)
    except msgspec.ValidationError:
        record = _json.decode(text)
        if record.get("status") != "canceled":
            raise
        return msgspec.convert(record | {"status": "cancelled"}, NodeRun)


def read_flow_runs(connection: Connection, query: FlowRunQuery) -> FlowRunPage:
    """Return a page of runs of flows, newest first, and the number of all matching runs."""
    flow_runs, runs = schema.flow_runs, schema.runs
    joined = flow_runs.join(runs, runs.c.id == flow_runs.c.run)
    matching: Select[tuple[str]] = select(flow_runs.c.run)
    of_runs: list[ColumnElement[bool] | TextClause] = [*conditions_within(connection, query.within)]
    if query.status is not None:
        of_runs += conditions_of_status(query.status)
    if of_runs:  # no join without them: there can be many more runs of jobs
        matching = matching.select_from(joined).where(*of_runs)
    if query.version is not None:
        matching = matching.where(flow_runs.c.version == query.version)
    # The subqueries have names: SQLAlchemy would draw random ones, which a simulation does not allow.
    total = connection.scalar(select(func.count()).select_from(matching.subquery("matching"))) or 0
    newest_first = matching.order_by(flow_runs.c.run.desc()).limit(query.limit).offset(query.offset)
    asked = newest_first.subquery("page")
    sizes: Select[Any] = select(flow_runs.c.run, func.length(runs.c.record) + func.length(flow_runs.c.state))
    sizes = sizes.select_from(joined.join(asked, asked.c.run == flow_runs.c.run))
    page = page_of(_pairs(connection, sizes.order_by(flow_runs.c.run.desc())))
    rows = connection.execute(
        select(runs.c.record, flow_runs)
        .select_from(joined)
        .where(flow_runs.c.run.in_(page))
        .order_by(flow_runs.c.run.desc())
    )
    return FlowRunPage([(_record.decode(row.record), _state(row)) for row in rows], total)


def read_request_ids(connection: Connection, runs: Sequence[str]) -> dict[str, str]:
    """Return the request ids of runs, by run."""
    requests = schema.requests.c
    found = select(requests.run, requests.request_id).where(requests.run.in_(runs))
    rows = connection.execute(found.order_by(requests.request_id.desc()))
    return {row.run: row.request_id for row in rows}


def _pairs(connection: Connection, of: Select[Any]) -> list[tuple[Any, int]]:
    """Return keys and sizes of rows, to select a page before reading it."""
    return [(row[0], row[1]) for row in connection.execute(of)]


def _state(row: Row[Any]) -> FlowState:
    return FlowState(row.run, row.version, row.state, row.numbered)
