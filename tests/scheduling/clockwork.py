"""One `trio.run` per example, on a clock that moves on only when no task has anything left to do."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable

import trio
import trio.testing

PATIENCE = 1_000_000.0


class Hung(Exception):
    """Something waits for what never comes; the tasks that were left are named."""


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run `main`. What hangs is a failure here and not a test that never ends, shielded or not."""
    hung: list[str] = []

    async def watch() -> None:
        await trio.sleep(PATIENCE)
        hung.extend(task.name for task in _below(trio.lowlevel.current_root_task()))
        for thing in gc.get_objects():
            if isinstance(thing, trio.CancelScope):
                thing.shield = False
                thing.cancel()

    async def watched() -> None:
        error: BaseException | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            try:
                await main()
            except BaseException as raised:  # it comes out below, and not in the nursery's group
                error = raised
            nursery.cancel_scope.cancel()
        if error is not None:
            raise error

    try:
        trio.run(watched, clock=trio.testing.MockClock(autojump_threshold=0))
    finally:
        if hung:
            raise Hung(", ".join(hung))


def _below(task: trio.lowlevel.Task | None) -> list[trio.lowlevel.Task]:
    if task is None:
        return []
    children = [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return [task, *(lower for child in children for lower in _below(child))]
