"""Following a server: as a live table on a terminal, else as lines, or as JSON for programs."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import click
import msgspec
import trio
from rich.console import Group, RenderableType
from rich.live import Live
from rich.styled import Styled
from rich.text import Text

from ..gateway.background import background
from ..gateway.client import Client
from ..protocol.events import (
    Event,
    FlowChanged,
    HandleChanged,
    InterruptClosed,
    InterruptOpened,
    LaneChanged,
    NodeRan,
    NodeStarted,
    NodeWorkerChanged,
    RunEvent,
    RunLog,
    RunMessage,
    RunProgress,
    RunSignal,
    RunStateChanged,
    RunWaiting,
)
from ..protocol.records import RunRecord, Snapshot
from .live_table import Board
from .output import brief, clean, console, moment, number, say_json, span

_FRAME = 0.1
"""Seconds between two pictures, at least."""
_TICK = 1.0
"""Seconds between two pictures when nothing happens, because times pass all the same."""
_SHARE = 4
"""A picture that takes long to draw is followed by a pause that is so many times as long."""


async def follow(
    client: Client, tell: Callable[[Event | Snapshot], None], run_id: str | None
) -> RunRecord | None:
    """Tell of everything from now on; of one run until it has ended, and its last state is returned."""
    if run_id is not None:
        run = client.state.runs.get(run_id)
        if run is None or run.ended:
            return await client.get_run(run_id)
    async for item in client.events(after=client.state.seq):
        tell(item)
        if run_id is None:
            continue
        run = client.state.runs.get(run_id)
        if run is None or run.ended:
            return await client.get_run(run_id)
    return None


async def show_live(client: Client, board: Board, run_id: str | None = None) -> RunRecord | None:
    """The live table, until cancelled; with a run, until that has ended."""
    picture = WithConnection(lambda height: board.draw(client.state.snapshot(), height))
    async with live(picture.draw) as news, told_of_connection(client, picture.tell, news):

        def tell(item: Event | Snapshot) -> None:
            if not isinstance(item, Snapshot):
                board.hear(item)
            news()

        return await follow(client, tell, run_id)


@asynccontextmanager
async def live(draw: Callable[[int], RenderableType]) -> AsyncIterator[Callable[[], None]]:
    """A picture on the terminal for as long as the block lasts. `draw` is given the terminal's height; it is
    asked for a new picture when what is yielded here is called, and when it may look different for the time.
    """
    terminal = console()
    changed = trio.Event()

    def news() -> None:
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
                yield news
        finally:
            show()  # what stays on the screen is how it ended


class WithConnection:
    """A picture that stands still, dimmed and with a line on top, while there is no connection."""

    def __init__(self, draw: Callable[[int], RenderableType]) -> None:
        self._draw = draw
        self._lost: tuple[str, float] | None = None
        self._last: RenderableType | None = None

    def tell(self, why: str | None) -> None:
        """The connection is lost, or (`None`) there is one again."""
        self._lost = None if why is None else (why, time.time())
        self._last = None

    def draw(self, height: int) -> RenderableType:
        """The picture, in so many lines."""
        if self._lost is None:
            return self._draw(height)
        if self._last is None:  # drawn once: times that grew would look as if the runs were followed
            self._last = Styled(self._draw(height - 1), "dim")
        why, since = self._lost
        line = Text(f"connection lost {span(time.time() - since)} ago: {why}; retrying", "bold red")
        line.truncate(console().width, overflow="ellipsis")
        return Group(line, self._last)


@asynccontextmanager
async def told_of_connection(
    client: Client, tell: Callable[[str | None], None], news: Callable[[], None] = lambda: None
) -> AsyncIterator[None]:
    """While the block lasts, tell why the connection is lost, and (`None`) when there is one again."""

    async def watch() -> None:
        while True:
            tell(await client.wait_lost())
            news()
            await client.wait_connected()
            tell(None)
            news()

    async with background() as nursery:
        nursery.start_soon(watch)
        yield


async def show_lines(
    client: Client, passes: Callable[[Event], bool], run_id: str | None = None
) -> RunRecord | None:
    """A line per event, for what is no terminal. Of the connection it is standard error that tells."""
    out = console()

    def tell(item: Event | Snapshot) -> None:
        if isinstance(item, Snapshot):
            out.print("(some events were missed)", soft_wrap=True)
        elif passes(item):
            out.print(line(item), soft_wrap=True)

    async with told_of_connection(client, say_connection):
        return await follow(client, tell, run_id)


def say_connection(why: str | None) -> None:
    """A line on standard error: the connection is lost, or there is one again."""
    click.echo("connected again" if why is None else f"connection lost: {why}; retrying", err=True)


async def show_json(
    client: Client, passes: Callable[[Event], bool], run_id: str | None = None
) -> RunRecord | None:
    """Each event as it is on the wire. Where some were missed, and at the beginning, comes a snapshot. A
    connection that is lost, and found again, is a line of its own, without a `seq`."""

    def tell(item: Event | Snapshot) -> None:
        if isinstance(item, Snapshot):
            say_json({"type": "resync", "snapshot": msgspec.to_builtins(item)})
        elif passes(item):
            say_json(item)

    if run_id is None:
        tell(client.state.snapshot())
    async with told_of_connection(client, say_connection_as_json):
        return await follow(client, tell, run_id)


def say_connection_as_json(why: str | None) -> None:
    """The same as a line of JSON among the others."""
    if why is None:
        say_json({"type": "connection_restored", "at": time.time()})
    else:
        say_json({"type": "connection_lost", "at": time.time(), "reason": why})


def line(event: Event) -> str:
    """An event in a line for people."""
    what = clean(_what(event))
    return f"{moment(event.at)}  {_who(event)}{what}"


def _who(event: Event) -> str:
    if not isinstance(event, RunEvent):
        return ""
    if event.handle.endswith(event.run):  # a handle of its own, named after it
        return f"{clean(event.handle)}  "
    return f"{clean(event.handle)} {event.run}  "


def _what(event: Event) -> str:
    if isinstance(event, RunStateChanged):
        reason = f" ({event.reason})" if event.reason else ""
        error = f": {event.error}" if event.error else ""
        return f"{event.to}{reason}{error}"
    if isinstance(event, RunProgress):
        total = "" if event.total is None else f" of {number(event.total)}"
        return f"{'–' if event.done is None else number(event.done)}{total}" + (
            f" {brief(event.stats)}" if event.stats else ""
        )
    if isinstance(event, RunLog):
        return f"{event.level}: {event.text}"
    if isinstance(event, RunWaiting):
        return f"has waited {span(event.waited)}, {event.ahead} ahead, blocked by {', '.join(event.blockers)}"
    if isinstance(event, RunMessage):
        return f"is told {brief(event.message)} by {event.by}"
    if isinstance(event, RunSignal):
        return f"is told {event.key} = {brief(event.value)} by {event.by}"
    if isinstance(event, NodeStarted):
        return f"node {event.node} ({event.kind}) begins" + (
            f", visit {event.visit}" if event.visit > 1 else ""
        )
    if isinstance(event, NodeRan):
        return _ran(event)
    if isinstance(event, InterruptOpened):
        return f"asks {brief(event.data)} (greenroom answer {event.interrupt} …)"
    if isinstance(event, InterruptClosed):
        return f"interrupt closed: {event.outcome}" + (
            f" {brief(event.answer)}" if event.answer is not None else ""
        )
    if isinstance(event, LaneChanged):
        return f"lane {event.lane}: limit {'none' if event.limit is None else event.limit}"
    if isinstance(event, HandleChanged):
        return f"handle {event.handle}: " + (f"freed from {event.freed}" if event.freed else "new parameters")
    if isinstance(event, FlowChanged):
        return f"flow {event.name}: " + (
            "made" if event.version is None else f"version {event.version} {event.status}"
        )
    if isinstance(event, NodeWorkerChanged):
        return f"worker {event.worker}: {event.status}, serves {', '.join(event.services)}"
    return f"{event.type} by {event.by}"


def _ran(event: NodeRan) -> str:
    branch = "" if event.branch is None else f", branch {event.branch}"
    attempt = f", try {event.attempt}" if event.attempt > 1 else ""
    worker = "" if event.worker is None else f" on {event.worker}"
    action = "" if event.action is None else f" → {event.action}"
    error = "" if event.error is None else f": {event.error}"
    return f"node {event.node}{branch}{attempt}: {event.status}{worker}{action}{error}"
