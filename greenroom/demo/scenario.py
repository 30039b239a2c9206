"""The scenario of the demo: mirror five accounts, three at a time, with a conflict, cancels and an interrupt.

Each step except the answer to the interrupt is triggered by an event, so that the demo is the same on a slow
machine. The demo uses the gateway like any other client.
"""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import trio

from ..actors.engine.open import open_engine
from ..commands.connection import DEFAULT_URL
from ..commands.watch import show_live
from ..gateway.client import Client, ClientTicket, connect
from ..gateway.config import GatewayConfig
from ..gateway.server import open_gateway
from ..protocol.errors import Conflict
from ..protocol.records import RunRecord
from ..protocol.states import Status
from . import site
from .display import Display, keyboard
from .mirroring import jobs

ACCOUNTS = ("alice", "bob", "carol", "dave", "erin")
_LOOPBACK = "127.0.0.1"
_READING = 2.0
"""Seconds before the demo answers the interrupt itself."""
_BETWEEN_ROUNDS = 10.0


async def play(folder: Path, *, once: bool) -> bool:
    """Run the demo until it ends, or a signal ends it. Returns whether the runs ended as expected."""
    succeeded = True
    with keyboard() as pressed, trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        display = Display("keys:  y, n  answer   q  quit" if pressed else "")
        async with trio.open_nursery() as nursery:
            [listener] = await nursery.start(partial(trio.serve_tcp, site.serve, 0, host=_LOOPBACK))
            store, data = f"sqlite:///{folder / 'greenroom.db'}", folder / "data"
            async with (
                open_engine(jobs, store, max_concurrent=3, data_dir=data, shutdown_timeout=0) as engine,
                open_gateway(engine, listeners=await _listeners()) as gateway,
                connect(gateway.url) as client,
            ):
                display.announce(
                    f"gateway  {gateway.url}   store and files  {folder}",
                    f"in another terminal:  {command(gateway.url, 'watch')}",
                )
                scenario = Scenario(
                    client, display, f"http://{_LOOPBACK}:{listener.socket.getsockname()[1]}", data
                )
                async with trio.open_nursery() as playing:
                    playing.start_soon(end_at_signal, signals, playing.cancel_scope)
                    if display.live:
                        playing.start_soon(show_live, client, display)
                    if pressed is not None:
                        playing.start_soon(scenario.take_keys, pressed(), playing.cancel_scope)
                    succeeded = await scenario.round(answers=once)
                    while not once:
                        display.show(f"The next round starts in {_BETWEEN_ROUNDS:g} seconds.")
                        await trio.sleep(_BETWEEN_ROUNDS)
                        await scenario.round(answers=False)
                    playing.cancel_scope.cancel()
            nursery.cancel_scope.cancel()
    return succeeded


async def _listeners() -> list[trio.SocketListener]:
    """Listen on the default port, or on a free port if that is in use."""
    try:
        return list(await trio.open_tcp_listeners(GatewayConfig().port, host=_LOOPBACK))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return list(await trio.open_tcp_listeners(0, host=_LOOPBACK))


async def end_at_signal(signals: AsyncIterator[int], playing: trio.CancelScope) -> None:
    """Cancel the demo at the first signal."""
    async for _ in signals:
        playing.cancel()


