"""The lease of a store: its row, its statements, and the decision who can take it.

An engine holds a lease in its store, with a *term* that is higher than any previous one. The lease expires by
the store's clock unless it is renewed: the server's clock, or for SQLite that of the machine.
`persistence/leasekeeping.py` decides what its holder does.

The fence is the term, which each commit compares: an engine whose lease was taken can no longer commit. An
expired lease that no other engine has taken still belongs to its holder.

The functions here take a driver's cursor, and do not begin or end transactions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from .addresses import Kind
from .holders import Holder, read_holder

ENGINE = "engine"
"""The name of the lease of a store's engine."""

TTL = 15.0
"""Seconds after which a lease expires unless it is renewed."""

Clock = Callable[[], float]

_NOW: dict[Kind, str] = {
    "postgresql": "extract(epoch FROM clock_timestamp())::float8",
    # In UTC: a local time is ambiguous when daylight saving time ends.
    "mysql": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) / 1000000.0",
}
"""The server's clock, in Unix seconds."""

_ENSURE: dict[Kind, str] = {
    "sqlite": "INSERT OR IGNORE INTO leases (name, term, expires_at) VALUES (?, 0, 0)",
    "postgresql": "INSERT INTO leases (name, term, expires_at) VALUES (?, 0, 0) ON CONFLICT DO NOTHING",
    # Locks an existing row exclusively. INSERT IGNORE would share the lock, and two callers that then lock
    # the row to change it would deadlock.
    "mysql": "INSERT INTO leases (name, term, expires_at) VALUES (?, 0, 0) "
    "ON DUPLICATE KEY UPDATE name = name",
}

FENCE = "EXISTS (SELECT 1 FROM leases WHERE name = 'engine' AND term = ?)"
"""The condition of each commit, in addition to the engine's name in `meta`. Its parameter is the term."""


class Lease(msgspec.Struct, frozen=True):
    """A lease in the store. `left` is the time in seconds until it expires; negative if it has expired."""

    holder: Holder | None
    term: int
    address: str | None
    left: float

    @property
    def is_held(self) -> bool:
        """Whether it has a holder and has not expired."""
        return self.holder is not None and self.left > 0

    @property
    def is_blocked(self) -> bool:
        """Whether nobody can take it until it expires (`persistence/leases.py`)."""
        return self.holder is None and self.left > 0


class Leases:
    """The statements for one kind of database. `clock` is the machine's clock, which is used for SQLite."""

    def __init__(self, kind: Kind, clock: Clock) -> None:
        self._kind = kind
        self._clock = clock

    def read(self, cursor: Any, name: str, *, lock: bool = False) -> Lease | None:
        """Return the lease of this name; with `lock`, its row is locked until the transaction ends."""
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
        """Return the lease of this name and lock its row, so that the transaction can `acquire` it."""
        self._execute(cursor, _ENSURE[self._kind], (name,))
        found = self.read(cursor, name, lock=True)
        assert found is not None, "its row exists"
        return found

    def acquire(
        self,
        cursor: Any,
        name: str,
        holder: Holder,
        ttl: float,
        address: str | None = None,
        *,
        term: int | None = None,
    ) -> int:
        """Take the lease from any holder, and return its new term: the next one, or a higher `term` that is
        given. `address` is that of the holder.

        The caller has decided with a `look` in the same transaction that the lease can be taken.
        """
        now = _NOW.get(self._kind, "?")
        to = "term + 1" if term is None else str(int(term))
        sql = f"UPDATE leases SET holder = ?, address = ?, term = {to}, expires_at = {now} + ? WHERE name = ?"
        self._execute(cursor, sql, (holder.text(), address, *self._now(), ttl, name))
        taken = self.read(cursor, name)
        assert taken is not None, "the row was just written"
        return taken.term

    def block(self, cursor: Any, name: str, term: int, ttl: float) -> None:
        """Let nobody hold the lease for `ttl` seconds; the next term is higher than `term`."""
        now = _NOW.get(self._kind, "?")
        sql = (
            "UPDATE leases SET holder = NULL, address = NULL, term = ?, "
            f"expires_at = {now} + ? WHERE name = ?"
        )
        self._execute(cursor, sql, (term, *self._now(), ttl, name))

    def renew(self, cursor: Any, name: str, holder: Holder, term: int, ttl: float) -> bool:
        """Renew the lease for `ttl` seconds from now; false if another holder has taken it."""
        now = _NOW.get(self._kind, "?")
        sql = f"UPDATE leases SET expires_at = {now} + ? WHERE name = ? AND holder = ? AND term = ?"
        return self._met(cursor, sql, (*self._now(), ttl, name, holder.text(), term))

    def release(self, cursor: Any, name: str, holder: Holder, term: int) -> bool:
        """Release the lease if it is still this holder's. The term is kept: the next one is higher."""
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
    """The lease can be taken."""


class Wait(msgspec.Struct, frozen=True):
    """Whether the holder is alive is unknown: the lease can be taken when it has expired, in this many
    seconds, unless it is renewed by then."""

    seconds: float
    holder: Holder


class Refused(msgspec.Struct, frozen=True):
    """The lease belongs to another holder that is alive."""

    holder: Holder
    left: float


def may_take(
    lease: Lease | None,
    is_alive: Callable[[Holder], bool | None],
    *,
    patient: bool,
) -> Free | Wait | Refused:
    """Decide whether the lease can be taken now.

    A caller that is not `patient` does not wait, or has already waited: the holder of a lease that is still
    held then counts as alive.
    """
    if lease is None or lease.holder is None or not lease.is_held:
        return Free()
    alive = is_alive(lease.holder)
    if alive is False:
        return Free()
    if alive or not patient:
        return Refused(lease.holder, lease.left)
    return Wait(lease.left, lease.holder)
