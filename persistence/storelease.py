"""The lease of the store that an engine opens: taken at the opening, kept as long as it is open, given back.

`SqlStore` takes it within the transaction in which it opens the store. From then on it is kept by a thread
(`persistence/leasethread.py`), or, where a store works without threads, by a task of the engine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from functools import partial

import trio
from sqlalchemy import Connection, update

from ..protocol.errors import Conflict
from . import schema
from .addresses import Address
from .failures import in_use
from .holders import Holder, begins, ends, is_alive, this_process
from .lease import ENGINE, TTL, Clock, Free, Lease, Leases, Refused, Wait, may_take
from .leasekeeping import Asked, Do, Failed, Keeping, Told, now
from .leasethread import FileConnection, LeaseConnection, LeaseThread, Renewals, ServerConnection, tell
from .locks import StoreLock
from .store import LeaseWatch


class EngineLease:
    """See the module's text (`store.StoreLease`). For simulation, the process's name, who lives, and the
    connection for renewals can be given."""

    def __init__(
        self,
        addresses: tuple[Address, ...],
        lock: StoreLock,
        *,
        ttl: float | None,
        in_threads: bool,
        wall_clock: Clock,
        name: Callable[[str], Holder] = this_process,
        alive: Callable[[Holder, str], bool | None] = is_alive,
        connection: LeaseConnection | None = None,
    ) -> None:
        address = addresses[0]
        alone = address.in_memory and connection is None  # nobody else can open it
        self.ttl = (math.inf if alone else TTL) if ttl is None else ttl
        self.term = 0
        self._address = address
        self._lock = lock
        self._in_threads = in_threads
        self._leases = Leases(address.kind, wall_clock)
        self._name = name
        self._alive = alive
        self._given = connection
        self._clock: Callable[[], float] = now if in_threads else trio.current_time
        self._fence = ""
        self._holder: Holder | None = None
        self._keeping: Keeping | None = None
        self._thread: LeaseThread | None = None
        self._renewals: Renewals | None = None
        self._watch: LeaseWatch | None = None
        self._told: tuple[trio.MemorySendChannel[Told], trio.MemoryReceiveChannel[Told]] | None = None
        self._kept = trio.Event()

    @property
    def fence(self) -> tuple[str, int]:
        """What a commit compares: the engine's name in `meta`, and the term of the lease."""
        return self._fence, self.term

    # Taking it.

    def begin(self) -> None:
        """The lock is held: draw a new name."""
        self._holder = self._name(self._lock.identity)
        self._fence = ""

    def look(self, connection: Connection, *, patient: bool) -> Wait | None:
        """Whether to wait for the lease, and how long; it may be taken in the same transaction otherwise.
        Raises `Conflict` if it is another engine's."""
        lease = self._leases.look(connection.connection.cursor(), ENGINE)
        match self._may_take(lease, patient=patient):
            case Wait() as wait:
                return wait
            case Refused(holder, left):
                raise refused(self._address, holder, left)
        return None

    def take(self, connection: Connection) -> None:
        """Take the lease, after a `look` in the same transaction."""
        assert self._holder is not None, "its name has been drawn"
        sent = self._clock()
        self.term = self._leases.acquire(connection.connection.cursor(), ENGINE, self._holder, self.ttl)
        self._fence = f"{self.term}.{self._holder.id}"[:32]
        values = {"engine": self._fence, "holder": str(self._holder)}
        connection.execute(update(schema.meta).values(**values))
        self._keeping = Keeping(self.ttl, sent)

    def _may_take(self, lease: Lease, *, patient: bool) -> Free | Wait | Refused:
        if lease.holder is not None and self._holder is not None and lease.holder.id == self._holder.id:
            return Free()  # it was taken already, in a transaction whose outcome was unknown
        lock = self._lock.identity
        return may_take(lease, lambda holder: self._alive(holder, lock), patient=patient)

    def start(self) -> None:
        """It is taken: keep it from now on."""
        assert self._holder is not None, "it is taken"
        assert self._keeping is not None, "it is taken"
        begins(self._holder)
        if self.ttl == math.inf:
            return
        self._renewals = Renewals(
            self._leases, self._connection(), str(self._address), self._holder, self.term, self.ttl
        )
        if self._in_threads:
            self._thread = LeaseThread(self._keeping, self._renewals, self._clock)
            if self._watch is not None:
                self._thread.watch(self._watch)
            self._thread.start()
        else:
            self._told = trio.open_memory_channel[Told](math.inf)
            self._kept.set()

    def _connection(self) -> LeaseConnection:
        if self._given is not None:
            return self._given
        server = self._lock.server
        return (
            FileConnection(self._address, self.ttl / 3)
            if server is None
            else ServerConnection(server, self.ttl)
        )

    # While it is held.

    def is_good(self) -> bool:
        if self._keeping is not None and self._clock() < self._keeping.acts_until:
            return True
        if self._thread is not None:
            self._thread.ask()
        elif self._told is not None:
            self._told[0].send_nowait(Asked())
        return False

    def watch(self, watch: LeaseWatch) -> None:
        self._watch = watch
        if self._thread is not None:
            self._thread.watch(watch)

    async def keep(self, renew: Callable[[float], Awaitable[Told]] | None = None) -> None:
        """`renew` does it in another way than `renew` here."""
        if self._in_threads:
            return
        await self._kept.wait()
        assert self._told is not None, "it has been started"
        assert self._keeping is not None, "it is taken"
        keeping, told = self._keeping, None
        async with trio.open_nursery() as nursery:
            renewal = _Renewal(nursery, renew or self.renew, self._told[0].send_nowait)
            while True:
                for do in keeping.turn(self._clock(), told):
                    if do is Do.RENEW:
                        renewal.begin(self._clock())
                    elif do is Do.GIVE_UP:
                        renewal.give_up()
                    elif self._watch is not None:
                        tell(self._watch, do, keeping)
                told = None
                with trio.move_on_at(keeping.next()):
                    told = await self._told[1].receive()

    async def renew(self, sent: float) -> Told:
        """One renewal, by a store without threads."""
        await trio.lowlevel.checkpoint()
        return self.renew_now(sent)

    def renew_now(self, sent: float) -> Told:
        """The same, without a checkpoint."""
        return Failed("the store is being closed") if self._renewals is None else self._renewals.renew(sent)

    # Giving it back.

    async def stop(self) -> None:
        """Give it back, if it was taken. It may be called again."""
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


