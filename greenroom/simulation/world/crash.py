"""Ending tasks as the death of a process ends them: immediately, at any point, shielded or not.

After the crash no line of these tasks runs, except in `finally` blocks and in handlers of `Cancelled`, which
Python always runs. So the rest of the world must ignore these tasks, too.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Iterator
from typing import NoReturn

import trio
from outcome import Error
from trio._core._run import GLOBAL_RUN_CONTEXT

Task = trio.lowlevel.Task

_PATIENCE = 500
"""The number of scheduler turns in which the tasks can unwind by themselves."""


def _below(task: Task) -> list[Task]:
    """A task and all tasks below it, in the order in which they were spawned."""
    return sorted(_tree(task), key=lambda one: one._counter)


def cut_off(root: Task, scope: trio.CancelScope) -> None:
    """Cancel the scope that `root` is in, with all tasks below `root`. A task that was already woken for
    another reason receives `Cancelled`, too."""
    _unshield(root, scope)
    scope.cancel()
    current = trio.lowlevel.current_task() if trio.lowlevel.in_trio_task() else None
    for task in _below(root):
        if task._next_send_fn is not None and task is not current:
            _cancel_runnable(task)


async def reap(root: Task, scope: trio.CancelScope) -> None:
    """Wait until all tasks that were cut off have ended. Removes shields that they create meanwhile, and ends
    a task that swallows every cancellation."""
    runner = GLOBAL_RUN_CONTEXT.runner
    for turn in itertools.count():
        await trio.lowlevel.checkpoint()
        if root not in runner.tasks:
            return
        _unshield(root, scope)
        if turn >= _PATIENCE:
            for left in _below(root):
                if not left.child_nurseries:
                    _force_end(left)


def _unshield(root: Task, scope: trio.CancelScope) -> None:
    """Remove all shields inside a scope, also those that were created after its cancellation."""
    end = scope._cancel_status
    for task in _below(root):
        status = task._cancel_status
        while status is not None and status is not end:
            if status._scope.shield:
                status._scope.shield = False
            status = status._parent  # type: ignore[assignment]  # None beyond the outermost


def is_interrupt(error: BaseException) -> bool:
    """Whether the error is, or contains, a `KeyboardInterrupt` (Ctrl-C)."""
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(KeyboardInterrupt) is not None
    return isinstance(error, KeyboardInterrupt)


def cancelled() -> trio.Cancelled:
    """A `Cancelled` for a task that must not continue, because its scope was just cut off."""
    return trio.Cancelled._create(source="explicit", reason="the process has died")


def _tree(task: Task) -> Iterator[Task]:
    yield task
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from _tree(child)


def _cancel_runnable(task: Task) -> None:
    if inspect.getcoroutinestate(task.coro) == inspect.CORO_CREATED:
        task._next_send_fn, task._next_send = task.coro.throw, cancelled()
        return
    if any(frame.f_code.co_name == "_nested_child_finished" for frame, _ in task.iter_await_frames()):
        nursery = task.child_nurseries[-1]
        nursery._pending_excs.append(
            cancelled()
        )  # the task is leaving the nursery, which must stay consistent
        return
    task._next_send = Error(cancelled())


def _force_end(task: Task) -> None:
    """End a task that ignores its cancellation."""

    def end(_: object) -> NoReturn:
        with contextlib.suppress(BaseException):  # its process is dead: errors have no effect
            task.coro.close()
        raise StopIteration

    if task._next_send_fn is None:
        GLOBAL_RUN_CONTEXT.runner.reschedule(task)
    task._next_send_fn = end
