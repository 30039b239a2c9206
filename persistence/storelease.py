"""The lease of a store: taken when an engine opens the store, renewed while it is open, then released.

`SqlStore` takes the lease in the transaction that opens the store. From then on a thread renews it
(`persistence/leasethread.py`), or a task of the engine if the store works without threads.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from functools import partial

import trio
from sqlalchemy import Connection, text, update

from ..protocol.errors import Conflict
from . import schema
from .addresses import Address
from .elections import ElectedRenewals, Election
from .failures import in_use
from .holders import Holder, begins, ends, is_alive, this_process
from .lease import ENGINE, TTL, Clock, Free, Lease, Leases, Refused, Wait, may_take
from .leasekeeping import Asked, Do, Failed, Keeping, Told, now
from .leasethread import (
    FileConnection,
    LeaseConnection,
    LeaseThread,
    Renewals,
    Renewing,
    ServerConnection,
    SharedConnection,
    notify,
)
from .locks import StoreLock
from .store import LeaseWatch

_SHORTEST_WAIT = 0.001
"""So that rounding never leaves a wait that is too short to advance the clock."""

_END_WRITER = """
SELECT pg_terminate_backend(pid)
FROM meta JOIN pg_locks ON transactionid = meta.xmax JOIN pg_stat_activity USING (pid)
WHERE locktype = 'transactionid' AND granted AND usename = current_user AND pid <> pg_backend_pid()
"""
"""Ends the transaction that has locked the row of `meta`: a commit of a previous engine, which was paused or
cut off in the middle. The server's time limit for idle transactions does not apply within a pipeline."""


