"""What is stored of webhooks: changes that are committed, and the rows that are due.

A webhook's row is the cursor in the events of its run: they are the outbox. A row without `next_at` has
nothing to deliver, or is dead.
"""

from __future__ import annotations

import msgspec

from ..protocol.webhooks import Webhook


class WebhookAdded(msgspec.Struct, frozen=True, gc=False):
    """A new run has a webhook. It is due at `at`, because the event that creates the run may concern it."""

    webhook: Webhook
    receiver: str
    at: float


class WebhooksMarked(msgspec.Struct, frozen=True, gc=False):
    """The event with this seq concerns the webhooks of the run; or it `ended` the run."""

    run: str
    seq: int
    at: float
    ended: bool


class WebhookSettled(msgspec.Struct, frozen=True, gc=False):
    """All events up to this seq are delivered, at this time. If the run has ended and has no later event, the
    webhook is removed."""

    webhook: str
    seq: int
    at: float


class WebhookFailed(msgspec.Struct, frozen=True, gc=False):
    """An attempt has failed. Without `next_at`, the webhook is dead since `at`."""

    webhook: str
    attempts: int
    since: float
    next_at: float | None
    error: str
    at: float


class WebhookRevived(msgspec.Struct, frozen=True, gc=False):
    """A failing or dead webhook is due at this time. A dead one begins anew."""

    webhook: str
    at: float


class WebhookDropped(msgspec.Struct, frozen=True, gc=False):
    """A failing or dead webhook was dropped."""

    webhook: str


WebhookMemo = WebhookAdded | WebhooksMarked | WebhookSettled | WebhookFailed | WebhookRevived | WebhookDropped


class DueWebhook(msgspec.Struct, frozen=True, gc=False):
    """A webhook with undelivered events, its receiver, the seq of the last event that concerns it, and when
    the next attempt is due."""

    webhook: Webhook
    receiver: str
    marked: int
    next_at: float


DueWebhooks = list[DueWebhook]


class WebhookCounts(msgspec.Struct, frozen=True, gc=False):
    """The numbers of failing and of dead webhooks."""

    failing: int
    dead: int