class _Renewal:
    """The renewal that is under way, in a task of its own."""

    def __init__(
        self,
        nursery: trio.Nursery,
        renew: Callable[[float], Awaitable[Told]],
        tell: Callable[[Told], None],
    ) -> None:
        self._nursery = nursery
        self._renew = renew
        self._tell = tell
        self._scope = trio.CancelScope()

    def begin(self, sent: float) -> None:
        self._scope = trio.CancelScope()
        self._nursery.start_soon(self._call, sent, self._scope)

    def give_up(self) -> None:
        self._scope.cancel()

    async def _call(self, sent: float, scope: trio.CancelScope) -> None:
        with scope:
            self._tell(await self._renew(sent))
        if scope.cancelled_caught:
            self._tell(Failed("the store doesn't answer"))


def refuse_if_held(connection: Connection, address: Address, lock: StoreLock) -> None:
    """For a command that needs the store alone: raise `Conflict` if an engine has its lease, or may have."""
    lease = Leases(address.kind, time.time).read(connection.connection.cursor(), ENGINE)
    verdict = may_take(lease, partial(is_alive, lock=lock.identity), patient=False)
    if isinstance(verdict, Refused):
        raise refused(address, verdict.holder, verdict.left)


def refused(address: Address, holder: Holder, left: float) -> Conflict:
    """The error for somebody who may not have the lease."""
    return in_use(address, f"{holder}, whose lease on the store lasts for another {math.ceil(left)} s")
