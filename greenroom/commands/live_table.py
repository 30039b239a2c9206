"""The live table of `watch` and of the demo: executors, pending runs, open interrupts and ended runs.

It is independent of the connection: callers pass it each event, and a snapshot to draw.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from itertools import islice

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..protocol.events import Event, RunLog, RunStateChanged
from ..protocol.records import RunRecord, Snapshot
from ..protocol.states import ENDED, Status
from .output import STYLES, brief, clean, number, span, waits_for

_BAR = 16
_ORDER = {
    Status.RUNNING: 0,
    Status.CANCELLING: 0,
    Status.SUSPENDED: 1,
    Status.QUEUED: 2,
}
_EXECUTING = (Status.RUNNING, Status.CANCELLING)
_MARKS = {
    Status.QUEUED: "·",
    Status.RUNNING: "▶",
    Status.SUSPENDED: "‖",
    Status.CANCELLING: "✕",
    Status.SUCCEEDED: "✔",
    Status.FAILED: "✘",
    Status.TIMED_OUT: "✘",
    Status.REJECTED: "✘",
    Status.CANCELLED: "✕",
}


class Board:
    """The live table. Only runs for which `passes` is true are shown."""

    def __init__(
        self,
        passes: Callable[[RunRecord], bool] = lambda run: True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._passes = passes
        self._clock = clock
        self._log_texts: dict[str, str] = {}

    def handle_event(self, event: Event) -> None:
        """Keep the last log text of each pending run."""
        if isinstance(event, RunLog):
            self._log_texts[event.run] = event.text
        elif isinstance(event, RunStateChanged) and event.to in ENDED:
            self._log_texts.pop(event.run, None)

    def draw(self, state: Snapshot, height: int) -> RenderableType:
        """The table, in at most `height` lines."""
        interrupts = {interrupt.run: interrupt for interrupt in state.interrupts.values()}
        asked = [
            Text.assemble(
                ("? ", STYLES[Status.SUSPENDED]),
                (clean(brief(interrupt.data)), "bold"),
                (f"   greenroom answer {clean(state.runs[interrupt.run].handle)} …", "dim"),
                no_wrap=True,
                overflow="ellipsis",
            )
            for interrupt in interrupts.values()
            if self._passes(state.runs[interrupt.run])
        ]
        executors = [] if not state.executors else [_executors(state)]
        room = max(1, height - 3 - len(asked) - len(executors))
        runs = self._visible(state, room)
        table = Table(box=None, expand=True, pad_edge=False, header_style="bold")
        table.add_column("", width=1)
        for name, most in (("handle", 30), ("job", 20), ("status", 24)):
            table.add_column(name, max_width=most, no_wrap=True, overflow="ellipsis")
        with_executors = any(run.executor for run in runs)
        if with_executors:
            table.add_column("executor", max_width=20, no_wrap=True, overflow="ellipsis")
        table.add_column("progress", width=_BAR + 13, no_wrap=True)
        table.add_column("time", justify="right", no_wrap=True)
        table.add_column("what", ratio=1, no_wrap=True, overflow="ellipsis")
        for run in runs:
            asks = interrupts.get(run.id)
            what = clean(brief(asks.data)) if asks else self._what(run)
            style = STYLES[run.status]
            why = f" ({run.reason})" if run.reason and run.ended and run.reason != run.status else ""
            table.add_row(
                Text(_MARKS[run.status], style),
                Text(clean(run.handle), "dim" if run.ended else ""),
                Text(clean(run.job), "dim" if run.ended else ""),
                Text(f"{run.status}{why}", style),
                *([Text(clean(run.executor or ""), "dim" if run.ended else "")] if with_executors else ()),
                _progress(run),
                Text(span(self._time(run)), "dim" if run.ended else ""),
                Text(what, "dim" if run.ended and run.error is None else ""),
            )
        return Group(_head(state), *executors, table, *asked)

    def _visible(self, state: Snapshot, room: int) -> list[RunRecord]:
        """The pending runs, the most active first; then the last ended runs, if there is room."""
        pending = [run for run in state.runs.values() if not run.ended and self._passes(run)]
        pending.sort(key=lambda run: (_ORDER[run.status], run.place is None, run.place or 0, run.id))
        ended = (run for run in reversed(state.runs.values()) if run.ended and self._passes(run))
        return [*pending[:room], *islice(ended, max(0, room - len(pending)))]

    def _time(self, run: RunRecord) -> float:
        end = run.ended_at if run.ended_at is not None else self._clock()
        return end - (run.started_at if run.started_at is not None else run.created_at)

    def _what(self, run: RunRecord) -> str:
        if run.error is not None:
            return clean(run.error)
        if run.delayed:
            return waits_for(run) or ""
        if run.status in (Status.SUSPENDED, Status.QUEUED) and run.waiting_for:
            return f"waits for {run.waiting_for}"
        if run.status == Status.QUEUED:
            return "waits in its handle" if run.place is None else f"waits in lane {run.lane}"
        return clean(self._log_texts.get(run.id, ""))


def _head(state: Snapshot) -> Text:
    engine = state.engine
    head = Text.assemble(
        (f"{engine.executing}/{engine.max_concurrent} executing", "bold"), f"   {engine.queued} queued   "
    )
    for name, lane in state.lanes.items():
        if name != "main":
            limit = "–" if lane.limit is None else lane.limit
            head.append(f"{clean(name)} {len(lane.executing)}/{limit} + {len(lane.queued)}   ", "dim")
    if engine.draining:
        head.append("draining", "bold yellow")
    return head


def _executors(state: Snapshot) -> Text:
    """The executors on one line: name, status unless attached, bodies that execute, and slots."""
    bodies = Counter(run.executor for run in state.runs.values() if run.status in _EXECUTING)
    line = Text("executors   ", no_wrap=True, overflow="ellipsis")
    for name, executor in sorted(state.executors.items()):
        slots = "–" if executor.slots is None else executor.slots
        line.append(f"{clean(name)} {bodies[name]}/{slots}")
        if executor.status != "attached":
            line.append(f" {clean(executor.status)}", "bold yellow")
        line.append("   ")
    return line


def _progress(run: RunRecord) -> RenderableType:
    done, total = (run.progress or {}).get("done"), (run.progress or {}).get("total")
    if not isinstance(done, int | float):
        return Text("")
    if not isinstance(total, int | float) or total <= 0:
        return Text(number(done))
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=_BAR)
    grid.add_column()
    colour = STYLES[run.status]
    bar = ProgressBar(total, done, _BAR, complete_style=colour, finished_style=colour)
    grid.add_row(bar, Text(f"{number(done)}/{number(total)}"))
    return grid
