"""The engine's side of a link, as a script: a test decides what it sends."""

import random
from collections import deque
from contextlib import asynccontextmanager

import msgspec
import trio

from greenroom import Jobs
from greenroom.actors.executors.connection import Connection, connection_pair
from greenroom.executor.executor import Executor, Identity
from greenroom.persistence.files import DiskFiles
from greenroom.protocol.executors import (
    Answered,
    Attach,
    Attached,
    Beat,
    Beaten,
    Call,
    Ended,
    Execute,
    ExecutorFrame,
    ExecutorSends,
    Settled,
    Told,
)
from greenroom.protocol.numbering import Incoming, Outgoing

DECODE = msgspec.json.Decoder(ExecutorSends).decode

_PATIENCE = 100_000
"""Seconds. The clock of a test jumps from beat to beat while a thread writes a file or calls a function:
about 300 s in 20 ms."""


class ScriptedEngine:
    """Accepts the connections of one executor. It answers beats while `answers_beats`, and acknowledges what
    it receives while `acknowledges`; all else is up to the test: `attach` waits for the executor, `send`
    sends it messages, `receive` takes what it has sent."""

    def __init__(self, ttl: float = 30.0, max_value_bytes: int = 1 << 20) -> None:
        self.ttl = ttl
        self.max_value_bytes = max_value_bytes
        self.answers_beats = True
        self.acknowledges = True
        self.reachable = True
        self.frames = 0  # how many were received
        self.sessions = 0
        self._arrivals = trio.open_memory_channel[Connection](100)
        self.restart()

    def restart(self) -> None:
        """Forget everything, as a new process."""
        self.session = ""
        self._outgoing = Outgoing()
        self._incoming = Incoming()
        self._received = deque()
        self._news = trio.lowlevel.ParkingLot()
        self._connection: Connection | None = None

    async def connect(self) -> Connection:
        """For the executor."""
        if not self.reachable:
            await trio.lowlevel.checkpoint()
            raise OSError("engine unreachable")
        ours, theirs = connection_pair()
        await self._arrivals[0].send(ours)
        return theirs

    async def attach(
        self, nursery: trio.Nursery, *, adopts=True, ttl=None, before_answer=lambda: None
    ) -> Attach:
        """Wait for a connection, and answer its `attach`; then frames are received in the nursery."""
        with trio.fail_after(_PATIENCE):
            connection = await self._arrivals[1].receive()
        attach = DECODE(await connection.receive())
        assert isinstance(attach, Attach)
        resumed = bool(self.session) and attach.session == self.session
        if resumed:
            self._outgoing.reconnect(attach.received)
        else:
            self.sessions += 1
            self.session = f"s{self.sessions}"
            self._outgoing, self._incoming = Outgoing(), Incoming()
        attached = Attached(
            session=self.session,
            resumed=resumed,
            ttl=ttl or self.ttl,
            max_value_bytes=self.max_value_bytes,
            received=self._incoming.received if resumed else 0,
            bodies=attach.bodies if adopts else (),
        )
        before_answer()
        await connection.send(msgspec.json.encode(attached))
        self._connection = connection
        nursery.start_soon(self._read, connection)
        await self.send()
        return attach

    async def cut(self) -> None:
        """Lose the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()

    async def send(self, *messages) -> None:
        """Send messages, in one frame; while disconnected, they wait."""
        for message in messages:
            self._outgoing.add(message)
        if self._connection is None:
            return
        first, unsent = self._outgoing.take(1000)
        frame = {"type": "frame", "first": first, "ack": self._incoming.received, "messages": unsent}
        await self._connection.send(msgspec.json.encode(frame))

    async def receive(self):
        """The next message of the executor."""
        with trio.fail_after(_PATIENCE):
            while not self._received:
                await self._news.park()
        return self._received.popleft()

    async def call(self, kind) -> Call:
        """The next message, which must be a call with this request."""
        call = await self.receive()
        assert isinstance(call, Call), call
        assert isinstance(call.request, kind), call
        return call

    async def told(self, kind):
        """The next message, which must be a report of this kind."""
        told = await self.receive()
        assert isinstance(told, Told), told
        assert isinstance(told.report, kind), told
        return told.report

    async def ended(self) -> Ended:
        """The next message, which must be the end of a body; the end is stored."""
        ended = await self.receive()
        assert isinstance(ended, Ended), ended
        await self.send(Settled(ended.run, ended.fence))
        return ended

    @property
    def pending(self) -> list:
        """What was received and not taken."""
        return list(self._received)

    async def _read(self, connection: Connection) -> None:
        try:
            while True:
                frame = DECODE(await connection.receive())
                if isinstance(frame, Beat):
                    if self.answers_beats:
                        await connection.send(msgspec.json.encode(Beaten(frame.sent, True)))
                    continue
                assert isinstance(frame, ExecutorFrame), frame
                self.frames += 1
                self._outgoing.acknowledge(frame.ack)
                new = self._incoming.accept(frame.first, frame.messages)
                self._received += new
                self._news.unpark_all()
                if new and self.acknowledges and self._connection is connection:
                    await self.send()
        except (trio.EndOfChannel, trio.ClosedResourceError, trio.BrokenResourceError):
            pass


def order(job: str, run: str = "r1", fence: int = 1, **fields) -> Execute:
    """An order to execute a body."""
    fields = {"attempt": 1, "handle": run, "lane": "main", "kind": "start"} | fields
    return Execute(run=run, fence=fence, job=job, **fields)


def answer(call: Call, value=None, **fields) -> Answered:
    """The answer to a call."""
    return Answered(run=call.run, fence=call.fence, call=call.call, value=value, **fields)


def new_executor(jobs: Jobs, engine: ScriptedEngine, folder, **options) -> Executor:
    """An executor of this engine."""
    identity = Identity(node="e1", start="p1", slots=8, labels=("gpu",))
    files = DiskFiles(folder, in_threads=False)
    return Executor(jobs, engine.connect, identity, files, random=random.Random(1), **options)


@asynccontextmanager
async def attached(jobs: Jobs, folder, *, ttl: float = 30.0, **options):
    """An engine and an executor that is attached to it."""
    engine = ScriptedEngine(ttl)
    async with trio.open_nursery() as nursery:
        executor = new_executor(jobs, engine, folder, **options)
        nursery.start_soon(executor.run)
        engine.nursery, engine.executor = nursery, executor
        engine.first = await engine.attach(nursery)
        yield engine
        nursery.cancel_scope.cancel()
