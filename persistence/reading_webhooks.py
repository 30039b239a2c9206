"""Queries of webhooks in a SQL store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, or_, select

from ..protocol.states import PENDING
from ..protocol.webhooks import Webhook
from . import schema
from .conditions import conditions_of_status
from .webhooks import DueWebhook, DueWebhooks

_types = msgspec.json.Decoder(tuple[str, ...])


def read_due_webhooks(
    connection: Connection,
    most: int,
    busy: Sequence[str],
    without: Sequence[str],
    among: Sequence[str] | None = None,
    failed: bool | None = None,
) -> DueWebhooks:
    """Return webhooks with undelivered events, in the order of the times at which they are due. See
    `Store.due_webhooks`."""
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
    return [
        DueWebhook(_as_webhook(row), row.receiver, row.marked, row.next_at)
        for row in connection.execute(found)
    ]


def read_webhook(connection: Connection, id: str) -> Webhook | None:
    """Return one webhook."""
    row = connection.execute(select(schema.webhooks).where(schema.webhooks.c.id == id)).first()
    return None if row is None else _as_webhook(row)


def read_dead_webhooks(connection: Connection, limit: int, after: str | None) -> list[Webhook]:
    """Return dead webhooks after an id."""
    webhooks = schema.webhooks
    found = select(webhooks).where(webhooks.c.dead_at.is_not(None), webhooks.c.id > (after or ""))
    return [_as_webhook(row) for row in connection.execute(found.order_by(webhooks.c.id).limit(limit))]


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
        dead_at=row.dead_at,
    )
