"""Shared by the tests of asyncio."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import greenroom.aio
from greenroom import Jobs
from greenroom.gateway.client import RunEngine
from greenroom.protocol.events import RunStateChanged
from greenroom.protocol.records import Snapshot

PATIENCE = 60
"""Seconds that a test waits for what should happen immediately."""


def in_asyncio(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an asyncio loop, and check that no thread and no task remains."""

    @functools.wraps(test)
    def carry_out(*args: Any, **kwargs: Any) -> None:
        before = set(threading.enumerate())

        async def main() -> None:
            async with asyncio.timeout(PATIENCE):
                await test(*args, **kwargs)
            assert asyncio.all_tasks() == {asyncio.current_task()}

        asyncio.run(main())
        left = [thread.name for thread in threading.enumerate() if thread not in before and ours(thread)]
        assert left == []

    return carry_out


def ours(thread: threading.Thread) -> bool:
    """Whether the thread belongs to the engine; trio keeps threads of `to_thread` for some seconds."""
    return thread.name.startswith("greenroom")


def open_engine(jobs: Jobs, **options: Any) -> Any:
    """An engine in memory."""
    return greenroom.aio.open_engine(jobs, "memory:", **options)


async def until(engine: RunEngine, run: str, status: str) -> None:
    """Follow the events until the run has this status."""
    events = engine.events()
    if (await engine.get_run(run)).status == status:
        return
    async for event in events:
        assert not isinstance(event, Snapshot)
        if isinstance(event, RunStateChanged) and (event.run, event.to) == (run, status):
            return
