"""The watchdog: names the body that blocks the event loop.

A body that computes for seconds, or waits without `await`, stops everything else in its process: bodies,
commits, clients. Nothing in the loop can say so while that lasts, so this is a thread. It asks the loop for a
sign of life now and then; where none comes for a second, it looks at which line the loop stands, and logs it
once. When the loop goes on, that is logged with the time it took, counted, and told as an event of the run.

There is one thread for all engines in a loop, from the start of the first to the end of the last. It only
watches: it changes nothing but what is written here.
"""

from __future__ import annotations

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

from ...protocol.events import RunLog
from ..journal.change import REPORTING, Change
from ..journal.journal import Journal
from ..run.execution import Execution, LiveBodies

logger = logging.getLogger("greenroom")

BLOCKED_AFTER = 1.0
"""Seconds without a turn of the loop after which it is blocked."""
_EVERY = 0.25
_SURE = 0.1
"""Seconds more, for a process that has not run at all: then the loop is as quick as this thread."""
_AT_THE_END = 1.0
"""Seconds that the thread has to end, which it does at once unless the log itself blocks."""

_OURS = tuple(
    str(Path(__file__).parents[2] / name) for name in ("actors", "gateway", "persistence", "protocol")
)
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})

_Signal = Literal["turned", "end"]


class Blockage(msgspec.Struct):
    """A time for which the loop stood still. `execution` is the body that did it, if it was one."""

    execution: Execution | None
    where: str
    """The line of the body, or of whatever else it was."""
    since: float
    seconds: float = 0.0
    """How long it took, once it is over."""


class Watchdog:
    """The watchdog of the current loop, while there are any that `hear` of what it sees.

    `hear` is called in the loop when it goes on.
    """

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._loop = threading.get_ident()
        self._hearers: dict[Callable[[Blockage], None], None] = {}
        self._signals: queue.SimpleQueue[_Signal] = queue.SimpleQueue()
        self._turned_at = 0.0
        self._blockage: Blockage | None = None
        self._thread = threading.Thread(target=self._watch, name="greenroom watchdog", daemon=True)

    def join(self, hear: Callable[[Blockage], None]) -> None:
        """Tell of blockages from now on."""
        if not self._hearers:
            self._thread.start()
        self._hearers[hear] = None

    def leave(self, hear: Callable[[Blockage], None]) -> None:
        """Tell no longer. With the last one, the thread ends."""
        del self._hearers[hear]
        if not self._hearers:
            _CURRENT.set(None)
            self._signals.put("end")
            self._thread.join(_AT_THE_END)

    def ends(self, execution: Execution) -> None:
        """A body ends: tell now of what it has blocked, because soon its run may have ended, too."""
        if self._blockage is not None and self._blockage.execution is execution:
            self._tell()

    # In the thread.

    def _watch(self) -> None:
        try:
            while self._next(_EVERY) is None:
                self._token.run_sync_soon(self._turn)
                signal = self._next(BLOCKED_AFTER) or self._next(_SURE)
                if signal is None:
                    self._notice()
                    signal = self._next(None)
                    self._token.run_sync_soon(self._tell)
                if signal == "end":
                    return
        except trio.RunFinishedError:
            return  # the loop has ended without the engines' end

    def _next(self, timeout: float | None) -> _Signal | None:
        try:
            return self._signals.get(timeout=timeout)
        except queue.Empty:
            return None

    def _notice(self) -> None:
        since = time.monotonic() - BLOCKED_AFTER - _SURE
        frame = sys._current_frames().get(self._loop)
        execution = None if frame is None else _execution(frame)
        where = "an unknown line" if frame is None else _line(frame, execution)
        self._blockage = Blockage(execution, where, since)
        if execution is None:
            logger.warning("the event loop has been blocked for %g s, at %s", BLOCKED_AFTER, where)
            return
        logger.warning(
            "run %s (job %s, handle %s) has blocked the event loop for %g s, at %s; nothing else goes "
            "on meanwhile. Use what can be awaited, or make the job a plain function, which runs in a thread",
            execution.body.id,
            execution.job_name,
            execution.body.handle,
            BLOCKED_AFTER,
            where,
        )

    # In the loop.

    def _turn(self) -> None:
        self._turned_at = time.monotonic()
        self._signals.put("turned")

    def _tell(self) -> None:
        blockage, self._blockage = self._blockage, None
        if blockage is None:
            return  # told already, when the body ended
        until = self._turned_at if self._turned_at > blockage.since else time.monotonic()
        blockage.seconds = until - blockage.since
        run = "" if blockage.execution is None else f" by run {blockage.execution.body.id}"
        logger.warning("the event loop goes on: it was blocked for %.1f s%s", blockage.seconds, run)
        for hear in list(self._hearers):
            hear(blockage)


