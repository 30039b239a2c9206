"""The lease of a store: the rows and the statements, and who may have it.

Whoever works on a store holds a lease in it, with a *term* that is higher than any before it. It lapses by
the store's own clock unless it is renewed: the server's, or for SQLite that of the machine. What the process
that holds it makes of that stands in `persistence/leasekeeping.py`.

The fence is the term, which each commit compares: an engine whose lease was taken can't commit any more,
whatever it believes. A lease that has lapsed, and that nobody has taken, is still its holder's.

The functions here are given a driver's own cursor, and never begin or end a transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from .addresses import Kind
from .holders import Holder, read_holder

ENGINE = "engine"
"""The name of the lease of the one engine that a store has."""

TTL = 15.0
"""Seconds after which a lease expires that was not renewed."""

Clock = Callable[[], float]

_NOW: dict[Kind, str] = {
    "postgresql": "extract(epoch FROM clock_timestamp())::float8",
    # In UTC: a local time is ambiguous when the clocks are put back.
    "mysql": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) / 1000000.0",
}
"""The server's clock, in Unix seconds."""

_ENSURE: dict[Kind, str] = {
    "sqlite": "INSERT OR IGNORE INTO leases (name, term, expires_at) VALUES (?, 0, 0)",
    "postgresql": "INSERT INTO leases (name, term, expires_at) VALUES (?, 0, 0) ON CONFLICT DO NOTHING",
    "mysql": "INSERT IGNORE INTO leases (name, term, expires_at) VALUES (?, 0, 0)",
}

FENCE = "EXISTS (SELECT 1 FROM leases WHERE name = 'engine' AND term = ?)"
"""The condition that each commit of an engine has, beside its name in `meta`. Its parameter is the term."""


class Lease(msgspec.Struct, frozen=True):
    """A lease as it stands in the store. `left` are the seconds until it expires; negative if it has."""

    holder: Holder | None
    term: int
    address: str | None
    left: float

    @property
    def is_held(self) -> bool:
        """Whether somebody holds it, and it has not expired."""
        return self.holder is not None and self.left > 0


class Leases:
    """The statements for one kind of database. `clock` is that of the machine, which SQLite goes by."""

    def __init__(self, kind: Kind, clock: Clock) -> None:
        self._kind = kind
        self._clock = clock

    def read(self, cursor: Any, name: str, *, lock: bool = False) -> Lease | None:
        """The lease of that name; with `lock`, nobody else changes it until the transaction ends."""
        now = _NOW.get(self._kind, "?")
        sql = f"SELECT holder, term, address, expires_at - {now} FROM leases WHERE name = ?"
        if lock and self._kind != "sqlite":
            sql += " FOR UPDATE"
        found = self._execute(cursor, sql, (*self._now(), name)).fetchone()
        if found is None:
            return None
        holder, term, address, left = found
        return Lease(None if holder is None else read_holder(holder), int(term), address, float(left))

    def look(self, cursor: Any, name: str) -> Lease:
        """The lease of that name, for somebody who may `acquire` it in this transaction: nobody else changes
        it until then."""
        self._execute(cursor, _ENSURE[self._kind], (name,))
        found = self.read(cursor, name, lock=True)
        assert found is not None, "its row is there"
        return found

    def acquire(self, cursor: Any, name: str, holder: Holder, ttl: float) -> int:
        """Take the lease, whoever has it, under the next term, which is returned. Whether it may be taken has
        been decided by a `look` in the same transaction."""
        now = _NOW.get(self._kind, "?")
        sql = f"UPDATE leases SET holder = ?, term = term + 1, expires_at = {now} + ? WHERE name = ?"
        self._execute(cursor, sql, (holder.text(), *self._now(), ttl, name))
        taken = self.read(cursor, name)
        assert taken is not None, "the row has just been written"
        return taken.term

    def renew(self, cursor: Any, name: str, holder: Holder, term: int, ttl: float) -> bool:
        """Hold it for another `ttl` seconds from now; false if somebody else has taken it since."""
        now = _NOW.get(self._kind, "?")
        sql = f"UPDATE leases SET expires_at = {now} + ? WHERE name = ? AND holder = ? AND term = ?"
        return self._met(cursor, sql, (*self._now(), ttl, name, holder.text(), term))

    def release(self, cursor: Any, name: str, holder: Holder, term: int) -> bool:
        """Give it back, if it is still this holder's. The term stays, so that the next one is higher."""
        sql = "UPDATE leases SET holder = NULL, expires_at = 0 WHERE name = ? AND holder = ? AND term = ?"
        return self._met(cursor, sql, (name, holder.text(), term))

    def _now(self) -> tuple[float, ...]:
        return (self._clock(),) if self._kind == "sqlite" else ()

    def _met(self, cursor: Any, sql: str, parameters: tuple[Any, ...]) -> bool:
        return bool(self._execute(cursor, sql, parameters).rowcount == 1)

    def _execute(self, cursor: Any, sql: str, parameters: tuple[Any, ...]) -> Any:
        cursor.execute(sql if self._kind == "sqlite" else sql.replace("?", "%s"), parameters)
        return cursor


class Free(msgspec.Struct, frozen=True):
    """The lease may be taken."""


class Wait(msgspec.Struct, frozen=True):
    """Nobody can know whether the holder lives: the lease may be taken when it has expired, in so many
    seconds, unless it was renewed by then."""

    seconds: float
    holder: Holder


class Refused(msgspec.Struct, frozen=True):
    """The lease is another's, who lives."""

    holder: Holder
    left: float


def may_take(
    lease: Lease | None,
    is_alive: Callable[[Holder], bool | None],
    *,
    patient: bool,
) -> Free | Wait | Refused:
    """Whether the lease may be taken now. Whoever isn't `patient` doesn't wait, or has waited already: if the
    lease was renewed meanwhile, its holder lives."""
    if lease is None or lease.holder is None or not lease.is_held:
        return Free()
    alive = is_alive(lease.holder)
    if alive is False:
        return Free()
    if alive or not patient:
        return Refused(lease.holder, lease.left)
    return Wait(lease.left, lease.holder)
