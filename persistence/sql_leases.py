"""Leases in a table of the store, for processes that share its database.

The table is that of the engine's own lease, and so are the statements (`persistence/lease.py`). The clock is
the database's; for SQLite, that of the machine.
"""

from __future__ import annotations

import time

from sqlalchemy import Connection

from .database import DatabaseManager
from .holders import Holder
from .lease import Clock, Lease, Leases
from .leases import Verdict, judge


class SqlLeases:
    """Implements `leases.SharedLeases`. The database is open while the leases are used, and has the store's
    tables. Calls have its time limit, and also raise `StoreBroken`."""

    def __init__(self, database: DatabaseManager, *, clock: Clock = time.time) -> None:
        self._database = database
        self._leases = Leases(database.kind, clock)

    async def acquire(
        self, name: str, holder: Holder, ttl: float, *, address: str | None = None, above: int = 0
    ) -> int | None:
        def acquire(connection: Connection) -> int | None:
            cursor = connection.connection.cursor()
            verdict = judge(self._leases.look(cursor, name), holder, above)
            if verdict is Verdict.GRANTED:
                return self._leases.acquire(cursor, name, holder, ttl, address)
            if verdict is Verdict.BLOCKED:
                self._leases.block(cursor, name, above, ttl)
            return None

        return await self._database.run(acquire)

    async def renew(self, name: str, holder: Holder, term: int, ttl: float) -> bool:
        def renew(connection: Connection) -> bool:
            cursor = connection.connection.cursor()
            lease = self._leases.read(cursor, name, lock=True)
            # An expired lease that nobody has taken could be renewed, but its holder may have stopped to act.
            held = lease is not None and lease.is_held
            return held and self._leases.renew(cursor, name, holder, term, ttl)

        return await self._database.run(renew)

    async def release(self, name: str, holder: Holder, term: int) -> None:
        def release(connection: Connection) -> None:
            self._leases.release(connection.connection.cursor(), name, holder, term)

        await self._database.run(release)

    async def read(self, name: str) -> Lease | None:
        lease = await self._database.read(
            lambda connection: self._leases.read(connection.connection.cursor(), name)
        )
        return lease if lease is not None and lease.left > 0 else None
