"""Ending tasks as a dying process ends them: at once, shielded or not, wherever they stand.

From the crash on no line of theirs runs any more, except what stands in `finally` and in handlers of
`Cancelled`, which Python offers no way around; so the world they reach must be dead for them as well.
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
"""Turns in which what was cut off may unwind by itself."""


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


async def bury(root: Task, scope: trio.CancelScope) -> None:
    """Wait until nothing is left of what was cut off. Shields that it puts up meanwhile are taken away, and a
    task that swallows every cancellation is made to vanish."""
    runner = GLOBAL_RUN_CONTEXT.runner
    for turn in itertools.count():
        await trio.lowlevel.checkpoint()
        if root not in runner.tasks:
            return
        _unshield(root, scope)
        if turn >= _PATIENCE:
            for left in _below(root):
                if not left.child_nurseries:
                    _make_vanish(left)


def _unshield(root: Task, scope: trio.CancelScope) -> None:
    """Take away all shields inside a scope, also those that were put up since it was cancelled."""
    end = scope._cancel_status
    for task in _below(root):
        status = task._cancel_status
        while status is not None and status is not end:
            if status._scope.shield:
                status._scope.shield = False
            status = status._parent  # type: ignore[assignment]  # None beyond the outermost


def is_interrupt(error: BaseException) -> bool:
    """Whether Ctrl-C is in it."""
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(KeyboardInterrupt) is not None
    return isinstance(error, KeyboardInterrupt)


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


def _make_vanish(task: Task) -> None:
    """Have a task end without asking it."""

    def end(_: object) -> NoReturn:
        with contextlib.suppress(BaseException):  # whatever it has to say: its process is dead
            task.coro.close()
        raise StopIteration

    if task._next_send_fn is None:
        GLOBAL_RUN_CONTEXT.runner.reschedule(task)
    task._next_send_fn = end
