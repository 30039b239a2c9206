"""The delivery of webhooks: a task that reads from the store what is due, and a few tasks that send it.

All that waits is in the store; in memory are only the deliveries in flight, of which each kind of receivers
has its share (`shares`). A webhook is delivered by one task at a time, which records each delivered event
before it sends the next.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import partial

import msgspec
import trio
from msgspec.structs import replace

from ...persistence.store import Store
from ...persistence.webhooks import DueWebhook, WebhookFailed, WebhookMemo, WebhookSettled
from ...protocol.events import Event, WebhookChanged
from ...protocol.webhooks import LONGEST_PAUSE, Webhook, after_failure, headers
from ..channel import Reply
from ..journal.change import Change
from ..journal.journal import Journal
from ..workers.push import Push, PushFailed
from .holds import Holds
from .reports import Reports
from .shares import PATIENCE, PROMPT, Share, Shares
from .uptime import Uptime

logger = logging.getLogger("greenroom")

_PAGE = 8
"""The number of events of a run after which other runs have their turn, if the receiver is prompt. Any other
receiver gets one."""

_TIMEOUT = 10.0
_RECHECK = 30.0
"""Seconds after which due times are compared with the wall clock again, which can be set."""
_MAX_ERROR = 500


class Deliveries:
    """See the module's docstring."""

    def __init__(
        self,
        journal: Journal,
        store: Store,
        push: Push,
        secret: bytes,
        clock: Callable[[], float],
        random: Callable[[], float],
        holds: Holds,
    ) -> None:
        self._journal = journal
        self._store = store
        self._push = push
        self._secret = secret
        self._clock = clock
        self._random = random
        self._woken = trio.Event()
        self._shares = Shares()
        self._requests: dict[str, trio.CancelScope] = {}  # those that wait for a response, by webhook
        self._holds = holds
        self._reports = Reports()
        self.succeeded = 0
        """The number of deliveries that a receiver has accepted."""
        self.failed = 0
        """The number of attempts that failed."""

    def wake(self) -> None:
        """Look for what is due: a commit concerns a webhook, or a caller has changed one."""
        self._woken.set()

    async def run(self) -> None:
        """Deliver until cancelled."""
        self._uptime = Uptime(self._clock(), trio.current_time())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._reports.run)
            while True:
                self._woken = trio.Event()
                wait = await self._start_due(nursery)
                with trio.move_on_after(wait):
                    await self._woken.wait()

    async def _start_due(self, nursery: trio.Nursery) -> float:
        """Start what is due, as far as there is room; returns the seconds until more is due."""
        return min([await self._start_share(share, nursery) for share in Share])

    async def _start_share(self, share: Share, nursery: trio.Nursery) -> float:
        shares = self._shares
        while (wanted := shares.wanted(share, trio.current_time())) is not None:
            now, released = self._clock(), self._holds.released
            horizon = now + LONGEST_PAUSE
            without = [*wanted.without, *self._holds.held]
            limits = (wanted.most, wanted.busy, without, wanted.among, wanted.failed, horizon)
            found = await self._journal.read(partial(self._store.due_webhooks, *limits))
            if released != self._holds.released:
                continue
            if not found:
                break
            waiting = 0
            for due in found:
                if now < due.next_at <= horizon:
                    return min(due.next_at - now, _RECHECK)
                if shares.take(due.webhook.id, due.receiver, share):
                    if not self._holds.begin(due.webhook.id):
                        shares.release(due.webhook.id)
                        continue
                    nursery.start_soon(self._deliver, due)
                else:
                    waiting += 1
            if waiting and share is Share.NEW and shares.is_full(share):
                for webhook in shares.give_way(waiting, trio.current_time()):
                    self._requests[webhook].cancel()
                return shares.until_slow(trio.current_time())
        return math.inf

    async def _deliver(self, due: DueWebhook) -> None:
        try:
            await self._deliver_page(due)
        finally:
            self._holds.end(due.webhook.id)
            self._shares.release(due.webhook.id)
            self.wake()

    async def _deliver_page(self, due: DueWebhook) -> None:
        webhook, settled = due.webhook, due.webhook.delivered
        page = _PAGE if self._shares.is_prompt(due.receiver) else 1
        read = partial(self._store.history, webhook.run, settled, page, webhook.types)
        events = await self._journal.read(read)
        for event in events:
            began = trio.current_time()
            with self._holds.attempt(webhook.id) as attempt:
                error = await self._post(webhook, event)
            if attempt.cancelled_caught:  # a caller redelivers or drops the webhook
                return
            in_time = trio.current_time() - began <= PROMPT
            self._shares.rate(due.receiver, prompt=error is None and in_time)
            if error is not None:
                await self._failed(webhook, due.receiver, error)
                return
            self.succeeded += 1
            self._reports.accepted(due.receiver)
            settled = event.seq
            webhook = replace(webhook, attempts=0, failing_since=None)
            await self._commit(WebhookSettled(webhook.id, settled, self._clock()))
            if not in_time:
                return
        if len(events) < page and (due.marked > settled or not events):  # else it would be due again at once
            await self._commit(WebhookSettled(webhook.id, max(settled, due.marked), self._clock()))

    async def _post(self, webhook: Webhook, event: Event) -> str | None:
        """Send an event; returns why it was not delivered."""
        body = msgspec.json.encode(event)
        epoch = self._journal.look_now(lambda committed: committed.epoch)
        signed = headers(self._secret, epoch, event.seq, self._clock(), body)
        self._shares.sent(webhook.id, trio.current_time())
        with trio.move_on_after(_TIMEOUT) as request:
            self._requests[webhook.id] = request
            try:
                return await self._outcome(webhook.url, body, signed)
            finally:
                del self._requests[webhook.id]
                self._shares.answered(webhook.id)
        if trio.current_time() < request.deadline:
            return f"the receiver did not respond within {PATIENCE:g} s, and more new receivers waited"
        return f"the receiver did not respond within {_TIMEOUT:g} s"

    async def _outcome(self, url: str, body: bytes, signed: dict[str, str]) -> str | None:
        try:
            status, _ = await self._push.post(url, body, signed)
            return None if 200 <= status < 300 else f"the receiver responded with status {status}"
        except PushFailed as error:
            return error.message[:_MAX_ERROR]
        except Exception as error:  # a custom push must not end the engine
            logger.exception("the push raised an error that is not PushFailed: the delivery counts as failed")
            return f"the push raised {type(error).__name__}: {error}"[:_MAX_ERROR]

    async def _failed(self, webhook: Webhook, receiver: str, error: str) -> None:
        self.failed += 1
        self._reports.failed(receiver, webhook, error)
        now = self._clock()
        uninterrupted = self._uptime.seconds(now, trio.current_time())
        outcome = after_failure(webhook, now, self._random(), uninterrupted)
        memo = WebhookFailed(webhook.id, outcome.attempts, outcome.since, outcome.next_at, error, now)
        if outcome.next_at is not None:
            await self._commit(memo)
            return
        dead = WebhookChanged(
            seq=0,
            at=0,
            by="engine",
            webhook=webhook.id,
            of_run=webhook.run,
            to="dead",
            attempts=outcome.attempts,
            error=error,
        )
        await self._commit(memo, dead)
        self._reports.died(webhook, outcome.attempts, error)

    async def _commit(self, memo: WebhookMemo, *events: Event) -> None:
        await self._journal.ask(Change(events, memos=(memo,), reply=Reply()))
