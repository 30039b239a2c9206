"""One-time tickets for `EventSource`, which can't send a header: whoever has a token gets one for half a
minute, and puts it into the URL in place of the token, which must not stand there."""

from __future__ import annotations

import secrets

import trio

from ...protocol.errors import RateLimited, Unauthorized
from .tokens import Caller

LIFETIME = 30.0
_MOST = 10_000


class Tickets:
    """Those that have not been used. They expire in the order in which they are issued."""

    def __init__(self) -> None:
        self._issued: dict[str, tuple[Caller, float]] = {}

    def issue(self, caller: Caller) -> str:
        """A ticket for a caller."""
        self._expire()
        if len(self._issued) >= _MOST:
            raise RateLimited("too many tickets are waiting to be used: try again in half a minute")
        ticket = secrets.token_urlsafe(24)
        self._issued[ticket] = (caller, trio.current_time() + LIFETIME)
        return ticket

    def redeem(self, ticket: str) -> Caller:
        """Whose ticket it is; it can't be used again."""
        self._expire()
        held = self._issued.pop(ticket, None)
        if held is None:
            raise Unauthorized("this ticket was used already, or is older than 30 seconds: get a new one")
        return held[0]

    def _expire(self) -> None:
        now = trio.current_time()
        while self._issued:
            oldest = next(iter(self._issued))
            if self._issued[oldest][1] > now:
                return
            del self._issued[oldest]
