"""Commits batches, one after the other, in a task of its own, and retries while the store is down.

A commit that failed for a passing reason has been tried again by the store itself. If that did not help, the
store is *down*. First it is found out whether the batch was committed after all. If not, the journal is told,
which keeps what it can of the batch (`machine.py`) and sends that again. Between two tries there is a
pause, so that a store that comes back is not overrun.

The journal sends jobs and hears what became of them as messages; so it never waits.
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
"""Seconds after which a commit that hasn't come back counts as an outage."""


class Write(msgspec.Struct, frozen=True):
    """To the committer: commit this batch. Answered by `Written` or `NotWritten`."""

    batch: Batch


class AwaitStore(msgspec.Struct, frozen=True):
    """To the committer: the store is down, perhaps because of this error; wait until it can be written, which
    an empty batch finds out. Answered by `StoreIsBack`, or by `StoreIsGivenUp`."""

    nothing: Batch
    error: StoreDown | None = None


class Check(msgspec.Struct, frozen=True):
    """To the committer: see that the engine still has its store. Answered by `StoreIsBack`, or by
    `StoreIsGivenUp`."""

    nothing: Batch


class Written(msgspec.Struct, gc=False):
    """From the committer: the batch is committed."""


class NotWritten(msgspec.Struct, gc=False):
    """From the committer: the store is down, and has nothing of the batch."""


class WentDown(msgspec.Struct, gc=False):
    """From the committer: the store can't be written."""


class StoreIsBack(msgspec.Struct, gc=False):
    """From the committer: the store can be written. Comes before `Written` when the store was down."""


class StoreIsGivenUp(msgspec.Struct, gc=False):
    """From the committer: the store is down, and not waited for any longer."""


class CommitFailed(msgspec.Struct):
    """From the committer: it can't go on, and so the engine can't."""

    error: Exception


class Committer:
    """See the module's text. `tell` tells the journal."""

    def __init__(self, store: Store, tell: Callable[[object], None]) -> None:
        self.commits = 0  # that have been made
        self.took = 0.0  # how many seconds the last commit needed
        self.patience = math.inf  # until when a store that is down is waited for, in trio's time
        self.down = False  # whether the store could not be written the last time
        self._store = store
        self._tell = tell
        self._jobs = Channel()
        self._pause = 0.0
        self._began = math.inf  # when the commit began that is under way

    @property
    def silent(self) -> bool:
        """Whether a commit is under way that should have come back long ago."""
        return trio.current_time() > self._began + _SILENT_AFTER

    def send(self, job: Write | AwaitStore | Check) -> None:
        """Have something done. The journal sends one job at a time."""
        self._jobs.send_nowait(job)

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Work until cancelled, or until nothing can be committed any more."""
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
                self._goes_down(job.error)
        except StoreDown as error:
            self._goes_down(error)
        if not self.down:
            self._tell(StoreIsBack())
        elif not await self._until_back(job.nothing):
            self._tell(StoreIsGivenUp())

    async def _commit(self, batch: Batch) -> bool:
        """Whether the batch is committed; else the store is down and has nothing of it."""
        await self._wait()
        began = self._began = trio.current_time()
        try:
            with trio.CancelScope(shield=True):  # a commit must not be left with its outcome unknown
                await self._store.commit(batch)
        except StoreDown as error:
            self._goes_down(error)
            if error.outcome_known or not await self._is_committed(batch):
                return False
        finally:
            self._began = math.inf
        self.took = trio.current_time() - began
        self._comes_back()
        return True

    async def _until_back(self, nothing: Batch) -> bool:
        """Wait until the store can be written again, or patience ends; whether it can be written."""
        while self.down and trio.current_time() < self.patience:
            await self._wait()
            try:
                with trio.CancelScope(shield=True):
                    await self._store.commit(nothing)
            except StoreDown as error:
                self._pause = min(_LONGEST_PAUSE, self._pause * 2)
                logger.info("%s", error.message)
            else:
                self._comes_back()
                return True
        return False

    async def _is_committed(self, batch: Batch) -> bool:
        while True:
            await self._wait()
            try:
                return await self._store.committed(batch)
            except StoreDown as error:
                self._goes_down(error)

    async def _wait(self) -> None:
        """Give a store that is down some time before it is asked again."""
        if self.down:
            await trio.sleep(self._pause)

    def _goes_down(self, error: StoreDown) -> None:
        if trio.current_time() >= self.patience:
            raise error
        self._pause = min(_LONGEST_PAUSE, self._pause * 2 or 1.0)
        if not self.down:
            self.down = True
            logger.error("%s; no runs are taken or started until it is back", error.message)
            self._tell(WentDown())

    def _comes_back(self) -> None:
        self.commits += 1
        if self.down:
            self.down = False
            self._pause = 0.0
            logger.warning("the store is back")
            self._tell(StoreIsBack())
