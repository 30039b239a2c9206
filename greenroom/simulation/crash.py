"""Ending tasks as a dying process ends them: at once, shielded or not, wherever they stand.

From the crash on no line of theirs runs any more, except what stands in `finally` and in handlers of
`Cancelled`, which Python offers no way around; so the world they reach must be dead for them as well.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

import trio
from outcome import Error

Task = trio.lowlevel.Task

_MOST_ROUNDS = 5_000
"""In which what was cut off must have unwound."""


def _below(task: Task) -> list[Task]:
    """A task and all that it has started, in the order in which they were spawned."""
    return sorted(_tree(task), key=lambda one: one._counter)


def cut_off(root: Task, scope: trio.CancelScope) -> None:
    """Cancel the scope, which `root` is in, with everything below it, and have nobody go on as if it had not
    happened: whoever had been woken for another reason finds itself cancelled."""
    _unshield(root, scope)
    scope.cancel()
    current = trio.lowlevel.current_task() if trio.lowlevel.in_trio_task() else None
    for task in _below(root):
        if task._next_send_fn is not None and task is not current:
            _cancel_runnable(task)


async def bury(root: Callable[[], Task | None], scope: trio.CancelScope) -> list[str]:
    """Wait until nothing is left of what was cut off, which `root` tells by `None`, and take away the shields
    that it puts up meanwhile. Returns the names of the tasks that don't end for all that."""
    for _ in range(_MOST_ROUNDS):
        task = root()
        if task is None:
            return []
        await trio.lowlevel.checkpoint()
        _unshield(task, scope)
    task = root()
    return [] if task is None else [left.name for left in _below(task)]


def _unshield(root: Task, scope: trio.CancelScope) -> None:
    """Take away all shields inside a scope, also those that were put up since it was cancelled."""
    end = scope._cancel_status
    for task in _below(root):
        status = task._cancel_status
        while status is not None and status is not end:
            if status._scope.shield:
                status._scope.shield = False
            status = status._parent  # type: ignore[assignment]  # None beyond the outermost


def cancelled() -> trio.Cancelled:
    """For whoever must go no further, in a scope that was just cut off."""
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
        nursery._pending_excs.append(cancelled())  # it is leaving the nursery, and must do so in order
        return
    task._next_send = Error(cancelled())
