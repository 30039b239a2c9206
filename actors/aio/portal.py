"""Calls from asyncio into trio: `Portal`.

Trio and asyncio run in different threads. A call is an asyncio coroutine that waits for a trio task. They
communicate only through the thread-safe functions of the loops (`run_sync_soon`, `call_soon_threadsafe`).
Calls are not queued here.

Guarantees: when a call returns or raises, also after a cancel, no trio task of it remains. It raises what the
function raises, or `asyncio.CancelledError`, but never `trio.Cancelled`.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Generic, TypeVar, cast

import trio

from ...protocol.errors import Unavailable

T = TypeVar("T")


class Portal:
    """Runs functions in a trio nursery, while that is open. Created in trio; used from any asyncio loop.

    `closed_error` creates the exception for calls that begin or wait after the portal was closed.
    """

    def __init__(self, nursery: trio.Nursery, closed_error: Callable[[], Exception]) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._nursery = nursery
        self._closed_error = closed_error
        self._closed = False
        self._process = os.getpid()
        self._calls: dict[_Call[Any], None] = {}
        self._idle = trio.lowlevel.ParkingLot()

    async def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Call a function in trio, with the caller's context variables, and wait for its end.

        A cancel of the calling task cancels the function, and is raised when the function has ended. As
        usual in asyncio, a result that arrives at the same time is lost.
        """
        if os.getpid() != self._process:  # a forked child has no trio thread that could reply
            raise Unavailable(
                f"this call belongs to process {self._process}, which has forked: open an engine or a client "
                "in each process"
            )
        call = _Call(function, self._token)
        try:
            self._token.run_sync_soon(self._begin, call)
        except trio.RunFinishedError:
            raise self._closed_error() from None
        return await call.wait()

    @asynccontextmanager
    async def entered(self, manager: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
        """Enter a trio context manager for a block of asyncio code. Entering and leaving run in different
        trio tasks, so the manager must not keep a nursery or a cancel scope open in between."""
        entered: list[T] = []

        async def enter() -> None:
            entered.append(await manager.__aenter__())

        async def leave(error: BaseException | None) -> bool | None:
            kind, traceback = (None, None) if error is None else (type(error), error.__traceback__)
            return await manager.__aexit__(kind, error, traceback)

        try:
            await self.call(enter)
            yield entered[0]
        except BaseException as error:
            swallowed = False
            if entered:  # possible even if the call that enters was cancelled, but too late
                swallowed = bool(await self.call(partial(leave, error)))
            if not swallowed:
                raise
            return
        await self.call(partial(leave, None))

    async def aclose(self) -> None:
        """Refuse new calls, cancel the waiting ones, and wait for their end. Call it in trio."""
        self._closed = True
        for call in self._calls:
            call.scope.cancel()
        with trio.CancelScope(shield=True):
            while self._calls:
                await self._idle.park()

    def _begin(self, call: _Call[Any]) -> None:
        if self._closed:
            call.end(error=self._closed_error())
            return
        self._calls[call] = None
        call.context.run(self._nursery.start_soon, self._execute, call)

    @trio.lowlevel.enable_ki_protection
    async def _execute(self, call: _Call[Any]) -> None:
        try:
            await call.execute(self._closed_error)
        finally:
            del self._calls[call]
            if not self._calls:
                self._idle.unpark_all()


class _Call(Generic[T]):
    """One call: created and awaited in asyncio, executed in trio."""

    def __init__(self, function: Callable[[], Awaitable[T]], token: trio.lowlevel.TrioToken) -> None:
        # Shielded: only the portal and the caller cancel the call, both through this scope.
        self.scope = trio.CancelScope(shield=True)
        self.context = contextvars.copy_context()
        self._function = function
        self._token = token
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self._value: T | None = None
        self._error: BaseException | None = None

    async def wait(self) -> T:
        """In asyncio: wait for the end of the call."""
        cancelled: asyncio.CancelledError | None = None
        try:
            while not self._ended:
                self._waiter = self._loop.create_future()
                try:
                    await self._waiter
                except asyncio.CancelledError as error:
                    if cancelled is None:
                        self._cancel()
                    cancelled = cancelled or error
                except GeneratorExit:  # the task is destroyed, because its loop has been closed
                    self._cancel()
                    raise
            if cancelled is not None:
                raise cancelled from self._error
            if self._error is not None:
                raise self._error
            return cast(T, self._value)
        finally:
            # An exception refers to this frame: without this, both would wait for the garbage collector.
            cancelled = self._error = None

    async def execute(self, closed_error: Callable[[], Exception]) -> None:
        """In trio: execute the function. Its exception belongs to the caller."""
        value: T | None = None
        error: BaseException | None = None
        try:
            with self.scope:
                value = await self._function()
            if self.scope.cancelled_caught:
                error = closed_error()  # a caller that has cancelled the call raises that instead
        except BaseException as raised:
            error = raised
        self.end(value, error)

    def end(self, value: T | None = None, error: BaseException | None = None) -> None:
        """In trio: pass the outcome to the caller."""
        self._value, self._error = value, error
        try:
            self._loop.call_soon_threadsafe(self._finish)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            # The loop ended during the call, so the caller no longer waits.

    def _finish(self) -> None:
        self._ended = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _cancel(self) -> None:
        try:
            self._token.run_sync_soon(self.scope.cancel)
        except trio.RunFinishedError:
            return  # the call has ended with trio, and its outcome is in flight
