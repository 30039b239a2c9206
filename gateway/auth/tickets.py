"""One-time tickets for `EventSource`, which cannot send a header.

A client with a token requests a ticket, which is valid for 30 seconds, and puts it into the URL. The token
itself must not be in a URL.
"""

from __future__ import annotations

import secrets

import trio

from ...protocol.errors import RateLimited, Unauthorized
from .tokens import Caller

LIFETIME = 30.0
_MOST = 10_000


def invalid_ticket() -> Unauthorized:
    """The error for a ticket that is not valid."""
    return Unauthorized("invalid, used or expired ticket (valid for 30 seconds): request a new one")


class Tickets:
    """The unused tickets. They expire in the order in which they are issued."""

    def __init__(self) -> None:
        self._issued: dict[str, tuple[Caller, float]] = {}

    def issue(self, caller: Caller) -> str:
        """Create a ticket for a caller."""
        self._expire()
        if len(self._issued) >= _MOST:
            raise RateLimited(f"too many unused tickets (limit: {_MOST:,}): retry in 30 seconds")
        ticket = secrets.token_urlsafe(24)
        self._issued[ticket] = (caller, trio.current_time() + LIFETIME)
        return ticket

    def redeem(self, ticket: str) -> Caller:
        """Use a ticket. Returns the caller it was issued to. Raises `Unauthorized` if it is not valid."""
        self._expire()
        held = self._issued.pop(ticket, None)
        if held is None:
            raise invalid_ticket()
        return held[0]

    def _expire(self) -> None:
        now = trio.current_time()
        while self._issued:
            oldest = next(iter(self._issued))
            if self._issued[oldest][1] > now:
                return
            del self._issued[oldest]
