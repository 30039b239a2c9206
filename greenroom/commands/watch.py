"""Output of events: a live table on a terminal, otherwise lines or JSON."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import click
import msgspec
import trio
from msgspec import UNSET
from rich.console import Group, RenderableType
from rich.live import Live
from rich.styled import Styled
from rich.text import Text

from ..gateway.background import background
from ..gateway.client import Client
from ..protocol.events import (
    Event,
    ExecutorChanged,
    FlowChanged,
    HandleChanged,
    InterruptClosed,
    InterruptOpened,
    LaneChanged,
    LeaderChanged,
    NodeChanged,
    NodeRan,
    NodeStarted,
    NodeWorkerChanged,
    RunChanged,
    RunEvent,
    RunLog,
    RunMessage,
    RunProgress,
    RunSignal,
    RunStateChanged,
    RunWaiting,
    ScheduleChanged,
    ScheduleFired,
    ScheduleMissed,
)
from ..protocol.records import RunRecord, Snapshot
from .lane_rules import described
from .live_table import Board
from .output import brief, clean, console, due, echo_json, moment, number, span

_FRAME = 0.1
"""The shortest time between two redraws, in seconds."""
_TICK = 1.0
"""Seconds between two redraws without an event, to update durations."""
_SHARE = 4
"""The pause after a redraw is at least this many times as long as the redraw."""


async def follow(
    client: Client, on_event: Callable[[Event | Snapshot], None], run_id: str | None
) -> RunRecord | None:
    """Call `on_event` with all events from now on; with a run, until it has ended. Returns its last state."""
    if run_id is not None:
        run = client.state.runs.get(run_id)
        if run is None or run.ended:
            return await client.get_run(run_id)
    async for item in client.events(after=client.state.seq):
        on_event(item)
        if run_id is None:
            continue
        run = client.state.runs.get(run_id)
        if run is None or run.ended:
            return await client.get_run(run_id)
    return None


async def show_live(client: Client, board: Board, run_id: str | None = None) -> RunRecord | None:
    """Show the live table until cancelled; with a run, until it has ended. Returns its last state."""
    display = WithConnection(lambda height: board.draw(client.state.snapshot(), height))
    async with live(display.draw) as redraw, reporting_connection(client, display.report, redraw):

        def on_event(item: Event | Snapshot) -> None:
            if not isinstance(item, Snapshot):
                board.handle_event(item)
            redraw()

        return await follow(client, on_event, run_id)


@asynccontextmanager
async def live(draw: Callable[[int], RenderableType]) -> AsyncIterator[Callable[[], None]]:
    """Show a live display on the terminal during the block.

    `draw` receives the terminal's height. It is called after each call of the yielded function, and every
    second.
    """
    terminal = console()
    changed = trio.Event()

    def redraw() -> None:
        changed.set()

    with Live(console=terminal, auto_refresh=False, vertical_overflow="crop") as screen:

        def show() -> float:
            began = time.perf_counter()
            screen.update(draw(terminal.size.height), refresh=True)
            return time.perf_counter() - began

        async def keep_drawing() -> None:
            nonlocal changed
            while True:
                took = show()
                await trio.sleep(max(_FRAME, took * _SHARE))
                with trio.move_on_after(_TICK):
                    await changed.wait()
                changed = trio.Event()

        try:
            async with background() as nursery:
                nursery.start_soon(keep_drawing)
                yield redraw
        finally:
            show()  # the last state stays on the screen


class WithConnection:
    """A display that is frozen and dimmed, with a line above, while the connection is lost."""

    def __init__(self, draw: Callable[[int], RenderableType]) -> None:
        self._draw = draw
        self._lost: tuple[str, float] | None = None
        self._last: RenderableType | None = None

    def report(self, why: str | None) -> None:
        """Report that the connection is lost, or (`None`) restored."""
        self._lost = None if why is None else (why, time.time())
        self._last = None

    def draw(self, height: int) -> RenderableType:
        """The display, in at most `height` lines."""
        if self._lost is None:
            return self._draw(height)
        if self._last is None:  # drawn once: growing durations would look like updates
            self._last = Styled(self._draw(height - 1), "dim")
        why, since = self._lost
        line = Text(f"connection lost {span(time.time() - since)} ago: {why}; retrying", "bold red")
        line.truncate(console().width, overflow="ellipsis")
        return Group(line, self._last)


@asynccontextmanager
async def reporting_connection(
    client: Client, report: Callable[[str | None], None], redraw: Callable[[], None] = lambda: None
) -> AsyncIterator[None]:
    """During the block, call `report` with the reason when the connection is lost, and with `None` when it is
    restored."""

    async def watch() -> None:
        while True:
            report(await client.wait_lost())
            redraw()
            await client.wait_connected()
            report(None)
            redraw()

    async with background() as nursery:
        nursery.start_soon(watch)
        yield


async def show_lines(
    client: Client, passes: Callable[[Event], bool], run_id: str | None = None
) -> RunRecord | None:
    """Print one line per event. The state of the connection is printed on standard error."""
    out = console()

    def on_event(item: Event | Snapshot) -> None:
        if isinstance(item, Snapshot):
            out.print("(some events were missed)", soft_wrap=True)
        elif passes(item):
            out.print(line(item), soft_wrap=True)

    async with reporting_connection(client, echo_connection):
        return await follow(client, on_event, run_id)


def echo_connection(why: str | None) -> None:
    """Print on standard error that the connection is lost or restored."""
    click.echo("connection restored" if why is None else f"connection lost: {why}; retrying", err=True)


async def show_json(
    client: Client, passes: Callable[[Event], bool], run_id: str | None = None
) -> RunRecord | None:
    """Print each event as JSON. A snapshot is printed at the start, and after missed events. A lost or
    restored connection is a line without a `seq`."""

    def on_event(item: Event | Snapshot) -> None:
        if isinstance(item, Snapshot):
            echo_json({"type": "resync", "snapshot": msgspec.to_builtins(item)})
        elif passes(item):
            echo_json(item)

    if run_id is None:
        on_event(client.state.snapshot())
    async with reporting_connection(client, echo_connection_json):
        return await follow(client, on_event, run_id)


def echo_connection_json(why: str | None) -> None:
    """Print as JSON that the connection is lost or restored."""
    if why is None:
        echo_json({"type": "connection_restored", "at": time.time()})
    else:
        echo_json({"type": "connection_lost", "at": time.time(), "reason": why})


def line(event: Event) -> str:
    """An event as one line of text."""
    what = clean(_what(event))
    return f"{moment(event.at)}  {_who(event)}{what}"


def _who(event: Event) -> str:
    if not isinstance(event, RunEvent):
        return ""
    if event.handle.endswith(event.run):  # a handle that is named after the run
        return f"{clean(event.handle)}  "
    return f"{clean(event.handle)} {event.run}  "


def _what(event: Event) -> str:
    if isinstance(event, RunStateChanged):
        reason = f" ({event.reason})" if event.reason else ""
        error = f": {event.error}" if event.error else ""
        executor = f" on {event.executor}" if event.executor else ""
        time = f" (not before {moment(event.not_before)})" if event.not_before else ""
        return f"{event.to}{executor}{time}{reason}{error}"
    if isinstance(event, RunChanged):
        return ", ".join(_changes(event)) or f"changed by {event.by}"
    if isinstance(event, RunProgress):
        total = "" if event.total is None else f" of {number(event.total)}"
        return f"{'–' if event.done is None else number(event.done)}{total}" + (
            f" {brief(event.stats)}" if event.stats else ""
        )
    if isinstance(event, RunLog):
        return f"{event.level}: {event.text}"
    if isinstance(event, RunWaiting):
        why = event.reason or f"blocked by {', '.join(event.blockers)}"
        return f"has waited {span(event.waited)}, {event.ahead} ahead, {why}"
    if isinstance(event, RunMessage):
        return f"message {brief(event.message)} from {event.by}"
    if isinstance(event, RunSignal):
        return f"signal {event.key} = {brief(event.value)} from {event.by}"
    if isinstance(event, NodeStarted):
        return f"node {event.node} ({event.kind}) started" + (
            f", visit {event.visit}" if event.visit > 1 else ""
        )
    if isinstance(event, NodeRan):
        return _ran(event)
    if isinstance(event, InterruptOpened):
        return f"interrupt opened: {brief(event.data)} (greenroom answer {event.interrupt} …)"
    if isinstance(event, InterruptClosed):
        return f"interrupt closed: {event.outcome}" + (
            f" {brief(event.answer)}" if event.answer is not None else ""
        )
    if isinstance(event, LaneChanged):
        limit = f"lane {event.lane}: limit {'none' if event.limit is None else event.limit}"
        return ", ".join(filter(None, (limit, described(event.rules, paused=event.paused))))
    if isinstance(event, HandleChanged):
        return f"handle {event.handle}: " + (
            f"released from run {event.freed}" if event.freed else "new parameters"
        )
    if isinstance(event, FlowChanged):
        return f"flow {event.name}: " + (
            "created" if event.version is None else f"version {event.version} {event.status}"
        )
    if isinstance(event, NodeWorkerChanged):
        return f"worker {event.worker}: {event.status}, serves {', '.join(event.services)}"
    if isinstance(event, ExecutorChanged):
        return _executor(event)
    if isinstance(event, NodeChanged):
        return f"node {event.node} at {event.address}: {event.status}"
    if isinstance(event, LeaderChanged):
        return f"leader: {event.node} at {event.address}, term {event.term}"
    if isinstance(event, ScheduleChanged | ScheduleFired | ScheduleMissed):
        return _schedule(event)
    return f"{event.type} by {event.by}"


def _changes(event: RunChanged) -> Iterator[str]:
    """What a run changes without a transition."""
    if event.waiting_for is not None:
        yield f"waits for {event.waiting_for}" + (", before the others" if event.front else "")
    if event.place is not None:
        yield f"place {event.place} in lane {event.lane}"
    if event.priority is not None:
        yield f"priority {event.priority}, by {event.by}"
    if event.params is not UNSET:
        yield f"new parameters {brief(event.params)}, by {event.by}"
    if event.detached:
        yield "executes without a slot"
    if event.interactive is not None:
        yield "accepts messages" if event.interactive else "accepts no messages"
    if event.streaming is not None:
        yield "streams" if event.streaming else "no longer streams"
    if event.compacting is not None:
        yield "compacts" if event.compacting else "no longer compacts"


def _schedule(event: ScheduleChanged | ScheduleFired | ScheduleMissed) -> str:
    name = f"schedule {event.schedule}"
    if isinstance(event, ScheduleChanged):
        if event.state is None:
            return f"{name}: deleted"
        upcoming = f"next at {due(event.state, event.state.next[0])}" if event.state.next else "paused"
        return f"{name}: {upcoming}"
    if isinstance(event, ScheduleMissed):
        return f"{name}: {event.count} due times left out, up to {moment(event.until)}"
    planned = "" if event.triggered else f" for {moment(event.at_planned)}"
    if event.refused is not None:
        return f"{name}: refused{planned}: {event.error}"
    return f"{name}: {'joined' if event.joined else 'submitted'} run {event.run}{planned}"


def _executor(event: ExecutorChanged) -> str:
    slots = "" if event.slots is None else f", {event.slots} slots"
    labels = f", labels {', '.join(event.labels)}" if event.labels else ""
    jobs = f", jobs {', '.join(event.jobs)}" if event.jobs else ""
    return f"executor {event.executor}: {event.status}{slots}{labels}{jobs}"


def _ran(event: NodeRan) -> str:
    branch = "" if event.branch is None else f", branch {event.branch}"
    attempt = f", attempt {event.attempt}" if event.attempt > 1 else ""
    worker = "" if event.worker is None else f" on {event.worker}"
    action = "" if event.action is None else f" → {event.action}"
    error = "" if event.error is None else f": {event.error}"
    return f"node {event.node}{branch}{attempt}: {event.status}{worker}{action}{error}"
