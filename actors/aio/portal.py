"""Calls from asyncio into trio: `Portal`.

Trio and asyncio each have a thread of their own. A call is a coroutine in asyncio that waits for a task in
trio, and what it says to that task, or the task to it, goes through the one thread-safe door that each loop
has (`run_sync_soon`, `call_soon_threadsafe`). Nothing is queued here: a call that waits is a coroutine of the
program that waits.

What a caller can rely on: when a call returns or raises, also because it was cancelled, no task of it is left
in trio. It raises what the function raises, or `asyncio.CancelledError`, and never `trio.Cancelled`.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Generic, TypeVar, cast

import trio

T = TypeVar("T")


class Portal:
    """The way into a nursery of trio, for as long as that is open. Made in trio; used from any asyncio loop.

    `gone` makes what a call raises when the portal has been closed before it or during it.
    """

    def __init__(self, nursery: trio.Nursery, gone: Callable[[], Exception]) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._nursery = nursery
        self._gone = gone
        self._closed = False
        self._calls: dict[_Call[Any], None] = {}
        self._idle = trio.lowlevel.ParkingLot()

    async def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Call a function in trio, with the caller's context variables, and wait for its end.

        A cancel of the calling task cancels the function, and is raised when the function has ended, whatever
        came of it: as everywhere in asyncio, a result that comes at the same time is lost.
        """
        call = _Call(function, self._token)
        try:
            self._token.run_sync_soon(self._begin, call)
        except trio.RunFinishedError:
            raise self._gone() from None
        return await call.wait()

    @asynccontextmanager
    async def entered(self, manager: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
        """A context manager of trio around a block of asyncio. Its two halves are tasks of their own, so it
        must keep neither a nursery nor a cancel scope open between them."""
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
            if entered:  # maybe by a call that was cancelled too late
                swallowed = bool(await self.call(partial(leave, error)))
            if not swallowed:
                raise
            return
        await self.call(partial(leave, None))

    async def aclose(self) -> None:
        """Take no more calls, end those that wait, and wait for their end. To be called in trio."""
        self._closed = True
        for call in self._calls:
            call.scope.cancel()
        with trio.CancelScope(shield=True):
            while self._calls:
                await self._idle.park()

    def _begin(self, call: _Call[Any]) -> None:
        if self._closed:
            call.end(error=self._gone())
            return
        self._calls[call] = None
        call.context.run(self._nursery.start_soon, self._carry_out, call)

    async def _carry_out(self, call: _Call[Any]) -> None:
        try:
            await call.carry_out(self._gone)
        finally:
            del self._calls[call]
            if not self._calls:
                self._idle.unpark_all()


class _Call(Generic[T]):
    """One call: made and awaited in asyncio, carried out in trio."""

    def __init__(self, function: Callable[[], Awaitable[T]], token: trio.lowlevel.TrioToken) -> None:
        # Shielded: whoever ends the portal ends it by this scope, and nobody else does but the caller.
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
        """In asyncio: the end of the call."""
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
            # An error refers to this frame: without these the two would wait for the garbage collector.
            cancelled = self._error = None

    async def carry_out(self, gone: Callable[[], Exception]) -> None:
        """In trio: the call itself. What it raises belongs to the caller."""
        value: T | None = None
        error: BaseException | None = None
        try:
            with self.scope:
                value = await self._function()
            if self.scope.cancelled_caught:
                error = gone()  # a caller that has cancelled the call raises that instead
        except BaseException as raised:
            error = raised
        self.end(value, error)

    def end(self, value: T | None = None, error: BaseException | None = None) -> None:
        """In trio: tell the caller."""
        self._value, self._error = value, error
        try:
            self._loop.call_soon_threadsafe(self._finish)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            # The loop ended in the middle of the call, so nobody waits for it any more.

    def _finish(self) -> None:
        self._ended = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _cancel(self) -> None:
        try:
            self._token.run_sync_soon(self.scope.cancel)
        except trio.RunFinishedError:
            return  # the call has ended with trio, and that is on its way here
