"""The WebSocket commands of webhooks; a part of `protocol.commands`."""

from __future__ import annotations

from .commandbase import CommandBase


class DeadWebhooks(CommandBase, frozen=True, kw_only=True, tag="dead_webhooks"):
    """List webhooks to which an event could not be delivered for a day, in the order of their ids, after the
    id `after`."""

    limit: int = 100
    after: str | None = None


class RedeliverWebhook(CommandBase, frozen=True, kw_only=True, tag="redeliver_webhook"):
    """Deliver a dead webhook again, from the first event that was not delivered on."""

    webhook_id: str


class DropWebhook(CommandBase, frozen=True, kw_only=True, tag="drop_webhook"):
    """Delete a dead webhook: its events are not delivered."""

    webhook_id: str
