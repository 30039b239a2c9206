"""Retention: delete ended runs with all their data, and old events.

Pending runs and their events are never deleted. Nor is a run whose request id can still be repeated; that of
a child can be repeated while its parent is pending. Nor are events that a webhook has to deliver, and their
runs; but a dead webhook is deleted with its run. With a run, its last checkpoint for its handle and job is
deleted, so a later run of kind `continue` starts from the beginning.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, delete, func, or_, select

from ..protocol.states import PENDING
from . import schema
from .reading import KEPT_REQUESTS, is_of_pending_parent
from .store import Retention


def prune(connection: Connection, retention: Retention, now: float, most: int) -> int:
    """Delete at most `most` runs and `most` events; returns their number."""
    return _prune_runs(connection, retention, now, most) + _prune_events(connection, retention, now, most)


def _prune_runs(connection: Connection, retention: Retention, now: float, most: int) -> int:
    runs, requests = schema.runs, schema.requests
    surplus: list[ColumnElement[bool]] = []
    if retention.keep_runs is not None:
        newest = select(runs.c.ended_seq).where(runs.c.ended_seq.is_not(None))
        first = connection.scalar(
            newest.order_by(runs.c.ended_seq.desc()).offset(retention.keep_runs).limit(1)
        )
        if first is not None:
            surplus.append(runs.c.ended_seq <= first)
    if retention.keep_runs_for is not None:
        surplus.append(runs.c.ended_at < now - retention.keep_runs_for)
    if not surplus:
        return 0
    known = select(requests.c.run).where(requests.c.run == runs.c.id)
    repeatable, called = known.exists(), known.where(is_of_pending_parent()).exists()
    ids = connection.scalars(
        select(runs.c.id)
        .where(runs.c.ended_seq.is_not(None), or_(*surplus))
        .where(or_(runs.c.ended_at < now - KEPT_REQUESTS, ~repeatable), ~called)
        .where(~_is_delivered_later(runs.c.id))
        .order_by(runs.c.ended_seq)
        .limit(most)
    ).all()
    if ids:
        for table in (
            schema.events,
            schema.messages,
            schema.interrupts,
            schema.files,
            schema.checkpoints,
            schema.flow_runs,
            schema.node_runs,
            schema.deaths,
            schema.run_tags,
            schema.webhooks,
            requests,
        ):
            connection.execute(delete(table).where(table.c.run.in_(ids)))
        connection.execute(delete(runs).where(runs.c.id.in_(ids)))
    return len(ids)


def _prune_events(connection: Connection, retention: Retention, now: float, most: int) -> int:
    events, runs = schema.events, schema.runs
    surplus: list[ColumnElement[bool]] = []
    if retention.keep_events is not None:
        last = connection.scalar(select(func.max(events.c.seq))) or 0
        surplus.append(events.c.seq <= last - retention.keep_events)
    if retention.keep_events_for is not None:
        surplus.append(events.c.at < now - retention.keep_events_for)
    if not surplus:
        return 0
    pending = select(runs.c.id).where(runs.c.id == events.c.run, runs.c.status.in_(sorted(PENDING))).exists()
    webhooks = select(schema.webhooks.c.run).where(schema.webhooks.c.run == events.c.run)
    seqs = connection.scalars(
        select(events.c.seq)
        .where(or_(*surplus), ~pending, ~webhooks.exists())
        .order_by(events.c.seq)
        .limit(most)
    ).all()
    if seqs:
        connection.execute(delete(events).where(events.c.seq.in_(seqs)))
    return len(seqs)


def _is_delivered_later(run: ColumnElement[str]) -> ColumnElement[bool]:
    """Whether a webhook of the run, which is not dead, has events to deliver."""
    webhooks = schema.webhooks
    return select(webhooks.c.run).where(webhooks.c.run == run, webhooks.c.dead_at.is_(None)).exists()
