"""Asyncio methods for objects that live in trio, with the same names, parameters and documentation.

    class Ticket(Facade[core.Ticket]):
        result = method(core.Ticket.result)

`Ticket.result` is then an asyncio coroutine function with the signature of `core.Ticket.result`, for type
checkers, editors and `inspect`. Nothing has to be written twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

import trio

from ...protocol.submission import OnWait
from .portal import Portal

logger = logging.getLogger("greenroom")

S_co = TypeVar("S_co", covariant=True)
T = TypeVar("T")
U = TypeVar("U")
P = ParamSpec("P")

Method = Callable[Concatenate[Any, P], T]


class Facade(Generic[S_co]):
    """An asyncio object that represents an object in trio."""

    def __init__(self, original: S_co, portal: Portal) -> None:
        self._original = original
        self._portal = portal


@overload
def method(function: Method[P, Coroutine[Any, Any, T]]) -> Method[P, Coroutine[Any, Any, T]]: ...


@overload
def method(
    function: Method[P, Coroutine[Any, Any, T]], wrap: Callable[[T, Portal], U]
) -> Method[P, Coroutine[Any, Any, U]]: ...


def method(
    function: Method[P, Coroutine[Any, Any, T]], wrap: Callable[[T, Portal], Any] | None = None
) -> Method[P, Coroutine[Any, Any, Any]]:
    """A method that calls `function` in trio. `wrap` creates a facade for the result."""

    @wraps(function)
    async def call(self: Facade[Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
        if callable(kwargs.get("on_wait")):
            kwargs["on_wait"] = in_current_loop(cast(OnWait, kwargs["on_wait"]))
        value = await self._portal.call(partial(function, self._original, *args, **kwargs))
        return value if wrap is None else wrap(value, self._portal)

    return call


def sync_method(function: Method[P, T]) -> Method[P, Coroutine[Any, Any, T]]:
    """A method that calls a synchronous function in trio's thread, so that no other task of trio changes the
    state that it reads."""

    @wraps(function)
    async def call(self: Facade[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def read() -> T:
            await trio.lowlevel.checkpoint()
            return function(self._original, *args, **kwargs)

        return await self._portal.call(read)

    return call


def iterating(function: Method[P, AsyncIterator[T]]) -> Method[P, AsyncIterator[T]]:
    """A method that returns an asyncio iterator over the items of a trio iterator, from the call on."""

    @wraps(function)
    def call(self: Facade[Any], /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        # Called here, because a call in trio would have to be awaited; it only checks arguments.
        return Items(cast("_Source[T]", function(self._original, *args, **kwargs)), self._portal)

    return call


class _Source(Protocol[T]):
    """A trio iterator that can return the items that are available without waiting."""

    async def __anext__(self) -> T: ...

    def at_hand(self) -> list[T]: ...


class Items(Generic[T]):
    """An asyncio iterator over a trio iterator. Available items are transferred together."""

    def __init__(self, source: _Source[T], portal: Portal) -> None:
        self._source = source
        self._portal = portal
        self._taken: deque[T] = deque()  # at most as many items as the source returns in one call
        self._ended = False

    def __aiter__(self) -> Items[T]:
        return self

    async def __anext__(self) -> T:
        while not self._taken:
            if self._ended:
                raise StopAsyncIteration
            await self._portal.call(self._take)
        return self._taken.popleft()

    async def _take(self) -> None:
        """In trio, while asyncio waits. Items are stored in this object, so a cancel loses none."""
        try:
            self._taken.append(await self._source.__anext__())
        except StopAsyncIteration:
            self._ended = True
        else:
            self._taken.extend(self._source.at_hand())


def in_current_loop(on_wait: OnWait) -> OnWait:
    """Make `on_wait` run in the current asyncio loop. Its failure is logged."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    async def call(waited: float, ahead: int, blockers: list[str]) -> None:
        try:
            result = on_wait(waited, ahead, blockers)
            if isinstance(result, Awaitable):
                await result
        except Exception:
            logger.exception("on_wait failed for a run that has waited for %.1f s", waited)

    def begin(waited: float, ahead: int, blockers: list[str]) -> None:
        task = loop.create_task(call(waited, ahead, blockers))
        tasks.add(task)  # asyncio keeps only weak references to tasks
        task.add_done_callback(tasks.discard)

    def from_trio(waited: float, ahead: int, blockers: list[str]) -> None:
        try:
            loop.call_soon_threadsafe(begin, waited, ahead, blockers)
        except RuntimeError:
            if not loop.is_closed():
                raise
            # The program has closed its loop and no longer needs the notice.

    return from_trio
