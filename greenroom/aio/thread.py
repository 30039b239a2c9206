"""A block of trio in a thread of its own, held open by a block of asyncio: `opening`.

Why a thread, and not trio as a guest of the asyncio loop: a guest stands still while its host is blocked, and
stops in the middle where its host stops. An engine must end in order, and renew its lease. A thread does
neither of the two, and every library sees one loop only in its thread.

The thread begins with the block and has ended when the block has been left, whatever ends it: a cancel, an
error, Ctrl-C. Where a program destroys the block instead (it stops its loop in the middle and closes it), the
engine is left at once, and the end of the interpreter waits for it.
"""

from __future__ import annotations

import asyncio
import atexit
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
    """What opens the same for asyncio, with the same parameters. `facade` stands for what trio gives."""

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
    """Open it in trio for as long as the block lasts. Leaving the block leaves it in trio and waits for that.
    A cancel of the block, or while it is being left, is a cancel there."""
    block = _Block(open, what, clock)
    error: BaseException | None = None
    try:
        value, portal = await block.begin()
        yield facade(value, portal)
    except GeneratorExit:  # the block is destroyed: there is no loop any more that could wait
        block.leave(at_once=True)
        raise
    except BaseException as raised:  # it is raised again below, when trio has ended
        error = raised
    try:
        error = await block.end(error)
        if error is not None:
            raise error
    finally:
        del error  # it refers to this frame, which would wait for the garbage collector


class _Block(Generic[T]):
    """The block in trio, and the thread it is in. The methods are for asyncio but where it is said."""

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
        self._interrupted = False
        self._token: trio.lowlevel.TrioToken | None = None
        self._leaving = trio.Event()
        self._scope = trio.CancelScope()
        self._at_once = False
        self._thread = threading.Thread(target=self._run, name=f"greenroom {what}", daemon=True)

    async def begin(self) -> tuple[T, Portal]:
        """Begin the thread, and wait until the block is open."""
        atexit.register(self._at_exit)
        self._thread.start()
        while self._opened is None and not self._ended:
            await self._news()
        if self._opened is None:
            assert self._failure is not None, "what isn't opened has failed, or was cancelled"
            raise self._failure
        return self._opened

    async def end(self, error: BaseException | None) -> BaseException | None:
        """Leave the block and wait until the thread has ended. Returns what comes out, as in trio: a failure
        of what was open, or else what ended this block."""
        self._left = True
        self.leave(at_once=isinstance(error, asyncio.CancelledError))
        while not self._ended:
            try:
                await self._news()
            except asyncio.CancelledError as raised:
                error = raised
                self.leave(at_once=True)
            except GeneratorExit:
                self.leave(at_once=True)
                raise
        self._thread.join()  # it has said its last word
        atexit.unregister(self._at_exit)
        if self._interrupted and self._owner is not None:
            self._owner.uncancel()
        return self._failure or error

    def leave(self, *, at_once: bool) -> None:
        """Have the block left in trio; `at_once` cancels it. From any thread."""
        self._at_once = self._at_once or at_once
        if self._token is None:
            return  # trio begins only now, and looks for this
        try:
            self._token.run_sync_soon(self._leave)
        except trio.RunFinishedError:
            return  # it has been left

    async def _news(self) -> None:
        self._waiter = self._loop.create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _has_ended(self) -> None:
        self._ended = True
        self._wake()

    def _interrupt(self) -> None:
        """What is open is failing: don't let the block go on without it."""
        if not self._left and self._owner is not None:
            self._interrupted = self._owner.cancel()

    def _at_exit(self) -> None:
        """The interpreter ends, and nobody has left the block."""
        self.leave(at_once=True)
        self._thread.join()

    # In the thread.

    def _run(self) -> None:
        try:
            trio.run(self._live, clock=self._clock)
        except BaseException as error:
            self._failure = error
        self._tell(self._has_ended)

    async def _live(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as calls:
            portal = Portal(calls, self._gone)
            with self._scope:
                if self._at_once:
                    self._scope.cancel()
                try:
                    async with self._open() as value:
                        self._opened = (value, portal)
                        self._tell(self._wake)
                        await self._wait_for_leave()
                except trio.Cancelled:
                    raise
                except BaseException as error:  # it comes out of the block in asyncio
                    self._failure = error
            await portal.aclose()

    async def _wait_for_leave(self) -> None:
        try:
            await self._leaving.wait()
        except trio.Cancelled:
            self._tell(self._interrupt)
            raise

    def _leave(self) -> None:
        self._leaving.set()
        if self._at_once:
            self._scope.cancel()

    def _gone(self) -> Exception:
        return Unavailable(f"the {self._what} has been left")

    def _tell(self, what: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(what)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            # The program has ended its loop, and doesn't wait for anything any more.
