"""An executor that sends what it must not: reports about bodies of others, wrong numbers, and garbage.

It attaches under its own name and without jobs, so that no run is given to it, and no report of it may have
an effect.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import msgspec
import trio

from ...actors.executors.connection import StreamConnection
from ...protocol.executors import (
    Attach,
    Beat,
    Call,
    Ended,
    ExecutorFrame,
    FilesDeleted,
    FinishFile,
    LiveBody,
    Progress,
    SaveCheckpoint,
    Told,
    TookMessages,
    WriteLog,
)
from ..model.state import ModelRun
from ..world.network import Line
from ..world.server import Server
from ..world.world import World

_ATTACKS = ("reports", "reports", "reports", "ends", "ends", "numbers", "garbage", "again", "beats")


class Hostile:
    """See the module's docstring."""

    def __init__(self, world: World, server: Server) -> None:
        self._world = world
        self._server = server
        self._random = world.derived("hostile")

    async def attack(self, random: Random) -> None:
        """Attach, send something, and leave."""
        line = Line(self._random, None, lambda: None)
        connection = StreamConnection(line.near)
        runs = list(self._server.rules.model.runs.values())
        with suppress(ConnectionRefusedError, trio.BrokenResourceError, trio.EndOfChannel):
            self._server.accept_executor(line)
            self._world.fault("hostile", "attaches")
            live = tuple(LiveBody(run.id, run.attempt, run.fence) for run in runs)
            attach = Attach(executor="hostile", start="h1", jobs=(), bodies=live)
            await connection.send(msgspec.json.encode(attach))
            await connection.receive()
            attack = getattr(self, f"_{random.choice(_ATTACKS)}")
            for frame in attack(random, random.choices(runs, k=5) if runs else []):
                await connection.send(frame)
            with trio.move_on_after(random.choice((0.0, 1.0))):
                while True:
                    await connection.receive()
        await connection.aclose()

    def _reports(self, random: Random, runs: list[ModelRun]) -> list[bytes]:
        """Reports and calls of bodies of others, with the right and with wrong fences."""
        messages: list[Any] = []
        for number, run in enumerate(runs):
            fence = random.choice((run.fence, run.fence - 1, 10**6))
            report = random.choice((Progress(7, 7, {"fence": "hostile"}), TookMessages(10**6)))
            messages.append(Told(run.id, fence, report))
            request = random.choice(
                (WriteLog("hostile", "info"), SaveCheckpoint({"part": 9, "fence": 0}, 0, 0), FinishFile("x"))
            )
            messages.append(Call(run.id, fence, number, request))
        return [msgspec.json.encode(ExecutorFrame(1, 0, tuple(messages)))]

    def _ends(self, random: Random, runs: list[ModelRun]) -> list[bytes]:
        """Ends of bodies of others."""
        ends = tuple(
            Ended(
                run=run.id,
                fence=random.choice((run.fence, run.fence - 1, 0)),
                outcome=random.choice(("returned", "raised", "stopped", "lapsed", "refused")),
                value={"fence": "hostile"},
                error="hostile",
            )
            for run in runs
        )
        frame = msgspec.json.encode(ExecutorFrame(1, 0, ends))
        return [frame, frame]  # the second one is a duplicate

    def _numbers(self, random: Random, runs: list[ModelRun]) -> list[bytes]:
        """Frames with wrong numbers."""
        first, ack = random.choice(((5, 0), (1, 99), (0, 0), (-1, -1)))
        return [msgspec.json.encode(ExecutorFrame(first, ack, (FilesDeleted(99),)))]

    def _garbage(self, random: Random, runs: list[ModelRun]) -> list[bytes]:
        return [random.choice((b"{", b"null", b'{"type":"frame"}', b'{"type":"attached"}', b"\xff"))]

    def _again(self, random: Random, runs: list[ModelRun]) -> list[bytes]:
        return [msgspec.json.encode(Attach(executor="hostile", start="h2", jobs=()))]

    def _beats(self, random: Random, runs: list[ModelRun]) -> list[bytes]:
        """Many beats, also for others."""
        names = ["hostile", "e0", "e1"]
        return [msgspec.json.encode(Beat(random.choice(names), "h1", float(n))) for n in range(40)]
