"""The committer: commits batches one after the other in its own task, and retries while the store is down.

The store itself retries a commit after a transient error. If all its attempts fail, the store is *down*. The
committer first finds out whether the batch was committed nevertheless. If not, it reports that to the
journal, which keeps what it can of the batch (`machine.py`) and sends that again. There is a pause between
attempts, so that a recovering store is not overloaded.

The journal sends jobs and receives their results as messages, so it never waits.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import msgspec
import trio

from ...persistence.failures import StoreDown
from ...persistence.store import Batch, Store
from ..channel import Channel

logger = logging.getLogger("greenroom")

_LONGEST_PAUSE = 5.0
_SILENT_AFTER = 10.0
"""Seconds after which a commit that has not returned counts as an outage."""


class Write(msgspec.Struct, frozen=True):
    """To the committer: commit this batch. Answered by `Written` or `NotWritten`."""

    batch: Batch


class AwaitStore(msgspec.Struct, frozen=True):
    """To the committer: wait until the store can be written, which it tests by committing an empty batch.

    `error` is set if a read has found that the store is down. Answered by `StoreIsBack` or `StoreIsGivenUp`.
    """

    nothing: Batch
    error: StoreDown | None = None


class Check(msgspec.Struct, frozen=True):
    """To the committer: check the store and the lease. Answered by `StoreIsBack` or `StoreIsGivenUp`."""

    nothing: Batch


class Written(msgspec.Struct, gc=False):
    """From the committer: the batch is committed."""


class NotWritten(msgspec.Struct, gc=False):
    """From the committer: the store is down, and the batch is not committed."""


class WentDown(msgspec.Struct, gc=False):
    """From the committer: the store went down."""


class StoreIsBack(msgspec.Struct, gc=False):
    """From the committer: the store can be written. Sent before `Written` if the store was down."""


class StoreIsGivenUp(msgspec.Struct, gc=False):
    """From the committer: the store is down, and the time to wait for it has expired."""


class CommitFailed(msgspec.Struct):
    """From the committer: it has stopped because of this error, and the engine must stop, too."""

    error: Exception


class Committer:
    """See the module's docstring. `tell` sends the journal a message."""

    def __init__(self, store: Store, tell: Callable[[object], None]) -> None:
        self.commits = 0  # the number of successful commits
        self.took = 0.0  # the duration of the last commit in seconds
        self.patience = math.inf  # when to stop waiting for a store that is down, in trio's time
        self.down = False  # whether the last commit failed
        self._store = store
        self._tell = tell
        self._jobs = Channel()
        self._pause = 0.0
        self._began = math.inf  # when the commit in flight began

    @property
    def silent(self) -> bool:
        """Whether a commit has not returned for a long time."""
        return trio.current_time() > self._began + _SILENT_AFTER

    def send(self, job: Write | AwaitStore | Check) -> None:
        """Start a job. The journal sends one job at a time."""
        self._jobs.send_nowait(job)

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Execute jobs until cancelled, or until one fails with an error that stops the engine."""
        while True:
            job = await self._jobs.receive()
            try:
                await self._do(job)
            except Exception as error:  # the journal raises it, which stops the engine
                self._tell(CommitFailed(error))
                return

    async def _do(self, job: Write | AwaitStore | Check) -> None:
        if isinstance(job, Write):
            self._tell(Written() if await self._commit(job.batch) else NotWritten())
            return
        try:
            if isinstance(job, Check):
                await self._store.check()
            elif job.error is not None:
                self._mark_down(job.error)
        except StoreDown as error:
            self._mark_down(error)
        if not self.down:
            self._tell(StoreIsBack())
        elif not await self._until_back(job.nothing):
            self._tell(StoreIsGivenUp())

    async def _commit(self, batch: Batch) -> bool:
        """Commit a batch; false if the store is down and the batch is not committed."""
        await self._wait()
        began = self._began = trio.current_time()
        try:
            with trio.CancelScope(shield=True):  # the outcome of a commit must be known
                await self._store.commit(batch)
        except StoreDown as error:
            self._mark_down(error)
            if error.outcome_known or not await self._is_committed(batch):
                return False
        finally:
            self._began = math.inf
        self.took = trio.current_time() - began
        self._mark_up()
        return True

    async def _until_back(self, nothing: Batch) -> bool:
        """Wait until the store can be written again; false if `patience` ends first."""
        while self.down and trio.current_time() < self.patience:
            await self._wait()
            try:
                with trio.CancelScope(shield=True):
                    await self._store.commit(nothing)
            except StoreDown as error:
                self._pause = min(_LONGEST_PAUSE, self._pause * 2)
                logger.info("%s", error.message)
            else:
                self._mark_up()
                return True
        return False

    async def _is_committed(self, batch: Batch) -> bool:
        while True:
            await self._wait()
            try:
                return await self._store.committed(batch)
            except StoreDown as error:
                self._mark_down(error)

    async def _wait(self) -> None:
        """Pause before the next attempt if the store is down."""
        if self.down:
            await trio.sleep(self._pause)

    def _mark_down(self, error: StoreDown) -> None:
        if trio.current_time() >= self.patience:
            raise error
        self._pause = min(_LONGEST_PAUSE, self._pause * 2 or 1.0)
        if not self.down:
            self.down = True
            logger.error("%s; no runs are accepted or started until the store is back", error.message)
            self._tell(WentDown())

    def _mark_up(self) -> None:
        self.commits += 1
        if self.down:
            self.down = False
            self._pause = 0.0
            logger.warning("the store is back")
            self._tell(StoreIsBack())
