"""Threads that keep a lease, so that neither a blocked event loop nor an unresponsive store loses it.

One thread decides (`persistence/leasekeeping.py`). It waits only for its queue, for at most a second at a
time, because the time for which a machine is suspended does not count in a wait. Another thread calls the
store, on its own connection. If a call takes too long, its connection is closed. Both threads are daemons, so
they do not keep the process from exiting.

If the lease has expired and a body still executes, the first thread can end the process (`LeaseWatch.exits`),
because the event loop may hang.
"""

from __future__ import annotations

import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn, Protocol
from urllib.parse import quote

import trio

from .addresses import Address
from .advisory import ServerLock, shut_down
from .drivers import autocommit, connect
from .failures import StoreBroken, failure
from .holders import Holder
from .lease import ENGINE, Leases
from .leasekeeping import Asked, Do, Failed, Keeping, Renewed, Taken, Told
from .store import LeaseWatch

EXIT_CODE = 6
"""The exit code of a process that was ended because a body still executed when the lease expired."""

_LONGEST_WAIT = 1.0
_MESSAGE_TIMEOUT = 1.0
"""Seconds to write the last message, because standard error may block."""


class LeaseConnection(Protocol):
    """A connection for the statements of a lease, each in its own transaction. Its methods block."""

    def cursor(self) -> Any:
        """Return a cursor; connects if there is no connection."""

    def drop(self) -> None:
        """Close a failed connection; the next `cursor` connects again."""

    def abort(self) -> None:
        """Make the current call fail. Called from another thread."""

    def close(self) -> None:
        """Close the connection."""


class FileConnection:
    """A connection to a SQLite database. It never creates the file, waits for other writers, and leaves
    checkpoints of the write-ahead log to the engine. Its writes are not synced, because the lease need not
    survive a crash of the machine.

    Create it while the engine's connections are open. It does not open the file if the write-ahead log is
    missing: that would create a new, empty log next to the one to which the engine still writes.
    """

    def __init__(self, address: Address, patience: float) -> None:
        self._address = address
        self._patience = patience
        self._connection: sqlite3.Connection | None = None
        self.cursor().execute("SELECT count(*) FROM leases").fetchall()  # opens the log

    def cursor(self) -> Any:
        if self._connection is None:
            log = f"{self._address.path}-wal"
            if not os.path.exists(log):
                raise FileNotFoundError(f"{log} was deleted or moved while the engine used it")
            connection = sqlite3.connect(
                f"file:{quote(str(self._address.path))}?mode=rw",
                uri=True,
                timeout=self._patience,
                isolation_level=None,
                check_same_thread=False,  # `abort` is called in another thread
            )
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("PRAGMA wal_autocheckpoint=0")
            self._connection = connection
        return self._connection.cursor()

    def drop(self) -> None:
        self.close()

    def abort(self) -> None:
        connection = self._connection
        if connection is not None:
            with suppress(sqlite3.Error):  # already closed
                connection.interrupt()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class ServerConnection:
    """The connection of a server's advisory lock; a new connection takes a lost lock again."""

    def __init__(self, lock: ServerLock, ttl: float) -> None:
        self._lock = lock
        self._idle = 2 * ttl

    def cursor(self) -> Any:
        return self._lock.connection(self._idle).cursor()

    def drop(self) -> None:
        self._lock.drop()

    def abort(self) -> None:
        self._lock.abort()

    def close(self) -> None:
        """Do nothing: the connection belongs to the lock."""


class SharedConnection:
    """A connection to a server for the lease of a cluster's leader, which has no advisory lock."""

    def __init__(self, addresses: tuple[Address, ...]) -> None:
        self._addresses = addresses
        self._connection: Any = None

    def cursor(self) -> Any:
        if self._connection is None:
            self._connection = connect(self._addresses, name="greenroom lease")
            autocommit(self._addresses[0].kind, self._connection)
        return self._connection.cursor()

    def drop(self) -> None:
        self.close()

    def abort(self) -> None:
        connection = self._connection
        if connection is not None:
            shut_down(self._addresses[0].kind, connection)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):  # it can have failed already
                connection.close()


class Renewals:
    """The calls to the store for one lease. Its methods block."""

    def __init__(
        self, leases: Leases, connection: LeaseConnection, store: str, holder: Holder, term: int, ttl: float
    ) -> None:
        self._leases = leases
        self._connection = connection
        self._store = store
        self._holder = holder
        self._term = term
        self._ttl = ttl

    def renew(self, sent: float) -> Renewed | Failed | Taken:
        """Renew the lease."""
        try:
            cursor = self._connection.cursor()
            if self._leases.renew(cursor, ENGINE, self._holder, self._term, self._ttl):
                return Renewed(sent)
            found = self._leases.read(cursor, ENGINE)
        except Exception as error:  # any error means that the lease was not renewed
            self._connection.drop()
            failed = failure(error, self._store, committing=False)
            return Failed(self._why(error), isinstance(failed, StoreBroken) and failed.damaged)
        who = "unknown" if found is None or found.holder is None else str(found.holder)
        return Taken(f"another engine ({who}) has taken the store {self._store}")

    def release(self) -> str | None:
        """Release the lease; returns the reason if that failed. The lease then expires."""
        try:
            self._leases.release(self._connection.cursor(), ENGINE, self._holder, self._term)
        except Exception as error:
            self._connection.drop()
            return self._why(error)
        finally:
            self._connection.close()
        return None

    def abort(self) -> None:
        """Make the current call fail."""
        self._connection.abort()

    def _why(self, error: Exception) -> str:
        failed = failure(error, self._store, committing=False)
        return f"{type(error).__name__}: {error}" if failed is None else failed.message


