"""The writer of a SQLite database: a plain connection for commits, and the one thread that uses it.

A commit is a handful of prepared statements. SQLAlchemy, its pool and a pool of threads would cost more than
those, so commits go past them: one hand-over to the thread, and one wake-up of the task that waits. Opening,
migrating, pruning and reading go through `persistence/database.py`, which also lets only one writer in at a
time; so do the commits to servers.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

import outcome
import trio

from .drivers import BEGIN
from .failures import failure
from .filewatch import FileWatch

T = TypeVar("T")

_BEGIN = "; ".join(BEGIN["sqlite", False])
_Call = tuple[Callable[[], Any], trio.lowlevel.Task, trio.lowlevel.TrioToken]


class PlainConnection:
    """Transactions on a connection of the driver, which `connect` makes when it is needed. All of it blocks.

    An attempt that fails closes the connection, so that the next one has a session of its own. Where the
    connection is `shared`, because the whole database is gone with it, it is only rolled back.
    """

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        store: str,
        files: FileWatch | None,
        *,
        shared: bool,
    ) -> None:
        self._connect = connect
        self._store = store
        self._files = files
        self._shared = shared
        self._connection: sqlite3.Connection | None = None

    def transaction(self, fn: Callable[[Any], T], then: Callable[[], object] | None) -> T:
        """Call the function with a cursor: begun before, committed after it, rolled back if it raises. `then`
        is called once it is committed. What the database raises leaves as `StoreDown` or `StoreBroken`."""
        committing = False
        files = self._files
        try:
            if files is not None:
                files.check()
            connection = self._connection
            if connection is None:
                connection = self._connection = self._connect()
            cursor = connection.cursor()
            cursor.execute(_BEGIN)
            result = fn(cursor)
            committing = True
            connection.commit()
            if files is not None:
                files.check(outcome_known=False)
            if then is not None:
                then()
            return result
        except BaseException as error:
            self._drop()
            failed = failure(error, self._store, committing=committing)
            if failed is None:
                raise
            raise failed from error

    def close(self) -> None:
        """Close the connection. A later transaction makes another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _drop(self) -> None:
        if self._connection is None:
            return
        with suppress(sqlite3.Error):  # the error that brought us here is the one to tell of
            self._connection.rollback()
            if not self._shared:
                self.close()


class WriterThread:
    """A thread that makes calls in the order in which they were handed over."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    async def call(self, function: Callable[[], T]) -> T:
        """Make a call there. If this raises `Cancelled`, it was not made; once handed over, a cancel waits
        for its end."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self._calls.put((function, trio.lowlevel.current_task(), trio.lowlevel.current_trio_token()))
        result: T = await trio.lowlevel.wait_task_rescheduled(_keep_waiting)
        return result

    def stop(self) -> None:
        """End, once what was handed over is done. Blocks until then."""
        self._calls.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            function, task, token = call
            result = outcome.capture(function)
            token.run_sync_soon(trio.lowlevel.reschedule, task, result)
            del call, function, task, token, result  # nothing is kept alive until the next call


def _keep_waiting(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED
