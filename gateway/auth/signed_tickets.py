"""Tickets that every node of a cluster accepts, because a proxy may send a client to another node each time.

A ticket contains the name of its caller and the time of its expiry, signed with the secret of the cluster.
The signature covers the hash of the caller's token, so a ticket is not valid where the token is not. Each
node accepts a ticket once.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
import time
from collections.abc import Callable

import msgspec

from ...protocol.codec import JSON
from .tickets import LIFETIME, invalid_ticket
from .tokens import Caller

_SIGNATURE_BYTES = 32
_LONGEST = 4096


class _Ticket(msgspec.Struct, frozen=True):
    name: str
    until: float
    nonce: str


class SignedTickets:
    """See the module's docstring. `named` returns the caller of this name."""

    def __init__(
        self, secret: str, named: Callable[[str], Caller | None], wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._secret = secret.encode()
        self._named = named
        self._wall_clock = wall_clock
        self._used: dict[str, float] = {}  # nonces, and when their tickets expire

    def issue(self, caller: Caller) -> str:
        """Create a ticket for a caller."""
        ticket = _Ticket(caller.name, self._wall_clock() + LIFETIME, secrets.token_urlsafe(12))
        text = JSON.encode(ticket)
        return base64.urlsafe_b64encode(self._signature(text, caller) + text).decode().rstrip("=")

    def redeem(self, ticket: str) -> Caller:
        """Use a ticket. Returns the caller it was issued to. Raises `Unauthorized` if it is not valid."""
        now = self._wall_clock()
        while self._used and (oldest := next(iter(self._used.items())))[1] <= now:
            del self._used[oldest[0]]
        signature, text = _parts(ticket)
        try:
            read = msgspec.json.decode(text, type=_Ticket)
        except msgspec.DecodeError:
            raise invalid_ticket() from None
        caller = self._named(read.name)
        if (
            caller is None
            or not hmac.compare_digest(signature, self._signature(text, caller))
            or not now < read.until
            or read.nonce in self._used
        ):
            raise invalid_ticket()
        self._used[read.nonce] = read.until
        return caller

    def _signature(self, text: bytes, caller: Caller) -> bytes:
        return hmac.digest(self._secret, b"ticket\0" + caller.digest.encode() + b"\0" + text, "sha256")


def _parts(ticket: str) -> tuple[bytes, bytes]:
    """The signature and the text of a ticket. Raises `Unauthorized`."""
    if len(ticket) > _LONGEST:
        raise invalid_ticket()
    try:
        decoded = base64.b64decode(ticket + "=" * (-len(ticket) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise invalid_ticket() from None
    return decoded[:_SIGNATURE_BYTES], decoded[_SIGNATURE_BYTES:]
