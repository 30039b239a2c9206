"""Keeping a lease beside the event loop, so that neither a blocked loop nor a silent store decides about it.

One thread decides (`persistence/leasekeeping.py`): it waits for nothing but its queue, for a second at most,
because a machine that was suspended makes no wait any shorter. Another one talks to the store, on a
connection of its own. A call that takes too long has its connection ended under it. Both threads are daemons:
they never keep a process from ending.

When the lease is over and a body still executes, the first thread ends the process, if it was told to: the
event loop may be what hangs.
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
from .advisory import ServerLock
from .failures import StoreBroken, failure
from .holders import Holder
from .lease import ENGINE, Leases
from .leasekeeping import Asked, Do, Failed, Keeping, Renewed, Taken, Told
from .store import LeaseWatch

EXIT_CODE = 6
"""That of a process which was ended because a body still executed when the lease was over."""

_LONGEST_WAIT = 1.0
_LAST_WORDS = 1.0
"""Seconds that the last message may take: standard error may be what hangs."""


class LeaseConnection(Protocol):
    """A connection for a lease's statements, each of which is a transaction. Its methods block."""

    def cursor(self) -> Any:
        """A cursor of the connection, which is made if there is none."""

    def drop(self) -> None:
        """It has failed: make another one next time."""

    def abort(self) -> None:
        """Have a call fail that takes too long. Called from another thread."""

    def close(self) -> None:
        """Let go of it."""


