"""Calls from asyncio into trio: results, cancellation, and that no call is lost."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import sniffio
import trio

from greenroom.actors.aio.portal import Portal
from greenroom.aio.thread import in_thread
from greenroom.errors import Unavailable

from .support import in_asyncio


@asynccontextmanager
async def nothing() -> AsyncIterator[None]:
    yield


def open_portal() -> Any:
    """A portal into an otherwise idle trio loop."""
    return in_thread(nothing, lambda _, portal: portal, "trio")


class Waiting:
    """A trio function that waits for its cancel, and ends some time later."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.may_end = trio.Event()
        self.ended = False

    async def __call__(self) -> None:
        try:
            self.loop.call_soon_threadsafe(self.began.set)
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await self.may_end.wait()
            self.ended = True

    async def let_end(self) -> None:
        await trio.lowlevel.checkpoint()
        self.may_end.set()


@in_asyncio
async def test_a_call_returns_and_raises_as_the_function_does():
    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise KeyError("as it should")

    async def double(number: int) -> int:
        await trio.lowlevel.checkpoint()
        return number * 2

    async with open_portal() as portal:
        assert await portal.call(partial(double, 21)) == 42
        with pytest.raises(KeyError, match="as it should"):
            await portal.call(fail)


@in_asyncio
async def test_a_cancel_of_the_caller_cancels_the_call_and_waits_for_its_end():
    async with open_portal() as portal:
        waiting = Waiting()
        task = asyncio.create_task(portal.call(waiting))
        await waiting.began.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()  # a second one changes nothing
        done, _ = await asyncio.wait([task], timeout=0.02)
        assert not done
        assert not waiting.ended
        await portal.call(waiting.let_end)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert waiting.ended


@in_asyncio
async def test_a_cancel_before_the_call_has_begun_cancels_it():
    async with open_portal() as portal:
        task = asyncio.create_task(portal.call(trio.sleep_forever))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@in_asyncio
async def test_a_failure_during_a_cancel_is_the_cause_of_the_cancel():
    async def fail() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise KeyError("in the way")

    async with open_portal() as portal:
        task = asyncio.create_task(portal.call(fail))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert isinstance(caught.value.__cause__, KeyError)


@in_asyncio
async def test_time_limits_of_asyncio_and_of_anyio_end_calls():
    async with open_portal() as portal:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await portal.call(trio.sleep_forever)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(portal.call(trio.sleep_forever), 0.01)
        with anyio.move_on_after(0.01) as scope:
            await portal.call(trio.sleep_forever)
        assert scope.cancelled_caught
        await portal.call(trio.lowlevel.checkpoint)


@in_asyncio
async def test_the_failure_of_one_task_of_a_group_ends_the_calls_of_the_others():
    async def fail() -> None:
        await asyncio.sleep(0.01)
        raise KeyError("as it should")

    async def both(portal: Portal) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(portal.call(trio.sleep_forever))
            group.create_task(fail())

    async with open_portal() as portal:
        with pytest.raises(ExceptionGroup) as caught:
            await both(portal)
        assert caught.group_contains(KeyError)


@in_asyncio
async def test_a_call_that_waits_when_the_block_is_left_raises_unavailable():
    async with open_portal() as portal:
        task = asyncio.create_task(portal.call(trio.sleep_forever))
        await asyncio.sleep(0.01)
    with pytest.raises(Unavailable, match="the trio is closed"):
        await task
    with pytest.raises(Unavailable, match="the trio is closed"):
        await portal.call(trio.lowlevel.checkpoint)


@in_asyncio
async def test_a_call_has_the_context_variables_of_its_caller():
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name")

    async def look() -> str:
        await trio.lowlevel.checkpoint()
        found = name.get()
        name.set("trio's")
        return found

    async def caller(portal: Portal, own: str) -> None:
        name.set(own)
        assert await portal.call(look) == own
        assert name.get() == own

    async with open_portal() as portal:
        await asyncio.gather(*(caller(portal, f"task {n}") for n in range(10)))


async def _which_library() -> str:
    await trio.lowlevel.checkpoint()
    with trio.move_on_after(1):
        await anyio.lowlevel.checkpoint()  # anyio detects the loop, too
    return sniffio.current_async_library()


@pytest.mark.parametrize("backend", ["asyncio", "asyncio with uvloop"])
def test_libraries_detect_the_right_loop(backend: str):
    async def main() -> None:
        async with open_portal() as portal:
            assert await portal.call(_which_library) == "trio"
            assert sniffio.current_async_library() == "asyncio"

    anyio.run(main, backend="asyncio", backend_options={"use_uvloop": "uvloop" in backend})


@in_asyncio
async def test_an_iterator_yields_all_items_in_order_although_waits_are_cancelled():
    class Numbers:
        """Yields 1 to 300, some of them late, some of them together."""

        def __init__(self) -> None:
            self.last = 0
            self.portions = 0

        async def __anext__(self) -> int:
            await trio.sleep(0.001 if self.last % 10 == 0 else 0)
            if self.last == 300:
                raise StopAsyncIteration
            self.last += 1
            return self.last

        def at_hand(self) -> list[int]:
            self.portions += 1
            count = min(self.last % 5, 300 - self.last)
            self.last += count
            return list(range(self.last - count + 1, self.last + 1))

    from greenroom.actors.aio.methods import Items

    async with open_portal() as portal:
        numbers = Numbers()
        items = Items(numbers, portal)
        seen: list[int] = []
        given_up = 0
        while True:
            try:
                seen.append(await asyncio.wait_for(anext(items), 0.001))
            except TimeoutError:
                given_up += 1
            except StopAsyncIteration:
                break
        assert seen == list(range(1, 301))
        assert given_up
        assert 0 < numbers.portions < 300


@pytest.mark.parametrize("calls", [5_000, pytest.param(100_000, marks=pytest.mark.long("GREENROOM_AIO"))])
@in_asyncio
async def test_no_wake_up_is_lost(calls: int):
    """Calls of 50 tasks, one in 20 of them cancelled."""
    answered = cancelled = 0

    async def caller(portal: Portal, number: int) -> None:
        nonlocal answered, cancelled
        for count in range(calls // 50):
            if (count + number) % 20:
                await portal.call(trio.lowlevel.checkpoint)
                answered += 1
            else:
                task = asyncio.create_task(portal.call(trio.sleep_forever))
                if count % 40:
                    await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                cancelled += 1

    async with open_portal() as portal:
        await asyncio.gather(*(caller(portal, number) for number in range(50)))
    assert answered + cancelled == calls
