"""The client's `webhooks`: the methods of `engine.webhooks`, each as one command over the connection."""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol import webhook_commands as wire
from ...protocol.validation import check_page
from ...protocol.webhooks import Webhook, check_webhook_id
from .calls import expected
from .link import Link


class ClientWebhooks:
    """See `Webhooks`."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def dead(self, *, limit: int = 100, after: str | None = None) -> Sequence[Webhook]:
        """See `Webhooks.dead`."""
        check_page(limit)
        if after is not None:
            check_webhook_id(after, "after")
        return await self._list(wire.DeadWebhooks(id=self._link.number(), limit=limit, after=after))

    async def failing(self, *, limit: int = 100, after: str | None = None) -> Sequence[Webhook]:
        """See `Webhooks.failing`."""
        check_page(limit)
        if after is not None:
            check_webhook_id(after, "after")
        return await self._list(wire.FailingWebhooks(id=self._link.number(), limit=limit, after=after))

    async def _list(self, command: wire.DeadWebhooks | wire.FailingWebhooks) -> list[Webhook]:
        parts = await self._link.ask_for_parts(command)
        return [webhook for part in parts for webhook in part.webhooks or ()]

    async def redeliver(self, webhook_id: str) -> Webhook:
        """See `Webhooks.redeliver`. It is not sent again if the connection is lost."""
        command = wire.RedeliverWebhook(id=self._link.number(), webhook_id=check_webhook_id(webhook_id))
        return expected((await self._link.ask(command)).webhook)

    async def drop(self, webhook_id: str) -> Webhook:
        """See `Webhooks.drop`. It is not sent again if the connection is lost."""
        command = wire.DropWebhook(id=self._link.number(), webhook_id=check_webhook_id(webhook_id))
        return expected((await self._link.ask(command)).webhook)
