"""The WebSocket commands of webhooks; a part of `protocol.commands`."""

from __future__ import annotations

from .commandbase import CommandBase


class DeadWebhooks(CommandBase, frozen=True, kw_only=True, tag="dead_webhooks"):
    """List webhooks to which an event could not be delivered for a day, in the order of their ids, after the
    id `after`."""

    limit: int = 100
    after: str | None = None


class FailingWebhooks(CommandBase, frozen=True, kw_only=True, tag="failing_webhooks"):
    """List webhooks whose last attempt failed and that are not dead, in the order of their ids, after the id
    `after`."""

    limit: int = 100
    after: str | None = None


class RedeliverWebhook(CommandBase, frozen=True, kw_only=True, tag="redeliver_webhook"):
    """Deliver a failing or dead webhook now, from the first event that was not delivered on. A dead one gets
    a new day for attempts."""

    webhook_id: str


class DropWebhook(CommandBase, frozen=True, kw_only=True, tag="drop_webhook"):
    """Delete a failing or dead webhook: its events are not delivered."""

    webhook_id: str
