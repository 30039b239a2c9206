"""`engine.webhooks`: the calls for dead webhooks. The gateway uses the same API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from ...persistence.store import Memo, Store
from ...persistence.webhooks import WebhookDropped, WebhookRevived
from ...protocol.errors import Conflict, NotFound
from ...protocol.events import WebhookChanged
from ...protocol.names import check_name
from ...protocol.validation import check_page
from ...protocol.values import shown
from ...protocol.webhooks import Webhook, check_webhook_id
from ..channel import Reply
from ..engine.entry_point import EntryPoint
from ..journal.change import Change
from ..journal.journal import Journal


class Webhooks:
    """The dead webhooks of an engine: those to which an event could not be delivered for a day. `by` names
    who caused a change, in its event."""

    def __init__(
        self,
        entry: EntryPoint,
        journal: Journal,
        store: Store,
        clock: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        self._entry = entry
        self._journal = journal
        self._store = store
        self._clock = clock
        self._wake = wake
        self._changing: set[str] = set()

    async def dead(self, *, limit: int = 100, after: str | None = None) -> Sequence[Webhook]:
        """Dead webhooks, in the order of their ids; `after` is the last id of the previous page."""
        check_page(limit)
        if after is not None:
            check_webhook_id(after, "after")
        self._entry.check_open()
        return await self._store.dead_webhooks(limit, after)

    async def redeliver(self, webhook_id: str, *, by: str = "app") -> Webhook:
        """Deliver a dead webhook again, from the first event that was not delivered on, with a new day for
        attempts. Returns it as it was. Raises `NotFound`, and `Conflict` if it is not dead."""
        revived = WebhookRevived(check_webhook_id(webhook_id), self._clock())
        webhook = await self._change(webhook_id, "redelivered", revived, by)
        self._wake()
        return webhook

    async def drop(self, webhook_id: str, *, by: str = "app") -> Webhook:
        """Delete a dead webhook: its events are not delivered. Returns it as it was. Raises `NotFound`, and
        `Conflict` if it is not dead."""
        dropped = WebhookDropped(check_webhook_id(webhook_id))
        return await self._change(webhook_id, "dropped", dropped, by)

    async def _change(self, id: str, to: Literal["redelivered", "dropped"], memo: Memo, by: str) -> Webhook:
        check_name("by", by)
        if id in self._changing:  # so that only one of several callers changes it, and tells it
            raise Conflict(f"webhook {id} is being changed by another caller", value=id)
        self._changing.add(id)
        try:
            self._entry.check_open()
            webhook = await self._store.webhook(id)
            if webhook is None:
                raise NotFound(f"webhook {shown(id)} not found: all of its events are delivered", value=id)
            if webhook.dead_at is None:
                raise Conflict(f"webhook {id} is not dead: its deliveries are still repeated", value=id)
            event = WebhookChanged(seq=0, at=0, by=by, webhook=id, of_run=webhook.run, to=to)
            await self._entry.ask(Change((event,), memos=(memo,), reply=Reply()), self._journal)
            return webhook
        finally:
            self._changing.discard(id)
