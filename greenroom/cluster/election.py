"""The election of the leader by a lease in Redis, instead of the row in the store.

The term of the lease becomes that of the store, which accepts only higher ones. `persistence/leases.py` says
what happens if Redis loses its data.
"""

from __future__ import annotations

import logging

from ..persistence.elections import Election
from ..persistence.failures import StoreDown
from ..persistence.holders import is_alive, this_process
from ..persistence.lease import Lease
from ..persistence.leasekeeping import now
from ..persistence.redis_leases import RedisLeases
from ..persistence.redis_renewals import RedisRenewals
from ..persistence.sqlstore import SqlStore
from ..protocol.errors import Conflict, Unavailable

logger = logging.getLogger("greenroom.cluster")

LEADER = "leader"
"""The name of the lease."""


class RedisElection:
    """The elections of one node. `reading` reads the store, which knows the last term."""

    def __init__(self, leases: RedisLeases, reading: SqlStore, address: str, ttl: float) -> None:
        self._leases = leases
        self._reading = reading
        self._address = address
        self._ttl = ttl

    async def leased_to(self) -> Lease | None:
        """The lease; that of a process of this machine which has died is released. If it is free, the row of
        the store, if an engine that is not a node has it. Raises `StoreDown` if Redis or the store cannot be
        reached."""
        try:
            lease = await self._leases.read(LEADER)
            if lease is not None and lease.holder is not None and is_alive(lease.holder) is False:
                await self._leases.release(LEADER, lease.holder, lease.term)
                lease = None
        except Unavailable as error:
            raise StoreDown(error.message) from error
        if lease is None:
            row = await self._reading.leased_to()
            if row is not None and row.is_held and row.address is None:
                return row
        return lease

    async def win(self) -> Election:
        """Acquire the lease. Raises `Conflict` if another node has it, or if nobody can have it for a while,
        and `StoreDown` if Redis or the store cannot be reached."""
        row = await self._reading.leased_to()
        above = 0 if row is None else row.term
        holder, sent = this_process(), now()
        try:
            term = await self._leases.acquire(LEADER, holder, self._ttl, address=self._address, above=above)
        except Unavailable as error:
            raise StoreDown(error.message) from error
        if term is None:
            raise Conflict(f"the lease in {self._leases.name} belongs to another node, or is blocked")
        renewals = RedisRenewals(self._leases, LEADER, holder, term, self._ttl)
        return Election(holder, term, sent, renewals)

    async def give_up(self, election: Election) -> None:
        """Release the lease, because the store could not be opened. If that fails, the lease expires."""
        try:
            await self._leases.release(LEADER, election.holder, election.term)
        except Unavailable as error:
            logger.warning("cannot release the lease: %s", error.message)

    async def block(self, election: Election) -> None:
        """The store has refused the term of the lease: let nobody have the lease for a whole ttl."""
        try:
            row = await self._reading.leased_to()
            above = 0 if row is None else row.term
            await self._leases.acquire(LEADER, election.holder, self._ttl, address=self._address, above=above)
        except Unavailable as error:
            logger.warning("cannot block the lease: %s", error.message)
