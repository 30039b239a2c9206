"""The watchdog: detects a blocked event loop and logs which body blocks it.

A body that computes for seconds, or waits without `await`, stops all other work in its process: bodies,
commits, clients. Code in the event loop cannot report this while the loop is blocked, so the watchdog is a
thread. It asks the loop for a response at intervals. Without a response for one second, it logs once which
line the loop executes. When the loop continues, the watchdog logs the duration, counts the blockage, and
records it as an event of the run.

All engines in a loop share one thread, from the start of the first engine to the end of the last. The thread
only observes: it changes no state outside this module.
"""

from __future__ import annotations

import inspect
import logging
import queue
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Literal

import msgspec
import trio

from ...protocol.executors import BlockedLoop
from ..run.execution import LiveBodies, LocalExecution

logger = logging.getLogger("greenroom")

BLOCKED_AFTER = 1.0
"""Seconds without a turn of the loop after which the loop counts as blocked."""
_CHECK_EVERY = 0.25
_MARGIN = 0.1
"""Additional seconds for the case that the whole process was paused: then the loop answers as soon as this
thread continues."""
_JOIN_TIMEOUT = 1.0
"""Seconds to wait for the thread to end; it ends immediately unless logging itself blocks."""

_OWN_FOLDERS = tuple(
    str(Path(__file__).parents[2] / name) for name in ("actors", "gateway", "persistence", "protocol")
)
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})

_Signal = Literal["turned", "end"]


class Blockage(msgspec.Struct):
    """A time during which the loop was blocked. `execution` is the body that blocked it, if it was a body."""

    execution: LocalExecution | None
    where: str
    """The line that blocked the loop, in the body or elsewhere."""
    since: float
    seconds: float = 0.0
    """How long the blockage lasted; set when it ends."""


class Watchdog:
    """The watchdog of the current loop. It exists while it has at least one observer.

    Observers are called in the loop, after a blockage has ended.
    """

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._loop = threading.get_ident()
        self._observers: dict[Callable[[Blockage], None], None] = {}
        self._signals: queue.SimpleQueue[_Signal] = queue.SimpleQueue()
        self._turned_at = 0.0
        self._blockage: Blockage | None = None
        self._thread = threading.Thread(target=self._watch, name="greenroom watchdog", daemon=True)

    def subscribe(self, observer: Callable[[Blockage], None]) -> None:
        """Report blockages to `observer` from now on."""
        if not self._observers:
            self._thread.start()
        self._observers[observer] = None

    def unsubscribe(self, observer: Callable[[Blockage], None]) -> None:
        """Stop reporting to `observer`. The thread ends with the last observer."""
        del self._observers[observer]
        if not self._observers:
            _CURRENT.set(None)
            self._signals.put("end")
            self._thread.join(_JOIN_TIMEOUT)

    def body_ends(self, execution: LocalExecution) -> None:
        """Report a blockage by this body now, while its run is still pending."""
        if self._blockage is not None and self._blockage.execution is execution:
            self._report()

    # In the thread.

    def _watch(self) -> None:
        try:
            while self._next(_CHECK_EVERY) is None:
                self._token.run_sync_soon(self._turn)
                signal = self._next(BLOCKED_AFTER) or self._next(_MARGIN)
                if signal is None:
                    self._log_blockage()
                    signal = self._next(None)
                    self._token.run_sync_soon(self._report)
                if signal == "end":
                    return
        except trio.RunFinishedError:
            return  # the loop ended before the engines did

    def _next(self, timeout: float | None) -> _Signal | None:
        try:
            return self._signals.get(timeout=timeout)
        except queue.Empty:
            return None

    def _log_blockage(self) -> None:
        since = time.monotonic() - BLOCKED_AFTER - _MARGIN
        frame = sys._current_frames().get(self._loop)
        execution = None if frame is None else _execution(frame)
        where = "an unknown line" if frame is None else _line(frame, execution)
        self._blockage = Blockage(execution, where, since)
        if execution is None:
            logger.warning("the event loop has been blocked for %g s, at %s", BLOCKED_AFTER, where)
            return
        logger.warning(
            "run %s (job %s, handle %s) has blocked the event loop for %g s, at %s; other work in this "
            "process is stopped. Use async calls, or make the job a plain function, which runs in a thread",
            execution.id,
            execution.job_name,
            execution.body.order.handle,
            BLOCKED_AFTER,
            where,
        )

    # In the loop.

    def _turn(self) -> None:
        self._turned_at = time.monotonic()
        self._signals.put("turned")

    def _report(self) -> None:
        blockage, self._blockage = self._blockage, None
        if blockage is None:
            return  # already reported when the body ended
        until = self._turned_at if self._turned_at > blockage.since else time.monotonic()
        blockage.seconds = until - blockage.since
        run = "" if blockage.execution is None else f" by run {blockage.execution.id}"
        logger.warning("the event loop continues; it was blocked for %.1f s%s", blockage.seconds, run)
        for observer in list(self._observers):
            observer(blockage)