class FileConnection:
    """To a SQLite database. It never makes the file, waits for other writers, and leaves checkpoints of the
    write-ahead log to the engine. What it writes need not survive the machine, so it isn't synced.

    Make it while the engine's connections are open. It never opens the file when the write-ahead log is gone:
    that would make a new, empty one beside the one that the engine still writes."""

    def __init__(self, address: Address, patience: float) -> None:
        self._address = address
        self._patience = patience
        self._connection: sqlite3.Connection | None = None
        self.cursor().execute("SELECT count(*) FROM leases").fetchall()  # this opens the log

    def cursor(self) -> Any:
        if self._connection is None:
            log = f"{self._address.path}-wal"
            if not os.path.exists(log):
                raise FileNotFoundError(f"{log} was deleted or moved away while the engine used it")
            connection = sqlite3.connect(
                f"file:{quote(str(self._address.path))}?mode=rw",
                uri=True,
                timeout=self._patience,
                isolation_level=None,
                check_same_thread=False,  # `abort` comes from another thread
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
            with suppress(sqlite3.Error):  # it has just been closed
                connection.interrupt()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class ServerConnection:
    """That of a server's lock, which is taken again with it where it was lost."""

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
        """It stays the lock's."""


class Renewals:
    """The calls to the store for one lease. They block."""

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
        """Renew it."""
        try:
            cursor = self._connection.cursor()
            if self._leases.renew(cursor, ENGINE, self._holder, self._term, self._ttl):
                return Renewed(sent)
            found = self._leases.read(cursor, ENGINE)
        except Exception as error:  # whatever it is, the lease was not renewed; the reason is told
            self._connection.drop()
            failed = failure(error, self._store, committing=False)
            return Failed(self._why(error), isinstance(failed, StoreBroken) and failed.damaged)
        who = "somebody" if found is None or found.holder is None else str(found.holder)
        return Taken(f"another engine ({who}) has taken the store {self._store}")

    def release(self) -> str | None:
        """Give it back; returns why that could not be done. It expires by itself then."""
        try:
            self._leases.release(self._connection.cursor(), ENGINE, self._holder, self._term)
        except Exception as error:
            self._connection.drop()
            return self._why(error)
        finally:
            self._connection.close()
        return None

    def abort(self) -> None:
        """Have the call fail that is under way."""
        self._connection.abort()

    def _why(self, error: Exception) -> str:
        failed = failure(error, self._store, committing=False)
        return f"{type(error).__name__}: {error}" if failed is None else failed.message


class LeaseThread:
    """Keeps one lease from `start` to `stop`. `clock` is that of `keeping`."""

    def __init__(self, keeping: Keeping, renewals: Renewals, clock: Callable[[], float]) -> None:
        self._keeping = keeping
        self._renewals = renewals
        self._clock = clock
        self._token = trio.lowlevel.current_trio_token()
        self._watch: LeaseWatch | None = None
        self._inbox: queue.SimpleQueue[Told | LeaseWatch | None] = queue.SimpleQueue()
        self._calls: queue.SimpleQueue[float | None] = queue.SimpleQueue()  # when it was asked for a renewal
        self._decides = threading.Thread(target=self._decide, name="greenroom lease", daemon=True)
        self._renews = threading.Thread(target=self._renew, name="greenroom lease renewal", daemon=True)

    def start(self) -> None:
        """Keep the lease from now on."""
        self._decides.start()
        self._renews.start()

    def watch(self, watch: LeaseWatch) -> None:
        """Have somebody told, from now on."""
        self._inbox.put(watch)

    def ask(self) -> None:
        """Have it told when the lease is good, if only again."""
        self._inbox.put(Asked())

    def stop(self) -> None:
        """Give the lease back. Blocks, but not for longer than a third of the lease's time."""
        self._inbox.put(None)
        self._decides.join()
        self._calls.put(None)
        self._renews.join(self._keeping.ttl / 6)
        if self._renews.is_alive():
            self._renewals.abort()
            self._renews.join(self._keeping.ttl / 6)

    def _decide(self) -> None:
        keeping, told = self._keeping, None
        while True:
            for do in keeping.turn(self._clock(), told):
                self._carry_out(do)
            told = None
            try:
                wait = min(keeping.next() - self._clock(), _LONGEST_WAIT)
                message = self._inbox.get(timeout=max(0.0, wait))
            except queue.Empty:
                continue
            if message is None:
                return
            if isinstance(message, Told):
                told = message
            else:
                self._begin_watch(message)

    def _begin_watch(self, watch: LeaseWatch) -> None:
        self._watch = watch
        if self._keeping.state != "held":
            self._tell(watch, Do.CANCEL)
        if self._keeping.taken is not None:
            self._tell(watch, Do.STOP)

    def _carry_out(self, do: Do) -> None:
        if do is Do.RENEW:
            self._calls.put(self._clock())
        elif do is Do.GIVE_UP:
            self._renewals.abort()
        elif self._watch is not None:  # else there are no bodies yet
            if do is Do.END and self._watch.exits and (executing := self._watch.executing()):
                _end_process(self._keeping.taken or self._keeping.why, executing)
            self._tell(self._watch, do)

    def _tell(self, watch: LeaseWatch, do: Do) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(tell, watch, do, self._keeping)

    def _renew(self) -> None:
        while (sent := self._calls.get()) is not None:
            self._inbox.put(self._renewals.renew(sent))
        if self._keeping.taken is None:
            self._renewals.release()


def tell(watch: LeaseWatch, do: Do, keeping: Keeping) -> None:
    """Tell an engine what to do, in its own thread."""
    if do is Do.CANCEL:
        watch.lease_lapses(keeping.taken or keeping.why)
    elif do is Do.END:
        watch.lease_over(watch.executing())
    elif do is Do.GO_ON:
        watch.lease_renewed()
    elif do is Do.STOP:
        watch.lease_lost(keeping.taken or keeping.why)


def _end_process(why: str, executing: Sequence[str]) -> NoReturn:
    text = (
        f"greenroom: the lease on the store is over ({why or 'it was not renewed in time'}), and the bodies "
        f"of these runs still execute: {', '.join(executing)}; the process exits with {EXIT_CODE}, so that "
        "they don't execute beside those of the store's next engine\n"
    )
    words = threading.Thread(target=os.write, args=(2, text.encode()), daemon=True)
    words.start()
    words.join(_LAST_WORDS)
    os._exit(EXIT_CODE)
