"""`engine.webhooks`: the calls for failing and dead webhooks. The gateway uses the same API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Literal

from ...persistence.failures import StoreDown
from ...persistence.store import Memo, Store
from ...persistence.webhooks import WebhookCounts, WebhookDropped, WebhookRevived
from ...protocol.errors import Conflict, NotFound
from ...protocol.events import WebhookChanged
from ...protocol.names import check_name
from ...protocol.validation import check_page
from ...protocol.webhooks import Webhook, check_webhook_id
from ..channel import Reply
from ..engine.entry_point import EntryPoint
from ..journal.change import Change
from ..journal.journal import Journal
from .deliveries import Deliveries
from .holds import Holds


class Webhooks:
    """The webhooks of an engine to which an event could not be delivered: *failing* ones, for which it is
    attempted again, and *dead* ones, after a day. `by` names who caused a change, in its event."""

    def __init__(
        self,
        entry: EntryPoint,
        journal: Journal,
        store: Store,
        clock: Callable[[], float],
        holds: Holds,
        deliveries: Deliveries | None,
    ) -> None:
        self._entry = entry
        self._journal = journal
        self._store = store
        self._clock = clock
        self._holds = holds
        self._deliveries = deliveries
        self._counts = WebhookCounts(failing=0, dead=0)

    async def dead(self, *, limit: int = 100, after: str | None = None) -> Sequence[Webhook]:
        """Dead webhooks, in the order of their ids; `after` is the last id of the previous page."""
        self._check_page(limit, after)
        return await self._store.dead_webhooks(limit, after)

    async def failing(self, *, limit: int = 100, after: str | None = None) -> Sequence[Webhook]:
        """Webhooks whose last attempt failed and that are not dead, in the order of their ids; `after` is the
        last id of the previous page."""
        self._check_page(limit, after)
        return await self._store.failing_webhooks(limit, after)

    async def redeliver(self, webhook_id: str, *, by: str = "app") -> Webhook:
        """Deliver a failing or dead webhook now, from the first event that was not delivered on. A dead one
        gets a new day for attempts; the day of a failing one continues. Returns it as it was. Raises
        `NotFound`, and `Conflict` if no delivery of it has failed."""
        revived = WebhookRevived(check_webhook_id(webhook_id), self._clock())
        return await self._change(webhook_id, "redelivered", revived, by)

    async def drop(self, webhook_id: str, *, by: str = "app") -> Webhook:
        """Delete a failing or dead webhook: its events are not delivered. Returns it as it was. Raises
        `NotFound`, and `Conflict` if no delivery of it has failed."""
        dropped = WebhookDropped(check_webhook_id(webhook_id))
        return await self._change(webhook_id, "dropped", dropped, by)

    async def counts(self) -> WebhookCounts:
        """The numbers of failing and of dead webhooks; while the store is down, the last ones that were read.
        For the gateway's metrics."""
        if not self._journal.store_is_down:
            with suppress(StoreDown):
                self._counts = await self._store.count_webhooks()
        return self._counts

    @property
    def attempted(self) -> tuple[int, int]:
        """How many deliveries succeeded and failed; for the gateway's metrics."""
        return (0, 0) if self._deliveries is None else (self._deliveries.succeeded, self._deliveries.failed)

    def _check_page(self, limit: int, after: str | None) -> None:
        check_page(limit)
        if after is not None:
            check_webhook_id(after, "after")
        self._entry.check_open()

    async def _change(self, id: str, to: Literal["redelivered", "dropped"], memo: Memo, by: str) -> Webhook:
        check_name("by", by)
        if id in self._holds.held:  # so that only one of several callers changes it, and tells it
            raise Conflict(f"webhook {id} is being changed by another caller", value=id)
        self._entry.check_open()
        try:
            async with self._holds.hold(id):
                webhook = await self._store.webhook(id)
                if webhook is None:
                    raise NotFound(
                        f"webhook {id} not found: all of its events are delivered, it was dropped or deleted "
                        "with its run, or it never existed",
                        value=id,
                    )
                if webhook.failing_since is None:
                    raise Conflict(
                        f"no delivery of webhook {id} has failed since its last success: only failing and "
                        "dead webhooks can be redelivered or dropped",
                        value=id,
                    )
                event = WebhookChanged(seq=0, at=0, by=by, webhook=id, of_run=webhook.run, to=to)
                await self._entry.ask(Change((event,), memos=(memo,), reply=Reply()), self._journal)
                return webhook
        finally:
            if self._deliveries is not None:
                self._deliveries.wake()
