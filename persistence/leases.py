"""Leases that several processes share: the interface, and the decision who can take one.

The nodes of a cluster elect their leader by a lease: its holder leads. `persistence/memory_leases.py`,
`sql_leases.py` and `redis_leases.py` implement the interface. Leases expire by the clock of the storage: the
database or Redis. No clock of a holder matters.

A term is higher than any before it under the same name. The storage of the terms can be lost: Redis can be
flushed or restored, or a failover can lose its last writes. Therefore the caller passes the highest term that
it knows from elsewhere (`above`; the store has that of the last leader). If the storage does not know a term
that high, its terms were lost, and with them perhaps a lease: its holder does not know it yet, and acts until
it cannot renew. Then the lease is blocked. Nobody gets it for a whole ttl, and the next term is higher than
`above`.

The lease alone does not keep two leaders apart: a holder can be paused for longer than the ttl. The store
does, which accepts a leader only with a higher term than that of the last one. A holder whose term it refuses
did not know of a term that was lost: it acquires again without releasing, with the store's term as `above`,
and so blocks the lease.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from ..protocol.errors import GreenroomError
from .holders import Holder
from .lease import Lease


class LeasesBroken(GreenroomError):
    """The leases cannot be used until an administrator acts; the message contains the remedy."""


class SharedLeases(Protocol):
    """Leases by name. Each call is atomic.

    Calls raise `Unavailable` while the storage is unreachable; they may have been executed nevertheless.
    `ttl` is in seconds, and the same for all processes that compete for a lease.
    """

    async def acquire(
        self, name: str, holder: Holder, ttl: float, *, address: str | None = None, above: int = 0
    ) -> int | None:
        """Take the lease, and return its term, which is higher than any before it and than `above`.

        Returns `None` if another process holds the lease, or if it is blocked. The holder itself can acquire
        the lease again, and gets a new term.
        """

    async def renew(self, name: str, holder: Holder, term: int, ttl: float) -> bool:
        """Renew the lease for `ttl` seconds from now. False if another process holds it, or if it lapsed: it
        expired, was released, or was lost."""

    async def release(self, name: str, holder: Holder, term: int) -> None:
        """Release the lease if it is still this holder's."""

    async def read(self, name: str) -> Lease | None:
        """Return the lease; without a holder if it is blocked, and `None` if it can be taken."""


class Verdict(Enum):
    """What happens to a request for a lease."""

    GRANTED = "granted"
    REFUSED = "refused"
    BLOCKED = "blocked"
    """Terms were lost: the lease is blocked from now on."""


def judge(lease: Lease, holder: Holder, above: int) -> Verdict:
    """Decide whether the holder can take the lease, whose `term` is the last one. A script of
    `redis_leases.py` decides the same."""
    is_own = lease.is_held and lease.holder == holder
    if lease.is_held and not is_own:
        return Verdict.REFUSED
    # The holder learned of `above` after its own term was granted.
    if above > lease.term or (is_own and above == lease.term):
        return Verdict.BLOCKED
    return Verdict.REFUSED if lease.is_blocked else Verdict.GRANTED
