"""The writer of a SQLite database: a plain connection for commits, and the one thread that uses it.

A commit is a few prepared statements. SQLAlchemy, its pool and a thread pool would cost more than these, so
commits bypass them: one hand-over to the thread, and one wake-up of the waiting task. Opening, migrating,
pruning and reading use `persistence/database.py`, which also admits one writer at a time. Commits to servers
use it, too.
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
    """Transactions on a connection of the driver, which `connect` creates on demand. All methods block.

    A failed transaction closes the connection, so the next one has a new session. A `shared` connection, to a
    database in memory, is only rolled back.
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
        """Call the function with a cursor in one transaction, which is rolled back if the function raises.

        `then` is called after the commit. Errors of the database become `StoreDown` or `StoreBroken`.
        """
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
        """Close the connection. A later transaction connects again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _drop(self) -> None:
        if self._connection is None:
            return
        with suppress(sqlite3.Error):  # the first error is the one to report
            self._connection.rollback()
            if not self._shared:
                self.close()


class WriterThread:
    """A thread that executes calls in order."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    async def call(self, function: Callable[[], T]) -> T:
        """Call a function in the thread. If this raises `Cancelled`, the function was not called; once it is
        queued, a cancel waits for its end."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self._calls.put((function, trio.lowlevel.current_task(), trio.lowlevel.current_trio_token()))
        result: T = await trio.lowlevel.wait_task_rescheduled(_keep_waiting)
        return result

    def stop(self) -> None:
        """Stop the thread after the queued calls. Blocks until then."""
        self._calls.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            function, task, token = call
            result = outcome.capture(function)
            token.run_sync_soon(trio.lowlevel.reschedule, task, result)
            del call, function, task, token, result  # keep nothing alive until the next call


def _keep_waiting(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED
