"""What is logged of failures: receivers that begin to fail, and webhooks that are dead.

Both can be many at the same time, so a receiver is logged once until it accepts an event again, and dead
webhooks at most once a minute.
"""

from __future__ import annotations

import logging
from urllib.parse import urlsplit

import trio

from ...protocol.webhooks import Webhook

logger = logging.getLogger("greenroom")

_MOST_KNOWN = 1000
"""Failing receivers that are remembered; when there are more, one may be logged again."""
_PAUSE = 60.0


class Reports:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._failing: dict[str, None] = {}
        self._died = trio.Event()
        self._dead = 0
        self._last = ""

    def failed(self, receiver: str, webhook: Webhook, error: str) -> None:
        """An attempt to deliver an event has failed."""
        if receiver in self._failing:
            return
        self._failing[receiver] = None
        if len(self._failing) > _MOST_KNOWN:
            del self._failing[next(iter(self._failing))]  # the one that failed first
        parts = urlsplit(webhook.url)
        logger.warning(
            "receiver %s://%s of webhooks fails: %s (webhook %s of run %s); deliveries are repeated for "
            "a day, see `greenroom webhooks --failing`",
            parts.scheme,
            parts.netloc,
            error,
            webhook.id,
            webhook.run,
        )

    def accepted(self, receiver: str) -> None:
        """A receiver has accepted an event."""
        self._failing.pop(receiver, None)

    def died(self, webhook: Webhook, attempts: int, error: str) -> None:
        """A webhook is dead."""
        self._dead += 1
        self._last = f"webhook {webhook.id} of run {webhook.run} after {attempts} failed attempts: {error}"
        self._died.set()

    async def run(self) -> None:
        """Log dead webhooks until cancelled: the first at once, later ones once a minute."""
        try:
            while True:
                await self._died.wait()
                self._log_dead()
                await trio.sleep(_PAUSE)
        finally:
            if self._dead:
                self._log_dead()

    def _log_dead(self) -> None:
        logger.warning(
            "webhooks are dead: %d more, see `greenroom webhooks`; the last is %s", self._dead, self._last
        )
        self._dead, self._died = 0, trio.Event()
