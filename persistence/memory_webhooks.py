"""The webhooks of the `memory:` store."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from heapq import nsmallest
from operator import itemgetter

import msgspec
from msgspec.structs import replace

from ..protocol.webhooks import Webhook
from .webhooks import (
    DueWebhook,
    DueWebhooks,
    WebhookAdded,
    WebhookCounts,
    WebhookFailed,
    WebhookMemo,
    WebhookRevived,
    WebhookSettled,
    WebhooksMarked,
)


class _Row(msgspec.Struct):
    webhook: Webhook
    receiver: str
    next_at: float | None
    marked: int = 0
    ended: bool = False

    @property
    def shown(self) -> Webhook:
        return replace(self.webhook, next_at=self.next_at)

    @property
    def fails(self) -> bool:
        return self.webhook.failing_since is not None and self.webhook.dead_at is None


class WebhooksInMemory:
    """See the module's docstring. It changes its rows as the statements in `writes.py` do."""

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}
        self._by_run: dict[str, list[str]] = {}
        self._by_receiver: dict[str, dict[str, _Row]] = {}

    def types_of(self, runs: Iterable[str]) -> dict[str, frozenset[str]]:
        """Return the types of events that the webhooks of these runs deliver, by run."""
        types: dict[str, frozenset[str]] = {}
        for run in runs:
            for id in self._by_run.get(run, ()):
                types[run] = types.get(run, frozenset()).union(self._rows[id].webhook.types)
        return types

    def due(
        self,
        most: int,
        busy: Sequence[str],
        without: Sequence[str],
        among: Sequence[str] | None,
        failed: bool | None = None,
        horizon: float = math.inf,
    ) -> DueWebhooks:
        """See `Store.due_webhooks`."""
        refused, taken, these = frozenset(busy), frozenset(without), frozenset(among or ())

        def accepts(row: _Row) -> bool:
            has_failed = row.webhook.attempts > 0
            if failed is not None and has_failed:
                return failed
            return among is None or row.receiver in these

        found = (
            (row.next_at <= horizon, row.next_at, row)
            for receiver in (self._by_receiver if among is None or failed else among)
            if receiver not in refused
            for id, row in self._by_receiver.get(receiver, {}).items()
            if row.next_at is not None and id not in taken and accepts(row)
        )
        first = nsmallest(most, found, key=itemgetter(0, 1))
        return [DueWebhook(row.shown, row.receiver, row.marked, next_at) for _, next_at, row in first]

    def get(self, id: str) -> Webhook | None:
        """Return one webhook."""
        row = self._rows.get(id)
        return None if row is None else row.shown

    def dead(self, limit: int, after: str | None) -> list[Webhook]:
        """Return dead webhooks, in the order of their ids, after an id."""
        return self._page(
            (row for row in self._rows.values() if row.webhook.dead_at is not None), limit, after
        )

    def failing(self, limit: int, after: str | None) -> list[Webhook]:
        """Return failing webhooks that are not dead, in the order of their ids, after an id."""
        return self._page((row for row in self._rows.values() if row.fails), limit, after)

    def count(self) -> WebhookCounts:
        """Count failing and dead webhooks."""
        rows = self._rows.values()
        return WebhookCounts(
            failing=sum(row.fails for row in rows),
            dead=sum(row.webhook.dead_at is not None for row in rows),
        )

    @staticmethod
    def _page(rows: Iterable[_Row], limit: int, after: str | None) -> list[Webhook]:
        later = (row.shown for row in rows if row.webhook.id > (after or ""))
        return sorted(later, key=lambda webhook: webhook.id)[:limit]

    def has(self, run: str) -> bool:
        """Whether a run has webhooks."""
        return run in self._by_run

    def keep(self, run: str) -> bool:
        """Whether a webhook of the run, which is not dead, has events to deliver."""
        return any(self._rows[id].webhook.dead_at is None for id in self._by_run.get(run, ()))

    def forget(self, run: str) -> None:
        """Remove the webhooks of a run."""
        for id in list(self._by_run.get(run, ())):
            self._remove(self._rows[id])

    def remember(self, memo: WebhookMemo) -> None:
        """Store a change."""
        if isinstance(memo, WebhookAdded):
            row = self._rows[memo.webhook.id] = _Row(memo.webhook, memo.receiver, memo.at)
            self._by_receiver.setdefault(memo.receiver, {})[memo.webhook.id] = row
            self._by_run.setdefault(memo.webhook.run, []).append(memo.webhook.id)
        elif isinstance(memo, WebhooksMarked):
            for id in self._by_run.get(memo.run, ()):
                row = self._rows[id]
                row.marked, row.ended = memo.seq, memo.ended
                if row.next_at is None and row.webhook.dead_at is None:
                    row.next_at = memo.at
        elif memo.webhook in self._rows:
            self._change(self._rows[memo.webhook], memo)

    def _change(self, row: _Row, memo: WebhookMemo) -> None:
        webhook = row.webhook
        if isinstance(memo, WebhookSettled):
            row.webhook = replace(webhook, delivered=memo.seq, attempts=0, failing_since=None, error=None)
            row.next_at = memo.at if row.marked > memo.seq else None
            if row.ended and row.next_at is None:
                self._remove(row)
        elif isinstance(memo, WebhookFailed):
            row.next_at = memo.next_at
            row.webhook = replace(
                webhook,
                attempts=memo.attempts,
                failing_since=memo.since,
                error=memo.error,
                dead_at=memo.at if memo.next_at is None else None,
            )
        elif webhook.failing_since is not None:
            if isinstance(memo, WebhookRevived):
                if webhook.dead_at is not None:
                    row.webhook = replace(webhook, attempts=0, failing_since=None, dead_at=None)
                row.next_at = memo.at
            else:
                self._remove(row)

    def _remove(self, row: _Row) -> None:
        webhook = row.webhook
        del self._rows[webhook.id]
        of_run = self._by_run[webhook.run]
        of_run.remove(webhook.id)
        if not of_run:
            del self._by_run[webhook.run]
        of_receiver = self._by_receiver[row.receiver]
        del of_receiver[webhook.id]
        if not of_receiver:
            del self._by_receiver[row.receiver]
