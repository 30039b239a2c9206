"""Bodies in asyncio: one loop in its own thread per engine, started with the first such body.

In trio, such a body is a task that waits for an asyncio task. A cancel is passed on once, as is usual in
asyncio; the wait continues until the asyncio task has ended.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import trio

from ...protocol.errors import RunAbandoned
from ..run.api import Run
from .portal import Portal
from .run import AsyncioRun

logger = logging.getLogger("greenroom")

Function = Callable[..., Coroutine[Any, Any, Any]]

_LOG_REMAINING_AFTER = 15.0
"""Seconds after which tasks that delay the shutdown are named in the log."""


class AsyncioBodies:
    """The loop and the bodies in it. `interrupt` receives an exception of a body that is not an `Exception`,
    such as `SystemExit`. Used in trio."""

    def __init__(self, interrupt: Callable[[BaseException], None]) -> None:
        self._interrupt = interrupt
        self._thread: _LoopThread | None = None

    async def execute(self, function: Function, run: Run, *params: Any) -> Any:
        """Execute a body; returns its result or raises its exception."""
        if self._thread is None:
            self._thread = _LoopThread(self._interrupt)
        value, error = None, None
        async with trio.open_nursery() as calls:
            portal = Portal(calls, lambda: _ended(run))
            try:
                value = await self._thread.run(function, AsyncioRun(run, portal), *params)
            except BaseException as raised:  # raised again below, not in a group
                error = raised
            await portal.aclose()
        if error is not None:
            raise error
        return value

    async def aclose(self) -> None:
        """End the loop after the last body. Tasks that bodies have started are cancelled and awaited."""
        if self._thread is not None:
            with trio.CancelScope(shield=True):
                await self._thread.aclose()


def _ended(run: Run) -> RunAbandoned:
    return RunAbandoned(
        f"run {run.id}, attempt {run.attempt}: its body has ended, but a task of it continues"
    )


class _LoopThread:
    """A thread that runs an asyncio loop."""

    def __init__(self, interrupt: Callable[[BaseException], None]) -> None:
        self._interrupt = interrupt
        self._token = trio.lowlevel.current_trio_token()
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._ending = False
        self._ended = trio.Event()
        self._thread = threading.Thread(target=self._serve, name="greenroom asyncio", daemon=True)
        self._thread.start()

    async def run(self, function: Function, *arguments: Any) -> Any:
        """Execute a coroutine function as a task of the loop, in a copy of this task's context."""
        return await _Task(function, arguments, self._loop, self._token).run()

    async def aclose(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._stop)
        with trio.move_on_after(_LOG_REMAINING_AFTER) as patience:
            await self._ended.wait()
        if patience.cancelled_caught:
            logger.error(
                "tasks in the asyncio loop have not ended after their cancellation; shutdown waits for them"
            )
            await self._ended.wait()
        self._thread.join()

    def _stop(self) -> None:
        self._ending = True
        self._loop.stop()

    # In the thread.

    def _serve(self) -> None:
        try:
            while not self._ending:
                try:
                    self._loop.run_forever()
                except BaseException as error:  # sys.exit() in any task: asyncio lets it propagate
                    self._token.run_sync_soon(self._interrupt, error)
            self._runner.close()
        finally:
            self._token.run_sync_soon(self._ended.set)


class _Task:
    """An asyncio task that a trio task waits for."""

    def __init__(
        self,
        function: Function,
        arguments: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        token: trio.lowlevel.TrioToken,
    ) -> None:
        self._function = function
        self._arguments = arguments
        self._loop = loop
        self._token = token
        self._task: asyncio.Task[Any] | None = None
        self._waits = trio.lowlevel.current_task()
        self._raise_cancel: Callable[[], Any] | None = None

    async def run(self) -> Any:
        """Start the task and wait for its end."""
        self._loop.call_soon_threadsafe(self._begin)
        await trio.lowlevel.wait_task_rescheduled(self._abort)
        assert self._task is not None, "it has ended"
        if self._task.cancelled():
            if self._raise_cancel is not None:
                self._raise_cancel()
            raise RuntimeError("the body raised asyncio.CancelledError, but its run was not cancelled")
        return self._task.result()

    def _abort(self, raise_cancel: Callable[[], Any]) -> trio.lowlevel.Abort:
        self._raise_cancel = raise_cancel
        self._loop.call_soon_threadsafe(self._cancel)
        return trio.lowlevel.Abort.FAILED

    # In the loop.

    def _begin(self) -> None:  # in the context of the trio task, as asyncio does for its own tasks
        self._task = self._loop.create_task(self._body())
        self._task.add_done_callback(self._end)

    async def _body(self) -> Any:
        return await self._function(*self._arguments)  # called here, so that a failing call fails the run

    def _cancel(self) -> None:
        assert self._task is not None, "the task was started before"
        self._task.cancel()

    def _end(self, _: asyncio.Task[Any]) -> None:
        self._token.run_sync_soon(trio.lowlevel.reschedule, self._waits)