class Renewing(Protocol):
    """The calls that renew a lease. They block, and are made in the thread for calls, except `abort`."""

    def renew(self, sent: float) -> Told:
        """Renew the lease; `sent` is the time of this call."""

    def release(self) -> str | None:
        """Release the lease, and close the connection; returns the reason if that failed."""

    def abort(self) -> None:
        """Make the current call fail."""


class LeaseThread:
    """Keeps one lease from `start` to `stop`. `clock` is that of `keeping`. `name` is the name of the lease
    in messages, and `others` are the bodies with which those of this process must not overlap."""

    def __init__(
        self,
        keeping: Keeping,
        renewals: Renewing,
        clock: Callable[[], float],
        *,
        name: str = "the lease on the store",
        others: str = "those of the store's next engine",
    ) -> None:
        self._keeping = keeping
        self._renewals = renewals
        self._clock = clock
        self._name = name
        self._others = others
        self._token = trio.lowlevel.current_trio_token()
        self._watch: LeaseWatch | None = None
        self._inbox: queue.SimpleQueue[Told | LeaseWatch | None] = queue.SimpleQueue()
        self._calls: queue.SimpleQueue[float | None] = queue.SimpleQueue()  # when a renewal was requested
        self._decides = threading.Thread(target=self._decide, name="greenroom lease", daemon=True)
        self._renews = threading.Thread(target=self._renew, name="greenroom lease renewal", daemon=True)

    def start(self) -> None:
        """Keep the lease from now on."""
        self._decides.start()
        self._renews.start()

    def watch(self, watch: LeaseWatch) -> None:
        """Notify this watch from now on."""
        self._inbox.put(watch)

    def tell(self, told: Told) -> None:
        """Pass a message to the machine, in addition to those of this thread."""
        self._inbox.put(told)

    def ask(self) -> None:
        """Have the watch notified when the lease is good, also if it already is."""
        self.tell(Asked())

    def stop(self) -> None:
        """Release the lease. Blocks for at most a third of its ttl."""
        self._inbox.put(None)
        self._decides.join()
        self._calls.put(None)
        self._renews.join(self._keeping.ttl / 6)
        if self._renews.is_alive():
            self._renewals.abort()
            self._renews.join(self._keeping.ttl / 6)

    def _decide(self) -> None:
        keeping, received = self._keeping, None
        while True:
            for do in keeping.turn(self._clock(), received):
                self._carry_out(do)
            received = None
            try:
                wait = min(keeping.next() - self._clock(), _LONGEST_WAIT)
                message = self._inbox.get(timeout=max(0.0, wait))
            except queue.Empty:
                continue
            if message is None:
                return
            if isinstance(message, Told):
                received = message
            else:
                self._begin_watch(message)

    def _begin_watch(self, watch: LeaseWatch) -> None:
        self._watch = watch
        if self._keeping.state != "held":
            self._notify(watch, Do.CANCEL)
        if self._keeping.taken is not None:
            self._notify(watch, Do.STOP)

    def _carry_out(self, do: Do) -> None:
        if do is Do.RENEW:
            self._calls.put(self._clock())
        elif do is Do.ABORT:
            self._renewals.abort()
        elif self._watch is not None:  # else there are no bodies yet
            if do is Do.END and self._watch.exits and (executing := self._watch.executing()):
                self._end_process(self._keeping.taken or self._keeping.why, executing)
            self._notify(self._watch, do)

    def _notify(self, watch: LeaseWatch, do: Do) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(notify, watch, do, self._keeping)

    def _renew(self) -> None:
        while (sent := self._calls.get()) is not None:
            self._inbox.put(self._renewals.renew(sent))
        if self._keeping.taken is None:
            self._renewals.release()

    def _end_process(self, why: str, executing: Sequence[str]) -> NoReturn:
        why = f"{self._name} has expired ({why or 'it was not renewed in time'})"
        self.end_process(why, executing)

    def end_process(self, why: str, executing: Sequence[str]) -> NoReturn:
        """End the process, because the bodies of these runs still execute. Can be called from any thread."""
        text = (
            f"greenroom: {why}, and the bodies of these runs still execute: {', '.join(executing)}; the "
            f"process exits with code {EXIT_CODE}, so that they do not overlap with {self._others}\n"
        )
        writer = threading.Thread(target=os.write, args=(2, text.encode()), daemon=True)
        writer.start()
        writer.join(_MESSAGE_TIMEOUT)
        os._exit(EXIT_CODE)


def notify(watch: LeaseWatch, do: Do, keeping: Keeping) -> None:
    """Notify an engine; called in its own thread."""
    if do is Do.CANCEL:
        watch.lease_lapses(keeping.taken or keeping.why)
    elif do is Do.END:
        watch.lease_over(watch.executing())
    elif do is Do.RESUME:
        watch.lease_renewed()
    elif do is Do.STOP:
        watch.lease_lost(keeping.taken or keeping.why)
