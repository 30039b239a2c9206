"""The lifetime of an executor's process: it drains on a signal, and exits.

The first SIGTERM (or Ctrl-C) drains, the second one stops immediately, and so does a body that raises what
ends the process, such as `SystemExit`. A body that does not end is logged, and ends with the process.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncIterator, Callable

import trio

from ..logs import end_process
from .executor import Executor
from .failures import ProcessEnding

logger = logging.getLogger("greenroom.executor")

_STOP_TIMEOUT = 2.0
"""Seconds from the second signal, or from a failure of the executor, to the exit of the process."""
_ABANDONED = 1.0
"""Seconds from the moment when only abandoned bodies remain to the exit of the process."""


class Process:
    """See the module's docstring. `greet` is called after the signal handlers are installed, and `report`
    with the reason for which the process ends."""

    def __init__(
        self,
        executor: Executor,
        greet: Callable[[], None] = lambda: None,
        report: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._executor = executor
        self._greet = greet
        self._report = report
        self._signal: int | None = None  # the second signal, which stops the process immediately
        self._scope = trio.CancelScope()
        self._failure: BaseException | None = None

    async def run(self) -> int:
        """Execute bodies until a drain has ended, or a body ends the process; returns the exit code. Raises
        the engine's error if it refuses this executor."""
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._handle_signals, signals, nursery)
                nursery.start_soon(self._exit_without_abandoned_bodies)
                nursery.start_soon(self._exit_after_failure)
                self._greet()
                with self._scope:
                    await self._execute()
                nursery.cancel_scope.cancel()
        if isinstance(self._failure, ProcessEnding):
            self._log_failure(self._failure)
        elif self._failure is not None:
            raise self._failure
        logger.info("the executor has ended")
        return self._code()

    async def _execute(self) -> None:
        try:
            await self._executor.run()
        except Exception as error:  # raised in `run`, not in a group
            self._failure = error

    async def _handle_signals(self, signals: AsyncIterator[int], nursery: trio.Nursery) -> None:
        async for number in signals:
            if self._executor.exits_soon and self._signal is None:
                logger.warning("received a second signal: stopping immediately")
                self._signal = number
                self._scope.cancel()
                nursery.start_soon(self._stop)
            else:
                self._executor.exit_soon()

    async def _exit_after_failure(self) -> None:
        """Exit although bodies ignore that they are cancelled: the engine can't reach them any more."""
        await self._executor.failed.wait()
        await trio.sleep(_STOP_TIMEOUT)
        self._failure = self._executor.failure
        assert self._failure is not None, "it has failed"
        self._log_failure(self._failure)
        self._end()

    def _log_failure(self, failure: BaseException) -> None:
        logger.critical("%s", failure, exc_info=failure.__cause__)
        self._report(str(failure))

    async def _stop(self) -> None:
        await trio.sleep(_STOP_TIMEOUT)
        self._end()

    async def _exit_without_abandoned_bodies(self) -> None:
        """Exit if a draining executor has only bodies that the engine has abandoned."""
        while True:
            await self._executor.until_only_abandoned_remain()
            await trio.sleep(_ABANDONED)
            if self._executor.only_abandoned_remain:
                self._end()

    def _end(self) -> None:
        for run in self._executor.remaining:
            logger.error("body of run %s has not ended; exiting without it", run)
        end_process(self._code())

    def _code(self) -> int:
        """0 after a drain, 1 after a failure; else 128 plus the number of the signal, as shells report it."""
        if self._failure is not None:
            return 1
        return 0 if self._signal is None else 128 + self._signal