class EngineLease:
    """The lease of the store of one engine (a `store.StoreLease`).

    `member` is the address of the engine's node in a cluster, for other nodes. A simulation provides the name
    of the process, its clock, the check whether a holder is alive, and the connection.
    """

    def __init__(
        self,
        addresses: tuple[Address, ...],
        lock: StoreLock,
        *,
        ttl: float | None,
        in_threads: bool,
        wall_clock: Clock,
        member: str | None = None,
        election: Election | None = None,
        name: Callable[[str], Holder] = this_process,
        alive: Callable[[Holder, str], bool | None] = is_alive,
        connection: LeaseConnection | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        address = addresses[0]
        alone = address.in_memory and connection is None  # no other process can open it
        self.ttl = (math.inf if alone else TTL) if ttl is None else ttl
        self.term = 0
        self._address = address
        self._addresses = addresses
        self._member = member
        self._election = election
        self._lock = lock
        self._in_threads = in_threads
        self._leases = Leases(address.kind, wall_clock)
        self._name = name
        self._alive = alive
        self._given = connection
        self._clock: Callable[[], float] = clock or (now if in_threads else trio.current_time)
        self._fence = ""
        self._holder: Holder | None = None
        self._keeping: Keeping | None = None
        self._thread: LeaseThread | None = None
        self._renewals: Renewals | None = None
        self._watch: LeaseWatch | None = None
        self._messages: tuple[trio.MemorySendChannel[Told], trio.MemoryReceiveChannel[Told]] | None = None
        self._kept = trio.Event()

    @property
    def fence(self) -> tuple[str, int]:
        """The values that a commit compares: the engine's name in `meta`, and the term of the lease."""
        return self._fence, self.term

    # Taking the lease.

    def begin(self) -> None:
        """Draw a new name for the holder. The lock must be held."""
        election = self._election
        self._holder = self._name(self._lock.identity) if election is None else election.holder
        self._fence = ""

    def look(self, connection: Connection, *, patient: bool) -> Wait | None:
        """Return how long to wait for the lease, or `None` if it can be taken in the same transaction.

        Raises `Conflict` if another engine has it.
        """
        lease = self._leases.look(connection.connection.cursor(), ENGINE)
        if self._election is not None:
            self._check_term(lease, self._election)
            if lease.is_held and lease.address is None and not self._is_mine(lease):
                assert lease.holder is not None, "it is held"
                if self._alive(lease.holder, self._lock.identity) is not False:
                    raise refused(self._address, lease.holder, lease.left)
            return None
        match self._may_take(lease, patient=patient):
            case Wait() as wait:
                return wait
            case Refused(holder, left):
                raise refused(self._address, holder, left)
        return None

    def _check_term(self, lease: Lease, election: Election) -> None:
        if lease.term >= election.term and lease.holder != election.holder:
            raise TermRefused(
                f"the term {election.term} of this node is not above {lease.term}, the last one of the store "
                f"{self._address}: the leases were lost, and no node leads until they are valid again"
            )

    def take(self, connection: Connection) -> None:
        """Take the lease, after a `look` in the same transaction."""
        assert self._holder is not None, "begin() was called"
        if self._address.kind == "postgresql":
            connection.execute(text(_END_WRITER))
        sent = self._clock()
        self.term = self._leases.acquire(
            connection.connection.cursor(),
            ENGINE,
            self._holder,
            self.ttl,
            self._member,
            term=None if self._election is None else self._election.term,
        )
        self._fence = f"{self.term}.{self._holder.id}"[:32]
        values = {"engine": self._fence, "holder": str(self._holder)}
        connection.execute(update(schema.meta).values(**values))
        self._keeping = Keeping(self.ttl, sent if self._election is None else self._election.sent)

    def _is_mine(self, lease: Lease) -> bool:
        return lease.holder is not None and self._holder is not None and lease.holder.id == self._holder.id

    def _may_take(self, lease: Lease, *, patient: bool) -> Free | Wait | Refused:
        if self._is_mine(lease):
            return Free()  # already taken, in a transaction with an unknown outcome
        lock = self._lock.identity
        return may_take(lease, lambda holder: self._alive(holder, lock), patient=patient)

    def start(self) -> None:
        """Start to renew the lease. It must be taken."""
        assert self._holder is not None, "take() was called"
        assert self._keeping is not None, "take() was called"
        begins(self._holder)
        if self.ttl == math.inf:
            return
        self._renewals = Renewals(
            self._leases, self._connection(), str(self._address), self._holder, self.term, self.ttl
        )
        if self._in_threads:
            renewals: Renewing = self._renewals
            if self._election is not None:
                renewals = ElectedRenewals(
                    self._election.renewals, self._renewals, self.ttl, self._election.sent
                )
            self._thread = LeaseThread(self._keeping, renewals, self._clock)
            if self._watch is not None:
                self._thread.watch(self._watch)
            self._thread.start()
        else:
            self._messages = trio.open_memory_channel[Told](math.inf)
            self._kept.set()

    def _connection(self) -> LeaseConnection:
        if self._given is not None:
            return self._given
        if self._member is not None:
            return SharedConnection(self._addresses)
        server = self._lock.server
        return (
            FileConnection(self._address, self.ttl / 3)
            if server is None
            else ServerConnection(server, self.ttl)
        )

    def read(self, connection: Connection) -> Lease | None:
        """Return the lease as it is in the store."""
        return self._leases.read(connection.connection.cursor(), ENGINE)

    # While the lease is held.

    @property
    def acts_until(self) -> float:
        """Until when the engine acts, by its clock, unless the lease is renewed."""
        return -math.inf if self._keeping is None else self._keeping.acts_until

    def is_good(self) -> bool:
        if self._clock() < self.acts_until:
            return True
        if self._thread is not None:
            self._thread.ask()
        elif self._messages is not None:
            self._messages[0].send_nowait(Asked())
        return False

    def watch(self, watch: LeaseWatch) -> None:
        self._watch = watch
        if self._thread is not None:
            self._thread.watch(watch)

    async def keep(self, renew: Callable[[float], Awaitable[Told]] | None = None) -> None:
        """Renew the lease until cancelled. `renew` replaces the method of the same name."""
        if self._in_threads:
            return
        await self._kept.wait()
        assert self._messages is not None, "start() was called"
        assert self._keeping is not None, "take() was called"
        keeping, received = self._keeping, None
        async with trio.open_nursery() as nursery:
            renewal = _Renewal(nursery, renew or self.renew, self._messages[0].send_nowait)
            while True:
                for do in keeping.turn(self._clock(), received):
                    if do is Do.RENEW:
                        renewal.begin(self._clock())
                    elif do is Do.ABORT:
                        renewal.give_up()
                    elif self._watch is not None:
                        notify(self._watch, do, keeping)
                received = None
                with trio.move_on_after(max(_SHORTEST_WAIT, keeping.next() - self._clock())):
                    received = await self._messages[1].receive()

    async def renew(self, sent: float) -> Told:
        """Renew once, for a store without threads."""
        await trio.lowlevel.checkpoint()
        return self.renew_now(sent)

    def renew_now(self, sent: float) -> Told:
        """Like `renew`, without a checkpoint."""
        return Failed("the store is being closed") if self._renewals is None else self._renewals.renew(sent)

    # Releasing the lease.

    async def stop(self) -> None:
        """Release the lease, if it was taken. It can be called again."""
        thread, self._thread = self._thread, None
        renewals, self._renewals = self._renewals, None
        holder, self._holder = self._holder, None
        if thread is not None:
            await trio.to_thread.run_sync(thread.stop)
        elif renewals is not None and self._keeping is not None and self._keeping.taken is None:
            renewals.release()
        if holder is not None:
            ends(holder)
        self._keeping = None


class TermRefused(Conflict):
    """The store has a term that the winner of an election did not know."""


class _Renewal:
    """The renewal in flight, in its own task."""

    def __init__(
        self,
        nursery: trio.Nursery,
        renew: Callable[[float], Awaitable[Told]],
        report: Callable[[Told], None],
    ) -> None:
        self._nursery = nursery
        self._renew = renew
        self._report = report
        self._scope = trio.CancelScope()

    def begin(self, sent: float) -> None:
        self._scope = trio.CancelScope()
        self._nursery.start_soon(self._call, sent, self._scope)

    def give_up(self) -> None:
        self._scope.cancel()

    @trio.lowlevel.enable_ki_protection
    async def _call(self, sent: float, scope: trio.CancelScope) -> None:
        with scope:
            self._report(await self._renew(sent))
        if scope.cancelled_caught:
            self._report(Failed("the store does not answer"))


def refuse_if_held(connection: Connection, address: Address, lock: StoreLock) -> None:
    """Raise `Conflict` if an engine has the lease, or may have it; for commands that need the store alone."""
    lease = Leases(address.kind, time.time).read(connection.connection.cursor(), ENGINE)
    verdict = may_take(lease, partial(is_alive, lock=lock.identity), patient=False)
    if isinstance(verdict, Refused):
        raise refused(address, verdict.holder, verdict.left)


def refused(address: Address, holder: Holder, left: float) -> Conflict:
    """Return the error for a refused lease."""
    return in_use(address, f"{holder}, whose lease on the store expires in {math.ceil(left)} s")
