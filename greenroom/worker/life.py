"""The lifetime of a worker process: it registers, takes work, and shuts down in order on a signal.

The first SIGTERM (or Ctrl-C) drains: the worker takes no new work, and calls in progress get 30 seconds. The
second signal stops it immediately. A service that cannot be ended is named in the log; it ends with the
process.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncIterator, Callable
from typing import Protocol

import trio

from ..logs import end_process
from ..protocol.errors import GreenroomError
from .calls import Calls
from .presence import Presence

logger = logging.getLogger("greenroom.worker")

DRAIN = 30.0
"""Seconds for calls in progress after the first signal."""
_EXIT_DELAY = 1.0
"""Seconds from the end of the drain to the exit of the process, for calls that end just then."""


class Front(Protocol):
    """The source of the worker's calls: `Push` or `Pull`."""

    async def run(self) -> None:
        """Take and execute work until `stop`; returns when all calls have ended."""

    def stop(self) -> None:
        """Take no new work."""


class Life:
    """The lifetime of a worker. `greet` is called after the signal handlers are installed."""

    def __init__(self, front: Front, presence: Presence, calls: Calls, greet: Callable[[], None]) -> None:
        self._front = front
        self._presence = presence
        self._calls = calls
        self._greet = greet
        self._patience = trio.CancelScope()
        self._stopping = False
        self._signal: int | None = None  # the second signal, which ends the drain
        self._failure: GreenroomError | None = None

    async def run(self) -> int:
        """Work until a signal; returns the exit code. Raises the server's error if it refuses to register
        this worker."""
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._handle_signals, signals, nursery)
                nursery.start_soon(self._keep_registered)
                self._greet()
                with self._patience:
                    await self._front.run()
                nursery.cancel_scope.cancel()
        if self._failure is not None:
            raise self._failure
        logger.info("the worker has ended")
        return self._code()

    async def _keep_registered(self) -> None:
        try:
            await self._presence.run()
        except GreenroomError as error:  # raised above, not in a group
            self._failure = error
            self._patience.cancel()

    async def _handle_signals(self, signals: AsyncIterator[int], nursery: trio.Nursery) -> None:
        async for number in signals:
            if self._stopping:
                logger.warning("received a second signal: stopping immediately")
                self._signal = number
                patience = 0.0
            else:
                self._stopping = True
                logger.info("draining: %d calls in progress have %g s to finish", self._calls.load, DRAIN)
                self._front.stop()
                patience = DRAIN
            self._patience.deadline = trio.current_time() + patience
            nursery.start_soon(self._exit_later, patience)

    async def _exit_later(self, patience: float) -> None:
        """Exit the process if only threads remain, which cannot be ended."""
        await trio.sleep(patience + _EXIT_DELAY)
        for service in self._calls.services:
            logger.error("service %r has not ended; the worker ends without it", service)
        end_process(self._code())

    def _code(self) -> int:
        """0 after an orderly shutdown; else 128 plus the number of the signal, as shells report it."""
        return 0 if self._signal is None else 128 + self._signal