class Watch:
    """The part of an engine or executor in the watchdog: counts blockages and reports those of its bodies."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self._watchdog: Watchdog | None = None

    def begin(self, live_bodies: LiveBodies) -> None:
        """Watch the current loop."""
        self._live_bodies = live_bodies
        self._watchdog = _CURRENT.get()
        if self._watchdog is None:
            self._watchdog = Watchdog()
            _CURRENT.set(self._watchdog)
        self._watchdog.subscribe(self._observe)

    def end(self) -> None:
        """Stop watching. The thread ends with the last observer."""
        if self._watchdog is not None:
            self._watchdog.unsubscribe(self._observe)
            self._watchdog = None

    def body_ends(self, execution: LocalExecution) -> None:
        """Report a blockage by a body that is about to end."""
        if self._watchdog is not None:
            self._watchdog.body_ends(execution)

    def _observe(self, blockage: Blockage) -> None:
        self.count += 1
        self.seconds += blockage.seconds
        execution = blockage.execution
        if execution is not None and execution in self._live_bodies:
            execution.body.host.tell(BlockedLoop(blockage.seconds, blockage.where))


_CURRENT: trio.lowlevel.RunVar[Watchdog | None] = trio.lowlevel.RunVar("greenroom watchdog", None)


def real_time() -> bool:
    """Whether the loop uses the system's clock. With any other clock, seconds have no meaning here."""
    return type(trio.lowlevel.current_clock()).__name__ == "SystemClock"


# Inspecting the loop's stack.


def _frames(innermost: FrameType) -> Iterator[FrameType]:
    frame: FrameType | None = innermost
    while frame is not None:
        yield frame
        frame = frame.f_back


def _execution(innermost: FrameType) -> LocalExecution | None:
    """The body that the loop executes, in its own task or in a task that the body has started."""
    for frame in _frames(innermost):
        if frame.f_code is _BODY_CODE:
            return _self(frame)
        if frame.f_code.co_name == "unrolled_run":
            return _started_by(frame.f_locals.get("task"))
    return None


def _started_by(task: Any) -> LocalExecution | None:
    while isinstance(task, trio.lowlevel.Task):
        coro: Any = task.coro
        while inspect.iscoroutine(coro):  # in an executor, another function awaits the body
            if coro.cr_code is _BODY_CODE and coro.cr_frame is not None:
                return _self(coro.cr_frame)
            coro = coro.cr_await
        task = None if task.parent_nursery is None else task.parent_nursery.parent_task
    return None


def _self(frame: FrameType) -> LocalExecution | None:
    execution = frame.f_locals.get("self")
    return execution if isinstance(execution, LocalExecution) else None


_BODY_CODE: CodeType = LocalExecution.__call__.__code__


def _line(innermost: FrameType, execution: LocalExecution | None) -> str:
    """Where the loop is: the innermost line of the user's own code, and the function that it calls."""
    own = None if execution is None else execution.file
    for frame in _frames(innermost):
        if frame.f_code is _BODY_CODE or frame.f_code.co_name == "unrolled_run":
            break
        file = frame.f_code.co_filename
        if file == own or not file.startswith(("<", *_OWN_FOLDERS, *_LIBRARIES)):
            calls = "" if frame is innermost else f" (in {_text(innermost)})"
            return _text(frame) + calls
    return _text(innermost)


def _text(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
