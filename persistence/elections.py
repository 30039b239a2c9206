"""Elections that are decided outside of the store: the leader of a cluster holds a lease in Redis.

The store still has a row for the lease. Its term is the fence that each commit compares, so a leader that has
lost its lease in Redis cannot commit once the next one has opened the store. The row is renewed, too, so that
an engine that is not a node of the cluster is refused.
"""

from __future__ import annotations

import attrs

from .holders import Holder
from .leasekeeping import Renewed, Taken, Told
from .leasethread import Renewals, Renewing


@attrs.frozen
class Election:
    """An election that was won. `sent` is when the lease was requested, by the clock of its holder, and
    `renewals` renew it."""

    holder: Holder
    term: int
    sent: float
    renewals: Renewing


class ElectedRenewals:
    """Implements `leasethread.Renewing`. Redis decides whether the lease is renewed."""

    def __init__(self, elected: Renewing, row: Renewals, ttl: float, sent: float) -> None:
        self._elected = elected
        self._row = row
        self._ttl = ttl
        self._row_renewed = sent

    def renew(self, sent: float) -> Told:
        """Renew the lease, and the row in the store. If that cannot be reached for a ttl, the lease is not
        renewed either, so that a node that reaches the store can lead."""
        if sent >= self._row_renewed + self._ttl:
            row = self._renew_row(sent)
            if not isinstance(row, Renewed):
                return row
        renewed = self._elected.renew(sent)
        if not isinstance(renewed, Renewed):
            return renewed
        row = self._renew_row(sent)
        return row if isinstance(row, Taken) else renewed

    def _renew_row(self, sent: float) -> Told:
        row = self._row.renew(sent)
        if isinstance(row, Renewed):
            self._row_renewed = sent
        return row

    def release(self) -> str | None:
        """Release the row first: the node that then gets the lease can open the store."""
        row = self._row.release()
        return self._elected.release() or row

    def abort(self) -> None:
        """Make the current call fail."""
        self._elected.abort()
        self._row.abort()