class Scenario:
    """The clients of the demo. They show messages about their actions."""

    def __init__(self, client: Client, display: Display, site: str, data: Path) -> None:
        self._client = client
        self._display = display
        self._site = site
        self._data = data

    async def round(self, *, answers: bool) -> bool:
        """Play one round. Returns whether the runs ended as expected."""
        self._display.show(
            f"Mirroring {len(ACCOUNTS)} accounts, at most three at a time; the others are queued."
        )
        tickets = {account: await self._submit(account) for account in ACCOUNTS}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._start_twice, "alice", tickets["alice"])
            nursery.start_soon(self._cancel, "bob", tickets["bob"], 2, "keep")
            nursery.start_soon(self._cancel, "carol", tickets["carol"], 3, "delete")
            nursery.start_soon(self._watch_interrupt, "erin", tickets["erin"], answers)
            ended = {account: await self._client.ended(ticket.id) for account, ticket in tickets.items()}
            nursery.cancel_scope.cancel()
        return self._sum_up(ended)

    async def take_keys(self, keys: AsyncIterator[str], playing: trio.CancelScope) -> None:
        """Answer the oldest interrupt, or quit."""
        async for key in keys:
            if key == "q":
                playing.cancel()
            elif key in "yn" and (interrupts := list(self._client.state.interrupts)):
                await self._client.answer(interrupts[0], {"approved": key == "y"})

    async def _submit(self, account: str) -> ClientTicket:
        return await self._client.submit(
            "mirror", handle=account, params={"site": self._site, "account": account}
        )

    async def _start_twice(self, account: str, ticket: ClientTicket) -> None:
        await self._until(ticket, lambda run: files(run) >= 1)
        try:
            await self._submit(account)
        except Conflict as error:
            active = error.details["active_run"]
            self._display.show(f"{account} is submitted again: conflict, run …{active[-6:]} is active.")

    async def _cancel(self, account: str, ticket: ClientTicket, after: int, fate: str) -> None:
        await self._until(ticket, lambda run: files(run) >= after)
        try:
            await self._client.cancel(ticket.id, "delete" if fate == "delete" else "keep")
        except Conflict:
            return  # another client has cancelled it already
        run = await self._client.ended(ticket.id)
        left = len(self._files(account))
        what = f"its {left} finished files are kept" if fate == "keep" else f"{left} of its files remain"
        self._display.show(f"{account} is cancelled with files={fate}: {run.status}, {what}.")

    async def _watch_interrupt(self, account: str, ticket: ClientTicket, answers: bool) -> None:
        await self._until(ticket, lambda run: run.id in self._interrupts())
        interrupt = self._interrupts()[ticket.id]
        how = (
            "" if answers else f" In another terminal: {command(self._client.url, 'answer', account, 'yes')}"
        )
        self._display.show(f"{account} opens an interrupt, and waits for an answer.{how}")
        if answers:
            await trio.sleep(_READING)
            outcome = await self._client.answer(interrupt, {"approved": True})
            self._display.show(f"The demo answers yes: {outcome}.")

    def _sum_up(self, ended: dict[str, RunRecord]) -> bool:
        found = {account: len(self._files(account)) for account in ended}
        parts = sum(path.suffix == ".part" for path in self._data.rglob("*"))
        counts = ", ".join(f"{account} {count}" for account, count in found.items())
        self._display.show(f"Files on disk: {counts}; unfinished files: {parts}.")
        expected = dict.fromkeys(ACCOUNTS, Status.SUCCEEDED) | dict.fromkeys(
            ("bob", "carol"), Status.CANCELLED
        )
        return {account: run.status for account, run in ended.items()} == expected and not parts

    def _interrupts(self) -> dict[str, str]:
        return {interrupt.run: id for id, interrupt in self._client.state.interrupts.items()}

    def _files(self, account: str) -> list[Path]:
        return [path for path in (self._data / account).glob("*") if path.suffix != ".part"]

    async def _until(self, ticket: ClientTicket, holds: Callable[[RunRecord], bool]) -> None:
        """Wait until a condition on a run is true, or forever if the run ends before."""
        client = self._client
        if holds(client.state.runs[ticket.id]):
            return
        async for _ in client.events(after=client.state.seq):
            run = client.state.runs.get(ticket.id)
            if run is not None and holds(run):
                return


def command(url: str, *words: str) -> str:
    """A `greenroom` command for another terminal in the current folder."""
    program = "greenroom"
    if shutil.which(program) is None:
        program = os.path.relpath(Path(sys.executable).with_name(program))
    server = "" if urlsplit(url).netloc == urlsplit(DEFAULT_URL).netloc else f" --url {url}"
    return f"{program} {shlex.join(words)}{server}"


def files(run: RunRecord) -> int:
    """The number of finished files in a run's progress."""
    return int((run.progress or {}).get("files", 0))
