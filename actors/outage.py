"""Committing to a store that may be down: what the journal does until it is back.

A commit that failed for a passing reason has been tried again by the store itself. If that did not help, the
engine stops granting slots and takes no new runs, and here the batch waits: first for certainty whether it
was committed after all, then, without the new runs in it, for the store to come back.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import trio

from ..persistence.failures import StoreDown
from ..persistence.store import Batch, Store
from ..protocol.errors import Unavailable

logger = logging.getLogger("greenroom")

_LONGEST_PAUSE = 5.0
_SILENT_AFTER = 10.0
"""Seconds after which a commit that hasn't come back counts as an outage."""


def unavailable() -> Unavailable:
    """What a submission is told."""
    return Unavailable("the store can't be written just now, and nothing was changed: try again later")


class Outage:
    """Commits batches through outages. `tell` hears of their begin and end; `meanwhile` is called while one
    lasts, to answer those who can be answered."""

    def __init__(self, store: Store, tell: Callable[[bool], None], meanwhile: Callable[[], None]) -> None:
        self.commits = 0  # that have been made
        self.took = 0.0  # how many seconds the last commit needed
        self.patience = math.inf  # until when a store that is down is waited for, in trio's time
        self._store = store
        self._tell = tell
        self._meanwhile = meanwhile
        self._down = False
        self._pause = 0.0
        self._began = math.inf  # when the commit began that is under way

    @property
    def down(self) -> bool:
        """Whether the store could not be written the last time."""
        return self._down

    @property
    def silent(self) -> bool:
        """Whether a commit is under way that should have come back long ago."""
        return trio.current_time() > self._began + _SILENT_AFTER

    async def commit(self, batch: Batch) -> bool:
        """Commit the batch. False if the store is down and has nothing of it; call again then, with what is
        to be kept. Raises when the store is broken, or patience is at its end."""
        await self._wait()
        began = self._began = trio.current_time()
        try:
            with trio.CancelScope(shield=True):  # a commit must not be left with its outcome unknown
                await self._store.commit(batch)
        except StoreDown as error:
            self._goes_down(error)
            if error.outcome_known:
                return False
            if not await self._is_committed(batch):
                return False
        finally:
            self._began = math.inf
        self.took = trio.current_time() - began
        self._comes_back()
        return True

    async def check(self, nothing: Batch) -> None:
        """See that the engine still has its store, which nobody has written to for a while."""
        try:
            await self._store.check()
        except StoreDown as error:
            await self.wait_after(error, nothing)

    async def wait_after(self, error: StoreDown, nothing: Batch) -> None:
        """Somebody could not read the store: wait until it is back."""
        self._goes_down(error)
        await self.until_back(nothing)

    async def until_back(self, nothing: Batch) -> None:
        """Wait until the store can be written again, which an empty batch finds out, or patience ends."""
        while self._down and trio.current_time() < self.patience:
            await self._wait()
            try:
                with trio.CancelScope(shield=True):
                    await self._store.commit(nothing)
            except StoreDown as error:
                self._pause = min(_LONGEST_PAUSE, self._pause * 2)
                logger.info("%s", error.message)
            else:
                self._comes_back()

    async def _is_committed(self, batch: Batch) -> bool:
        while True:
            await self._wait()
            try:
                return await self._store.committed(batch)
            except StoreDown as error:
                self._goes_down(error)

    async def _wait(self) -> None:
        """Give a store that is down some time before it is asked again."""
        if not self._down:
            return
        self._meanwhile()
        await trio.sleep(self._pause)
        self._meanwhile()

    def _goes_down(self, error: StoreDown) -> None:
        if trio.current_time() >= self.patience:
            raise error
        self._pause = min(_LONGEST_PAUSE, self._pause * 2 or 1.0)
        if not self._down:
            self._down = True
            logger.error("%s; no runs are taken or started until it is back", error.message)
            self._tell(True)

    def _comes_back(self) -> None:
        self.commits += 1
        if self._down:
            self._down = False
            self._pause = 0.0
            logger.warning("the store is back")
            self._tell(False)
