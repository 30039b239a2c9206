"""Queries of webhooks in a SQL store."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, func, or_, select

from ..protocol.states import PENDING
from ..protocol.webhooks import Webhook
from . import schema
from .conditions import conditions_of_status
from .webhooks import DueWebhook, DueWebhooks, WebhookCounts

_types = msgspec.json.Decoder(tuple[str, ...])


def read_due_webhooks(
    connection: Connection,
    most: int,
    busy: Sequence[str],
    without: Sequence[str],
    among: Sequence[str] | None = None,
    failed: bool | None = None,
    horizon: float = math.inf,
) -> DueWebhooks:
    """Return webhooks with undelivered events: first those that are due after the `horizon`, then all in the
    order of the times at which they are due. See `Store.due_webhooks`."""
    webhooks = schema.webhooks
    found = (
        select(webhooks)
        .where(webhooks.c.next_at.is_not(None))
        .where(webhooks.c.receiver.not_in(busy), webhooks.c.id.not_in(without))
        .order_by(webhooks.c.next_at)
        .limit(most)
    )
    if failed is False:
        found = found.where(webhooks.c.attempts == 0)
    if among is not None:
        of_these = webhooks.c.receiver.in_(among)
        found = found.where(or_(of_these, webhooks.c.attempts > 0) if failed else of_these)
    rows = list(connection.execute(found))
    if math.isfinite(horizon):
        # A query of its own, as an order by both conditions could not use the index.
        late = connection.execute(found.where(webhooks.c.next_at > horizon)).all()
        rows = [*late, *(row for row in rows if row.next_at <= horizon)][:most]
    return [DueWebhook(_as_webhook(row), row.receiver, row.marked, row.next_at) for row in rows]


def read_webhook(connection: Connection, id: str) -> Webhook | None:
    """Return one webhook."""
    row = connection.execute(select(schema.webhooks).where(schema.webhooks.c.id == id)).first()
    return None if row is None else _as_webhook(row)


def read_dead_webhooks(connection: Connection, limit: int, after: str | None) -> list[Webhook]:
    """Return dead webhooks after an id."""
    return _page(connection, schema.webhooks.c.dead_at.is_not(None), limit, after)


def read_failing_webhooks(connection: Connection, limit: int, after: str | None) -> list[Webhook]:
    """Return failing webhooks that are not dead, after an id."""
    webhooks = schema.webhooks
    fails = and_(webhooks.c.failing_since.is_not(None), webhooks.c.dead_at.is_(None))
    return _page(connection, fails, limit, after)


def _page(
    connection: Connection, condition: ColumnElement[bool], limit: int, after: str | None
) -> list[Webhook]:
    webhooks = schema.webhooks
    found = select(webhooks).where(condition, webhooks.c.id > (after or ""))
    return [_as_webhook(row) for row in connection.execute(found.order_by(webhooks.c.id).limit(limit))]


def count_webhooks(connection: Connection) -> WebhookCounts:
    """Count failing and dead webhooks."""
    webhooks = schema.webhooks
    # A dead webhook is failing, too, so the index of both columns has all that is counted.
    found = select(func.count(), func.count(webhooks.c.dead_at)).where(webhooks.c.failing_since.is_not(None))
    failed, dead = connection.execute(found).one()
    return WebhookCounts(failing=failed - dead, dead=dead)


def read_types_of_pending(connection: Connection) -> dict[str, frozenset[str]]:
    """Return the types of events that webhooks of pending runs deliver, by run."""
    webhooks, runs = schema.webhooks, schema.runs
    found = select(webhooks.c.run, webhooks.c.types).join(runs, runs.c.id == webhooks.c.run)
    types: dict[str, frozenset[str]] = {}
    for row in connection.execute(found.where(*conditions_of_status(PENDING)).order_by(webhooks.c.id)):
        types[row.run] = types.get(row.run, frozenset()).union(_types.decode(row.types))
    return types


def _as_webhook(row: Any) -> Webhook:
    return Webhook(
        id=row.id,
        run=row.run,
        url=row.url,
        types=_types.decode(row.types),
        delivered=row.delivered,
        attempts=row.attempts,
        failing_since=row.failing_since,
        error=row.error,
        next_at=row.next_at,
        dead_at=row.dead_at,
    )
