"""The gateway's own subscriber: it follows all events, for the command `wait` and for the metrics."""

from __future__ import annotations

from collections.abc import Callable

import trio

from ...actors.engine.api import Engine
from ...actors.journal.stream import FellBehind
from ...protocol.events import Event, RunStateChanged
from ...protocol.records import RunRecord
from ...protocol.states import ENDED
from ...protocol.validation import check_seconds


class Endings:
    """Wakes tasks that wait for the end of a run. `on_event` is called with every event."""

    def __init__(self, engine: Engine, on_event: Callable[[Event], None]) -> None:
        self._engine = engine
        self._on_event = on_event
        self._waiting: dict[str, dict[trio.Event, None]] = {}

    async def wait(self, run_id: str, timeout: float | None) -> RunRecord:
        """Wait at most `timeout` seconds (default 15) for the end of a run. Returns the run as it is then."""
        with trio.move_on_after(check_seconds("timeout", timeout, 15)):
            return await self._end(run_id)
        return await self._engine.get_run(run_id)

    async def _end(self, run_id: str) -> RunRecord:
        waiting = self._waiting.setdefault(run_id, {})
        while True:
            woken = trio.Event()
            waiting[woken] = None  # before `get_run`, so that no end is missed in between
            try:
                run = await self._engine.get_run(run_id)
                if run.ended:
                    return run
                await woken.wait()
            finally:
                del waiting[woken]
                if not waiting and self._waiting.get(run_id) is waiting:
                    del self._waiting[run_id]
            waiting = self._waiting.setdefault(run_id, waiting)

    async def follow(self, after: int) -> None:
        """Follow the events until the engine has stopped."""
        cursor = self._engine.stream.cursor(after)
        while True:
            try:
                published = await cursor.take()
            except FellBehind:
                cursor.seq = self._engine.stream.last_seq
                for run_id in list(self._waiting):
                    self._wake(run_id)  # each calls `get_run` again
                continue
            if not published:
                return
            for one in published:
                event = one.event
                self._on_event(event)
                if type(event) is RunStateChanged and event.to in ENDED:
                    self._wake(event.run)

    def _wake(self, run_id: str) -> None:
        for woken in self._waiting.get(run_id, ()):
            woken.set()
