"""Runs a trio context manager in a thread, for the duration of an asyncio block: `opening`.

Why a thread, and not trio's guest mode: a guest does not run while its host loop is blocked, and stops
halfway if the host stops. An engine must shut down in order and renew its lease. A thread avoids both
problems, and each library sees only one event loop in its thread.

The thread starts with the block and has ended when the block has been left, for any reason: a cancel, an
error, Ctrl-C. If the program destroys the block instead (it stops its loop and closes it), the engine shuts
down immediately, and the exit of the interpreter waits for that.

The block belongs to the process that entered it. A forked child has no such thread: its exit does not wait.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial, wraps
from typing import Generic, ParamSpec, TypeVar

import trio

from ..actors.aio.portal import Portal
from ..protocol.errors import Unavailable

P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")


def opening(
    open: Callable[P, AbstractAsyncContextManager[T]], facade: Callable[[T, Portal], U], what: str
) -> Callable[P, AbstractAsyncContextManager[U]]:
    """Make an asyncio version of `open`, with the same parameters. `facade` wraps the yielded object."""

    @wraps(open)
    def opened(*args: P.args, **kwargs: P.kwargs) -> AbstractAsyncContextManager[U]:
        return in_thread(partial(open, *args, **kwargs), facade, what)

    return opened


@asynccontextmanager
async def in_thread(
    open: Callable[[], AbstractAsyncContextManager[T]],
    facade: Callable[[T, Portal], U],
    what: str,
    clock: trio.abc.Clock | None = None,
) -> AsyncIterator[U]:
    """Open a trio context manager while the block lasts. Leaving the block leaves it in trio and waits for
    that. A cancel of the block, also while it is being left, is passed on to trio."""
    block = _Block(open, what, clock)
    error: BaseException | None = None
    try:
        value, portal = await block.begin()
        yield facade(value, portal)
    except GeneratorExit:  # the block is destroyed: no loop remains in which to wait
        block.leave(immediately=True)
        raise
    except BaseException as raised:  # raised again below, after trio has ended
        error = raised
    try:
        error = await block.end(error)
        if error is not None:
            raise error
    finally:
        del error  # it refers to this frame; both would wait for the garbage collector


class _Block(Generic[T]):
    """The trio block and its thread. The methods run in asyncio, unless marked otherwise."""

    def __init__(
        self, open: Callable[[], AbstractAsyncContextManager[T]], what: str, clock: trio.abc.Clock | None
    ) -> None:
        self._open = open
        self._what = what
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._owner = asyncio.current_task()
        self._waiter: asyncio.Future[None] | None = None
        self._opened: tuple[T, Portal] | None = None
        self._ended = False
        self._failure: BaseException | None = None
        self._left = False
        self._process = os.getpid()
        self._interrupted = False
        self._token: trio.lowlevel.TrioToken | None = None
        self._leaving = trio.Event()
        self._scope = trio.CancelScope()
        self._immediately = False
        self._thread = threading.Thread(target=self._run, name=f"greenroom {what}", daemon=True)

    async def begin(self) -> tuple[T, Portal]:
        """Start the thread, and wait until the block is open."""
        atexit.register(self._at_exit)
        self._thread.start()
        while self._opened is None and not self._ended:
            await self._wait_for_thread()
        if self._opened is None:
            assert self._failure is not None, "a block that did not open has failed or was cancelled"
            raise self._failure
        return self._opened

    async def end(self, error: BaseException | None) -> BaseException | None:
        """Leave the block and wait until the thread has ended. Returns the error to raise, as trio would: the
        failure of the opened object, else the error that ended this block."""
        self._left = True
        self.leave(immediately=isinstance(error, asyncio.CancelledError))
        while not self._ended:
            try:
                await self._wait_for_thread()
            except asyncio.CancelledError as raised:
                error = raised
                self.leave(immediately=True)
            except GeneratorExit:
                self.leave(immediately=True)
                raise
        self._thread.join()  # it has made its last call
        atexit.unregister(self._at_exit)
        if self._interrupted and self._owner is not None:
            self._owner.uncancel()
        return self._failure or error

    def leave(self, *, immediately: bool) -> None:
        """Leave the block in trio; `immediately` cancels it. Can be called from any thread."""
        self._immediately = self._immediately or immediately
        if self._has_forked():
            return
        if self._token is None:
            return  # trio is still starting, and will check `_immediately`
        try:
            self._token.run_sync_soon(self._leave)
        except trio.RunFinishedError:
            return  # the block has already been left

    async def _wait_for_thread(self) -> None:
        self._waiter = self._loop.create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _thread_ended(self) -> None:
        self._ended = True
        self._wake()

    def _interrupt(self) -> None:
        """The opened object is failing: cancel the asyncio block."""
        if not self._left and self._owner is not None:
            self._interrupted = self._owner.cancel()

    def _at_exit(self) -> None:
        """The interpreter exits, and the block was not left."""
        if not self._has_forked():
            self.leave(immediately=True)
            self._thread.join()

    def _has_forked(self) -> bool:
        """Whether this is a forked child of the process that entered the block."""
        return os.getpid() != self._process

    # In the thread.

    def _run(self) -> None:
        try:
            trio.run(self._live, clock=self._clock)
        except BaseException as error:
            self._failure = error
        self._call_in_loop(self._thread_ended)

    async def _live(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as calls:
            portal = Portal(calls, self._closed_error)
            with self._scope:
                if self._immediately:
                    self._scope.cancel()
                try:
                    async with self._open() as value:
                        self._opened = (value, portal)
                        self._call_in_loop(self._wake)
                        await self._wait_for_leave()
                except trio.Cancelled:
                    raise
                except BaseException as error:  # raised by the block in asyncio
                    self._failure = error
            await portal.aclose()

    async def _wait_for_leave(self) -> None:
        try:
            await self._leaving.wait()
        except trio.Cancelled:
            self._call_in_loop(self._interrupt)
            raise

    def _leave(self) -> None:
        self._leaving.set()
        if self._immediately:
            self._scope.cancel()

    def _closed_error(self) -> Exception:
        return Unavailable(f"the {self._what} is closed")

    def _call_in_loop(self, what: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(what)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            # The program has closed its loop and no longer waits.
