"""One test for each way to use an engine: embedded, through a client and through a synchronous one, in trio
and in asyncio.

    on_each = everywhere(JOBS)

    @on_each
    async def test_a_ticket_gives_the_result(engine: RunEngine): ...

Time is mock time in all. In asyncio the test is a task of a real loop, and trio is in its own thread on a
clock that stands still while either of them has something to do, and then jumps to the next deadline in trio.
Threads that block know nothing of mock time: for the synchronous client it is only faster than the real one.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import pytest
import sniffio
import trio
from trio.testing import MockClock

import greenroom.aio
from greenroom import Jobs
from greenroom.actors.aio.portal import Portal
from greenroom.aio.thread import in_thread

from ..support import open_engine, use_node
from .blocking import RATE, synchronous_client
from .network import network

T = TypeVar("T")
Open = Callable[[Jobs], AbstractAsyncContextManager[Any]]
Test = Callable[..., Awaitable[Any]]


@asynccontextmanager
async def _client(jobs: Jobs, *, follow: bool) -> AsyncIterator[Any]:
    async with network(jobs) as (net, _), net.client(follow=follow) as client:
        yield client


@asynccontextmanager
async def _client_of_a_follower(jobs: Jobs) -> AsyncIterator[Any]:
    use_node("follower")
    try:
        async with _client(jobs, follow=True) as client:
            yield client
    finally:
        use_node("engine")


def in_trio(open: Open, jobs: Jobs, test: Test, *, rate: float = 0) -> None:
    async def main() -> None:
        async with open(jobs) as engine:
            await test(engine)

    trio.run(main, clock=MockClock(rate) if rate else MockClock(autojump_threshold=0))


def in_asyncio(facade: Callable[[Any, Portal], Any], open: Open, jobs: Jobs, test: Test) -> None:
    async def main() -> None:
        clock, loop = MockClock(), asyncio.get_running_loop()

        @asynccontextmanager
        async def opened() -> AsyncIterator[Any]:
            trio.lowlevel.add_instrument(_Jumps(clock, loop))
            async with open(jobs) as engine:
                yield engine

        async with in_thread(opened, facade, "engine", clock) as engine:
            _sleepers[loop] = engine._portal
            try:
                await test(engine)
            finally:
                del _sleepers[loop]

    asyncio.run(main())


SYNCHRONOUS = "synchronous client"

KINDS: dict[str, Callable[[Jobs, Test], None]] = {
    "embedded": partial(in_trio, open_engine),
    "client": partial(in_trio, partial(_client, follow=True)),
    "client that does not follow": partial(in_trio, partial(_client, follow=False)),
    "client of a follower": partial(in_trio, _client_of_a_follower),
    SYNCHRONOUS: partial(in_trio, synchronous_client, rate=RATE),
    "asyncio, embedded": partial(in_asyncio, greenroom.aio.Engine, open_engine),
    "asyncio, client": partial(in_asyncio, greenroom.aio.Client, partial(_client, follow=True)),
    "asyncio, client that does not follow": partial(
        in_asyncio, greenroom.aio.Client, partial(_client, follow=False)
    ),
}
"""What `RunEngine` may be, and how a test is carried out with it."""


def everywhere(jobs: Jobs) -> Callable[[Test], Callable[..., None]]:
    """What makes a test of `engine` one for each of `KINDS`. It may take `follows`, whether there are events,
    and `time_jumps`, whether waiting for long takes no time."""

    def decorate(test: Test) -> Callable[..., None]:
        parameters = inspect.signature(test).parameters

        def carry_out(kind: str, **arguments: Any) -> None:
            known = {"follows": "does not follow" not in kind, "time_jumps": kind != SYNCHRONOUS}
            arguments |= {name: value for name, value in known.items() if name in parameters}
            KINDS[kind](jobs, lambda engine: test(engine=engine, **arguments))

        given = ("engine", "follows", "time_jumps")
        others = [parameters[name] for name in parameters if name not in given]
        kind = inspect.Parameter("kind", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        vars(carry_out).update(vars(test))  # the marks
        carry_out.__name__, carry_out.__doc__ = test.__name__, test.__doc__
        carry_out.__module__ = test.__module__
        carry_out.__signature__ = inspect.Signature([kind, *others])  # type: ignore[attr-defined]
        marked: Callable[..., None] = pytest.mark.parametrize("kind", KINDS)(carry_out)
        return marked

    return decorate


def outcome(kind: str, jobs: Jobs, act: Callable[[Any], Awaitable[T]]) -> T:
    """What `act` returns, given an engine of this kind."""
    returned: list[T] = []

    async def test(engine: Any) -> None:
        returned.append(await act(engine))

    KINDS[kind](jobs, test)
    return returned[0]


async def sleep(seconds: float) -> None:
    """Sleep in mock time."""
    if sniffio.current_async_library() == "trio":
        await trio.sleep(seconds)
    else:
        await _sleepers[asyncio.get_running_loop()].call(partial(trio.sleep, seconds))


async def now() -> float:
    """The mock time."""
    if sniffio.current_async_library() == "trio":
        return trio.current_time()
    return await _sleepers[asyncio.get_running_loop()].call(_current_time)


async def _current_time() -> float:
    await trio.lowlevel.checkpoint()
    return trio.current_time()


_sleepers: dict[asyncio.AbstractEventLoop, Portal] = {}

_TURNS = 5
"""The highest number of turns of asyncio between the end of one call and the next call of a task."""


class _Jumps(trio.abc.Instrument):
    """Makes the clock jump when neither loop has anything to do: trio checks asyncio, then itself again."""

    def __init__(self, clock: MockClock, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = clock
        self._loop = loop
        self._token = trio.lowlevel.current_trio_token()
        self._asking = False
        self._steps = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._steps += 1

    def before_io_wait(self, timeout: float) -> None:
        if timeout > 0 and not self._asking and _next_deadline() < float("inf"):
            self._asking = True
            self._loop.call_soon_threadsafe(self._let_asyncio_go_on, _TURNS, self._steps)

    def _let_asyncio_go_on(self, turns: int, steps: int) -> None:
        if turns:
            self._loop.call_soon(self._let_asyncio_go_on, turns - 1, steps)
            return
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._jump, steps)

    def _jump(self, steps: int) -> None:
        self._asking = False
        statistics = trio.lowlevel.current_statistics()
        # This is the first step since it asked. Tasks that were made runnable in an earlier one may go after
        # this one, and `tasks_runnable` no longer counts them.
        first = self._steps == steps + 1
        if first and not statistics.tasks_runnable and not statistics.run_sync_soon_queue_size:
            seconds = statistics.seconds_to_next_deadline
            if 0 < seconds < float("inf"):
                self._clock.jump(seconds)


def _next_deadline() -> float:
    return trio.lowlevel.current_statistics().seconds_to_next_deadline
