"""The entries of commands about webhooks; a part of `commands.TABLE`.

Viewers cannot use them: the URL of a receiver often contains a secret.
"""

from __future__ import annotations

from ...protocol import webhook_commands as wire
from ..auth.tokens import Role
from .entries import Context, Entry, Fields, Http


async def _dead(context: Context, command: wire.DeadWebhooks) -> Fields:
    found = await context.engine.webhooks.dead(limit=command.limit, after=command.after)
    return {"webhooks": found}


async def _failing(context: Context, command: wire.FailingWebhooks) -> Fields:
    found = await context.engine.webhooks.failing(limit=command.limit, after=command.after)
    return {"webhooks": found}


async def _redeliver(context: Context, command: wire.RedeliverWebhook) -> Fields:
    return {"webhook": await context.engine.webhooks.redeliver(command.webhook_id, by=context.by)}


async def _drop(context: Context, command: wire.DropWebhook) -> Fields:
    return {"webhook": await context.engine.webhooks.drop(command.webhook_id, by=context.by)}


_OPERATOR = Role.OPERATOR
_ONE = "/api/webhooks/{webhook_id}"

WEBHOOK_TABLE: tuple[Entry, ...] = (
    Entry(
        wire.DeadWebhooks, _OPERATOR, _dead, Http("GET", "/api/webhooks/dead"), heavy=True, repeatable=True
    ),
    Entry(
        wire.FailingWebhooks,
        _OPERATOR,
        _failing,
        Http("GET", "/api/webhooks/failing"),
        heavy=True,
        repeatable=True,
    ),
    Entry(
        wire.RedeliverWebhook,
        _OPERATOR,
        _redeliver,
        Http("POST", f"{_ONE}/redeliver", body="webhook"),
    ),
    Entry(wire.DropWebhook, _OPERATOR, _drop, Http("DELETE", _ONE, body="webhook")),
)
