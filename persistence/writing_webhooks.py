"""Convert the changes of webhooks in a batch to statements."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from . import writes
from .statements import Row, Statements
from .webhooks import (
    WebhookAdded,
    WebhookDropped,
    WebhookFailed,
    WebhookMemo,
    WebhookRevived,
    WebhookSettled,
    WebhooksMarked,
)


def write_webhooks(memos: Sequence[WebhookMemo], statements: Statements) -> None:
    """Write the changes: first new webhooks, then all marks. A mark is of an event of this batch, which no
    other change of the batch can concern, so their order does not matter."""
    added: list[Row] = []
    marked: list[Row] = []
    changes: list[WebhookMemo] = []
    for memo in memos:
        if isinstance(memo, WebhookAdded):
            new = memo.webhook
            types = msgspec.json.encode(new.types).decode()
            added.append((new.id, new.run, memo.receiver, new.url, types, 0, 0, False, memo.at, 0))
        elif isinstance(memo, WebhooksMarked):
            marked.append((memo.seq, memo.ended, memo.at, memo.run))
        else:
            changes.append(memo)
    statements.insert(writes.ADD_WEBHOOKS, added)
    statements.many(writes.MARK_WEBHOOKS, marked)
    for memo in changes:
        _write(memo, statements)


def _write(memo: WebhookMemo, statements: Statements) -> None:
    if isinstance(memo, WebhookSettled):
        statements.one(writes.SETTLE_WEBHOOK, (memo.seq, memo.seq, memo.at, memo.webhook))
        statements.one(writes.END_WEBHOOK, (memo.webhook, True))
    elif isinstance(memo, WebhookFailed):
        dead_at = memo.at if memo.next_at is None else None
        row = (memo.attempts, memo.since, memo.next_at, memo.error, dead_at, memo.webhook)
        statements.one(writes.FAIL_WEBHOOK, row)
    elif isinstance(memo, WebhookRevived):
        statements.one(writes.REVIVE_WEBHOOK, (memo.at, memo.webhook))
    elif isinstance(memo, WebhookDropped):
        statements.one(writes.DROP_WEBHOOK, (memo.webhook,))