class Watch:
    """One engine's part in it: it counts, and its runs are told of what their bodies did."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self._watchdog: Watchdog | None = None

    def begin(self, journal: Journal, live_bodies: LiveBodies) -> None:
        """Watch the current loop."""
        self._journal = journal
        self._live_bodies = live_bodies
        self._watchdog = _CURRENT.get()
        if self._watchdog is None:
            self._watchdog = Watchdog()
            _CURRENT.set(self._watchdog)
        self._watchdog.join(self._hear)

    def end(self) -> None:
        """Watch it no longer; no thread is left."""
        if self._watchdog is not None:
            self._watchdog.leave(self._hear)
            self._watchdog = None

    def ends(self, execution: Execution) -> None:
        """A body of this engine ends."""
        if self._watchdog is not None:
            self._watchdog.ends(execution)

    def _hear(self, blockage: Blockage) -> None:
        self.count += 1
        self.seconds += blockage.seconds
        execution = blockage.execution
        if execution is None or execution not in self._live_bodies:
            return
        body = execution.body
        event = RunLog(
            seq=0,
            at=0,
            by="engine",
            run=body.id,
            handle=body.handle,
            lane=body.lane,
            attempt=body.attempt,
            text=f"blocked the event loop for {blockage.seconds:.1f} s, at {blockage.where}",
            level="warning",
        )
        self._journal.tell(Change((event,), body.id, REPORTING, body.attempt))


_CURRENT: trio.lowlevel.RunVar[Watchdog | None] = trio.lowlevel.RunVar("greenroom watchdog", None)


def real_time() -> bool:
    """Whether the loop's clock is that of the system. On any other one, a second says nothing."""
    return type(trio.lowlevel.current_clock()).__name__ == "SystemClock"


# What stands on the loop's stack.


def _frames(innermost: FrameType) -> Iterator[FrameType]:
    frame: FrameType | None = innermost
    while frame is not None:
        yield frame
        frame = frame.f_back


def _execution(innermost: FrameType) -> Execution | None:
    """The body that the loop is in: in its own task, or in one that it has started."""
    for frame in _frames(innermost):
        if frame.f_code is _EXECUTES:
            return _self(frame)
        if frame.f_code.co_name == "unrolled_run":
            return _started_by(frame.f_locals.get("task"))
    return None


def _started_by(task: Any) -> Execution | None:
    while isinstance(task, trio.lowlevel.Task):
        frame = getattr(task.coro, "cr_frame", None)
        if frame is not None and frame.f_code is _EXECUTES:
            return _self(frame)
        task = None if task.parent_nursery is None else task.parent_nursery.parent_task
    return None


def _self(frame: FrameType) -> Execution | None:
    execution = frame.f_locals.get("self")
    return execution if isinstance(execution, Execution) else None


_EXECUTES: CodeType = Execution.__call__.__code__


def _line(innermost: FrameType, execution: Execution | None) -> str:
    """Where the loop stands: the innermost line of the user's own code, and what it has called."""
    own = None if execution is None else execution.file
    for frame in _frames(innermost):
        if frame.f_code is _EXECUTES or frame.f_code.co_name == "unrolled_run":
            break
        file = frame.f_code.co_filename
        if file == own or not file.startswith(("<", *_OURS, *_LIBRARIES)):
            calls = "" if frame is innermost else f" (in {_text(innermost)})"
            return _text(frame) + calls
    return _text(innermost)


def _text(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
