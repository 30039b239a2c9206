"""The executor's side of a link, as a script: a test decides what it sends."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from greenroom import Engine
from greenroom.actors.executors.connection import Connection, connection_pair

PATIENCE = 1000.0
"""Seconds of the loop's clock."""

ENDED = (trio.EndOfChannel, trio.ClosedResourceError, trio.BrokenResourceError)


class ScriptedExecutor:
    """An executor of an engine, over a connection in memory or another one. Messages are dicts.

    It acknowledges what it receives, while `acknowledges`, and receives while `receives` is set. A heartbeat
    is sent every `beat` seconds while it is connected. The engine's writer can be `frames_in_flight` frames
    ahead of the executor.
    """

    def __init__(self, engine: Engine, name: str = "e1", *, start: str = "p1", beat: float | None = 5.0):
        self.frames_in_flight = 16
        self.receives = trio.Event()
        self.receives.set()
        self.engine = engine
        self.name = name
        self.start = start
        self.beat = beat
        self.acknowledges = True
        self.bodies: dict[tuple[str, int], dict[str, Any]] = {}  # received, and not settled
        self.session: str | None = None
        self.sent = 0  # the number of the last numbered message
        self.received = 0
        self.pending: list[dict[str, Any]] = []  # received messages that the test has not taken
        self.refused: dict[str, Any] | None = None
        self.beaten: list[dict[str, Any]] = []
        self.ended = trio.Event()
        self.connection: Connection | None = None
        self._news = trio.lowlevel.ParkingLot()
        self._calls = itertools.count(1)

    async def connect(self, nursery: trio.Nursery) -> Connection:
        """Open a connection that the engine serves."""
        ours, theirs = connection_pair(self.frames_in_flight)
        nursery.start_soon(self.engine.executors.serve, theirs)
        return ours

    async def attach(self, nursery: trio.Nursery, *jobs: Any, resume: bool = False, **fields: Any) -> Any:
        """Attach, and receive in the nursery; returns `attached` or `refused`. A session is resumed with the
        bodies that were received."""
        await self.leave()
        connection = self.connection = await self.connect(nursery)
        terms = [{"name": job} if isinstance(job, str) else job for job in jobs or ("work",)]
        message = {"type": "attach", "executor": self.name, "start": self.start, "jobs": terms, "slots": 8}
        if resume:
            bodies = [live(body) for body in self.bodies.values()]
            message |= {"session": self.session, "received": self.received, "bodies": bodies}
        answer = await self.exchange(message | fields)
        if answer["type"] == "attached":
            if not answer["resumed"]:
                self.session, self.sent, self.received = answer["session"], 0, 0
                self.pending.clear()
            self.ended = trio.Event()
            nursery.start_soon(self._receive, connection, self.ended)
            if self.beat is not None:
                nursery.start_soon(self._beat, connection, self.beat)
        return answer

    async def exchange(self, message: dict[str, Any]) -> Any:
        """Send a frame, and receive one."""
        assert self.connection is not None
        await self.raw(json.dumps(message).encode())
        with trio.fail_after(PATIENCE):
            return json.loads(await self.connection.receive())

    async def raw(self, frame: bytes) -> None:
        """Send a frame as it is."""
        assert self.connection is not None
        await self.connection.send(frame)

    async def leave(self) -> None:
        """Lose the connection, if there is one."""
        connection, self.connection = self.connection, None
        if connection is not None:
            await connection.aclose()
            await trio.testing.wait_all_tasks_blocked()

    async def send(self, *messages: dict[str, Any]) -> None:
        """Send messages in one frame."""
        first, self.sent = self.sent + 1, self.sent + len(messages)
        frame = {"type": "frame", "first": first, "ack": self.received, "messages": messages}
        await self.raw(json.dumps(frame).encode())

    async def receive(self, kind: str) -> Any:
        """Take the next message of this type; earlier ones of other types stay."""
        with trio.fail_after(PATIENCE):
            while True:
                for index, message in enumerate(self.pending):
                    if message["type"] == kind:
                        return self.pending.pop(index)
                await self._news.park()

    def has(self, kind: str) -> int:
        """The number of messages of this type that the test has not taken."""
        return sum(message["type"] == kind for message in self.pending)

    async def closed(self) -> Any:
        """Wait until the engine has closed the connection; returns the `refused` message, if any."""
        with trio.fail_after(PATIENCE):
            await self.ended.wait()
        return self.refused

    # About a body, which is identified by its `execute` message.

    async def call(self, body: dict[str, Any], request: str, **fields: Any) -> int:
        """Send a call; returns its number."""
        number = next(self._calls)
        await self.send(self.calling(body, number, request, **fields))
        return number

    async def answer(self, call: int) -> Any:
        """The next answer to this call."""
        with trio.fail_after(PATIENCE):
            while True:
                for index, message in enumerate(self.pending):
                    if message["type"] == "answered" and message["call"] == call:
                        return self.pending.pop(index)
                await self._news.park()

    async def ask(self, body: dict[str, Any], request: str, **fields: Any) -> Any:
        """Send a call, and wait for its answer."""
        return await self.answer(await self.call(body, request, **fields))

    async def report(self, body: dict[str, Any], report: str, **fields: Any) -> None:
        """Send a report."""
        await self.send(about(body, "report", report={"type": report, **fields}))

    async def end(self, body: dict[str, Any], outcome: str = "returned", **fields: Any) -> Any:
        """Send the end of a body, and wait until it is settled."""
        await self.send(ended(body, outcome, **fields))
        return await self.receive("settled")

    @staticmethod
    def calling(body: dict[str, Any], call: int, request: str, **fields: Any) -> dict[str, Any]:
        return about(body, "call", call=call, request={"type": request, **fields})

    # Internals.

    async def _receive(self, connection: Connection, ended: trio.Event) -> None:
        try:
            while True:
                await self.receives.wait()
                frame = json.loads(await connection.receive())
                if frame["type"] == "beaten":
                    self.beaten.append(frame)
                elif frame["type"] == "refused":
                    self.refused = frame
                else:
                    new = frame.get("messages", [])[max(0, self.received - frame["first"] + 1) :]
                    self.received += len(new)
                    self.pending += new
                    self._note_bodies(new)
                    if new and self.acknowledges and connection is self.connection:
                        await self.send()
                self._news.unpark_all()
        except ENDED:
            ended.set()

    def _note_bodies(self, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            if message["type"] == "execute":
                self.bodies[message["run"], message["fence"]] = message
            elif message["type"] == "settled":
                self.bodies.pop((message["run"], message["fence"]), None)

    async def _beat(self, connection: Connection, every: float) -> None:
        try:
            while connection is self.connection:
                beat = {"type": "beat", "executor": self.name, "start": self.start, "sent": 1.0}
                await connection.send(json.dumps(beat).encode())
                await trio.sleep(every)
        except ENDED:
            pass


def about(body: dict[str, Any], kind: str, **fields: Any) -> dict[str, Any]:
    """A message about a body."""
    return {"type": kind, "run": body["run"], "fence": body["fence"], **fields}


def ended(body: dict[str, Any], outcome: str = "returned", **fields: Any) -> dict[str, Any]:
    """The end of a body."""
    return about(body, "ended", outcome=outcome, **fields)


def live(body: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A body as `attach` lists it."""
    return {"run": body["run"], "attempt": body["attempt"], "fence": body["fence"], **fields}


@asynccontextmanager
async def connections() -> AsyncIterator[trio.Nursery]:
    """A nursery for connections, which end with it."""
    async with trio.open_nursery() as nursery:
        yield nursery
        nursery.cancel_scope.cancel()
