"""One `trio.run` per example, on a clock that moves on only when no task has anything left to do."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable

import trio
import trio.testing

PATIENCE = 1_000_000.0
MOST_STEPS = 200_000
"""Of the scheduler, in one example; most take a few thousand."""


class Hung(Exception):
    """Something waits for what never comes, or never rests; the tasks that were left are named."""


class Watch(trio.abc.Instrument):
    """Ends what would go on for ever, shielded or not, so that it is a failure and not a test that hangs."""

    def __init__(self) -> None:
        self.left: list[str] = []
        self._steps = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._steps += 1
        if self._steps == MOST_STEPS:
            self._break_off()

    async def wait(self) -> None:
        await trio.sleep(PATIENCE)
        self._break_off()

    def _break_off(self) -> None:
        self.left = [task.name for task in _below(trio.lowlevel.current_root_task())]
        for thing in gc.get_objects():
            if isinstance(thing, trio.CancelScope):
                thing.shield = False
                thing.cancel()


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run `main`; raise `Hung` if it would not have ended."""
    watch = Watch()

    async def watched() -> None:
        error: BaseException | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch.wait)
            try:
                await main()
            except BaseException as raised:  # it comes out below, and not in the nursery's group
                error = raised
            nursery.cancel_scope.cancel()
        if error is not None:
            raise error

    try:
        trio.run(watched, clock=trio.testing.MockClock(autojump_threshold=0), instruments=[watch])
    finally:
        if watch.left:
            raise Hung(", ".join(watch.left))


def _below(task: trio.lowlevel.Task | None) -> list[trio.lowlevel.Task]:
    if task is None:
        return []
    children = [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return [task, *(lower for child in children for lower in _below(child))]
