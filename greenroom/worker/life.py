"""The life of a worker as a process: it is present, takes work, and ends in order when a signal says so.

The first SIGTERM (or Ctrl-C) drains: nothing new is taken, what is in progress gets 30 seconds. The second
one stops at once. A service that can't be ended is named in the log and left behind with the process.
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
"""Seconds for what is in progress when the worker is told to end."""
_LAST_WORDS = 1.0
"""Seconds from the end of all patience to the end of the process, for what ends only now."""


class Front(Protocol):
    """How work gets to the worker: `Push` or `Pull`."""

    async def run(self) -> None:
        """Take work and do it until told to stop; returns when all of it is done."""

    def stop(self) -> None:
        """Take nothing more."""


class Life:
    """One life of a worker. `greet` is called when it begins, and signals are obeyed."""

    def __init__(self, front: Front, presence: Presence, calls: Calls, greet: Callable[[], None]) -> None:
        self._front = front
        self._presence = presence
        self._calls = calls
        self._greet = greet
        self._patience = trio.CancelScope()
        self._stopping = False
        self._signal: int | None = None  # the second one, which ends the patience
        self._failure: GreenroomError | None = None

    async def run(self) -> int:
        """Work until told to end; returns the exit code. Raises what the server says if it doesn't want this
        worker."""
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._obey, signals, nursery)
                nursery.start_soon(self._be_present)
                self._greet()
                with self._patience:
                    await self._front.run()
                nursery.cancel_scope.cancel()
        if self._failure is not None:
            raise self._failure
        logger.info("the worker has ended")
        return self._code()

    async def _be_present(self) -> None:
        try:
            await self._presence.run()
        except GreenroomError as error:  # raised above, not in a group
            self._failure = error
            self._patience.cancel()

    async def _obey(self, signals: AsyncIterator[int], nursery: trio.Nursery) -> None:
        async for number in signals:
            if self._stopping:
                logger.warning("told to stop a second time: stopping at once")
                self._signal = number
                patience = 0.0
            else:
                self._stopping = True
                logger.info("draining: %d calls in progress have %g s to finish", self._calls.load, DRAIN)
                self._front.stop()
                patience = DRAIN
            self._patience.deadline = trio.current_time() + patience
            nursery.start_soon(self._leave_behind, patience)

    async def _leave_behind(self, patience: float) -> None:
        """End the process when only threads are left, which can't be ended."""
        await trio.sleep(patience + _LAST_WORDS)
        for service in self._calls.services:
            logger.error("service %r has not ended; the worker ends without it", service)
        end_process(self._code())

    def _code(self) -> int:
        """0 for an end in order; that of the signal, as shells have it, for one that was hurried."""
        return 0 if self._signal is None else 128 + self._signal
