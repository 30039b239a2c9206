"""Methods of objects that live in trio, for asyncio: the same names, parameters and documentation.

    class Ticket(Facade[core.Ticket]):
        result = method(core.Ticket.result)

`Ticket.result` is then a coroutine function of asyncio with the signature of `core.Ticket.result`, for type
checkers, editors and `inspect` alike, and nothing is written twice.
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
    """Stands in asyncio for an object that lives in trio."""

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
    """A method that calls `function` in trio. `wrap` makes the facade of what it returns."""

    @wraps(function)
    async def call(self: Facade[Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
        if callable(kwargs.get("on_wait")):
            kwargs["on_wait"] = _in_this_loop(cast(OnWait, kwargs["on_wait"]))
        value = await self._portal.call(partial(function, self._original, *args, **kwargs))
        return value if wrap is None else wrap(value, self._portal)

    return call


def look(function: Method[P, T]) -> Method[P, Coroutine[Any, Any, T]]:
    """A method that calls a function which doesn't wait, in the turn of trio in which nothing else changes
    what it looks at."""

    @wraps(function)
    async def call(self: Facade[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def looking() -> T:
            await trio.lowlevel.checkpoint()
            return function(self._original, *args, **kwargs)

        return await self._portal.call(looking)

    return call


def iterating(function: Method[P, AsyncIterator[T]]) -> Method[P, AsyncIterator[T]]:
    """A method that returns an iterator over what an iterator in trio gives, from the call on."""

    @wraps(function)
    def call(self: Facade[Any], /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        # Here and not in trio, which would have to be waited for: it reads a number, and checks arguments.
        return Items(cast("_Source[T]", function(self._original, *args, **kwargs)), self._portal)

    return call


class _Source(Protocol[T]):
    """An iterator of trio that can say what it has at hand."""

    async def __anext__(self) -> T: ...

    def at_hand(self) -> list[T]: ...


class Items(Generic[T]):
    """An iterator of trio, for asyncio. What it has at hand comes across at once, and not one by one."""

    def __init__(self, source: _Source[T], portal: Portal) -> None:
        self._source = source
        self._portal = portal
        self._taken: deque[T] = deque()  # at most as many as the source takes at once
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
        """In trio, while asyncio waits. What is taken is kept here, so that a cancel loses nothing."""
        try:
            self._taken.append(await self._source.__anext__())
        except StopAsyncIteration:
            self._ended = True
        else:
            self._taken.extend(self._source.at_hand())


def _in_this_loop(on_wait: OnWait) -> OnWait:
    """What calls `on_wait` in the asyncio loop that it was given in. Its failure is logged."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    async def tell(waited: float, ahead: int, blockers: list[str]) -> None:
        try:
            told = on_wait(waited, ahead, blockers)
            if isinstance(told, Awaitable):
                await told
        except Exception:
            logger.exception("on_wait failed for a run that has waited for %.1f s", waited)

    def begin(waited: float, ahead: int, blockers: list[str]) -> None:
        task = loop.create_task(tell(waited, ahead, blockers))
        tasks.add(task)  # asyncio keeps no task that nobody else keeps
        task.add_done_callback(tasks.discard)

    def across(waited: float, ahead: int, blockers: list[str]) -> None:
        try:
            loop.call_soon_threadsafe(begin, waited, ahead, blockers)
        except RuntimeError:
            if not loop.is_closed():
                raise
            # The program has ended its loop, and with it what it wanted to be told.

    return across
