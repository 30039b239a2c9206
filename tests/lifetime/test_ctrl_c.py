"""Ctrl-C ends an engine in order, and is raised as a plain `KeyboardInterrupt` whenever it arrives."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from greenroom import Jobs, Run, open_engine
from greenroom.persistence.memory import MemoryStore

SOURCES = tuple(str(Path(__file__).parents[2] / name) for name in ("actors", "persistence", "protocol"))

jobs = Jobs()


@jobs.job
async def sleeps(run: Run) -> None:
    await trio.sleep(1)


@jobs.job
async def interrupts_nursery(run: Run) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        signal.raise_signal(signal.SIGINT)


class WatchedStore(MemoryStore):
    """A store that records whether it is open."""

    is_open = False

    async def open(self, *given: Any) -> Any:
        self.is_open = True
        return await super().open(*given)

    async def close(self) -> None:
        await super().close()
        self.is_open = False


@contextmanager
def at_each_call(do: Callable[[], None]) -> Iterator[None]:
    """Call `do` at the beginning of each function of the engine."""

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCES):
            do()

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(before)


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def pressed_at(moment: int, store: WatchedStore) -> bool:
    """Press Ctrl-C when an engine calls its `moment`-th function; false if it calls fewer."""
    calls, pressed = count(1), False

    def press_once() -> None:
        nonlocal pressed
        if next(calls) == moment:
            pressed = True
            press()

    async def main() -> None:
        with at_each_call(press_once):
            async with open_engine(jobs, store, shutdown_timeout=10) as engine:
                await (await engine.submit(sleeps, handle="a")).result()
                await engine.submit(sleeps, handle="a")

    try:
        trio.run(main, clock=MockClock(autojump_threshold=0))
    except KeyboardInterrupt:
        assert pressed
        return True
    assert not pressed
    return False


def test_at_any_moment():
    for moment in count(1, 7):
        store = WatchedStore()
        if not pressed_at(moment, store):
            break
        assert not store.is_open
    assert moment > 500, "the engine has more moments"


async def test_all_tasks_of_an_engine_with_children_are_protected():
    """Otherwise Ctrl-C could arrive in one of them, and end the others without order."""
    block, unprotected = trio.lowlevel.current_task(), set()

    def check() -> None:
        try:
            task = trio.lowlevel.current_task()
        except RuntimeError:
            return  # in a thread, or in trio itself
        if task is not block and not trio.lowlevel.currently_ki_protected():
            unprotected.add(task.name)

    with at_each_call(check):
        async with open_engine(jobs, "memory:", executors=1) as engine:
            await (await engine.submit(sleeps, handle="a")).result()
    assert not unprotected


def test_in_a_nursery_of_a_body():
    async def main() -> None:
        async with open_engine(jobs, "memory:", shutdown_timeout=0) as engine:
            await engine.submit(interrupts_nursery, handle="a")
            await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)


def test_several_times_while_it_opens():
    class Interrupted(WatchedStore):
        async def open(self, *given: Any) -> Any:
            for _ in range(4):
                press()
                await trio.sleep(1)
            return await super().open(*given)

    async def main() -> None:
        async with open_engine(jobs, store):
            pytest.fail("it was opened")

    store = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        trio.run(main, clock=MockClock(autojump_threshold=0))
    assert not store.is_open
