"""The clients of `test_crowd`, all in one process: `python -m tests.gateway.crowd PORT CLIENTS RUNS`.

Each client is a task on a plain socket, with the fold of the events that it receives. There are four kinds:

- most follow all events, or those of a filter; each has its share of the runs, submits a run when its
  previous run has ended, and answers the interrupts of the run;
- some do the same, but their connections are cut repeatedly, also within a frame, and they resume;
- some send garbage of all kinds, reconnect if they are disconnected for it, and then follow, too;
- some subscribe and then read nothing until the runs have ended.

So the clients determine the pace. When the runs have ended, the process prints a line, receives the engine's
snapshot on its input, lets every client catch up, compares, and prints a report in JSON.
"""

from __future__ import annotations

import base64
import gc
import random
import socket
import sys
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import trio

from greenroom.gateway.stream.snapshots import filtered
from greenroom.protocol.codec import CODECS, Codec
from greenroom.protocol.commands import Error, Events, Ok, Resync, ServerMessage, Welcome
from greenroom.protocol.events import Filter
from greenroom.protocol.fold import Projection
from greenroom.protocol.parts import joined
from greenroom.protocol.records import Snapshot

from .support import BINARY, CLOSE, PING, PONG, TEXT, client_frame, parse_frame

MOST_BYTES = 1 << 16  # of a message to the gateway
LANES = ("main", "red", "green", "blue")
KINDS = ("follows",) * 9 + ("filters",) * 4 + ("drops",) * 4 + ("garbles",) * 2 + ("stalls",)

_ROOM = (
    1 << 17
)  # of system buffers, for each. With megabytes, a slow client would look like one that reads nothing
_LITTLE_ROOM = 1 << 12  # for those that stall
_ROUNDS = 4  # of garbage

Gone = (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError)


@lru_cache(maxsize=512)
def decoded(codec: Codec, payload: bytes) -> Any:
    """A decoded message; many clients receive the same bytes, and share the result, which never changes."""
    return codec.decode(payload, ServerMessage)


def kind(number: int) -> str:
    """The behaviour of the client with this number."""
    return KINDS[number % len(KINDS)]


class Crowd:
    """The shared state of the clients."""

    def __init__(self, port: int, clients: int, runs: int) -> None:
        self.port = port
        self.seen: Counter[str] = Counter()
        self.over = trio.Event()
        self.snapshot: Snapshot | None = None
        self.clients = [Client(self, number) for number in range(clients)]
        workers = [client for client in self.clients if client.kind in ("follows", "filters", "drops")]
        for number in range(runs):
            workers[number % len(workers)].share += 1
        self._at_work = sum(client.kind != "stalls" for client in self.clients)
        self._all_done = trio.Event()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for client in self.clients:
                nursery.start_soon(client.live)
            await self._all_done.wait()
            print("over", flush=True)
            self.snapshot = await trio.to_thread.run_sync(_read_snapshot)
            self.over.set()
            for client in self.clients:
                client.following.cancel()
        print(msgspec.json.encode(self.seen).decode(), flush=True)
        await trio.to_thread.run_sync(sys.stdin.readline)  # the connections stay until the test ends

    def done(self) -> None:
        """A client has finished its own work, and only follows."""
        self._at_work -= 1
        if not self._at_work:
            self._all_done.set()


class Client:
    """One of them."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        self.kind = kind(number)
        self.share = 0
        self.following = trio.CancelScope()
        self._crowd = crowd
        self._name = f"client {number}"
        self._lane = LANES[number % len(LANES)]
        self._lots = random.Random(number)
        self._codec = self._lots.choice(list(CODECS.values()))
        self._filter: Filter | None = None
        if self.kind == "filters":
            others = {f"client {self._lots.randrange(number + 1)}" for _ in range(20)}
            some = [{"handles": frozenset(others | {self._name})}, {"lanes": frozenset({self._lane})}]
            self._filter = msgspec.convert(self._lots.choice(some), Filter)
        self._state: Projection | None = None
        self._told = 0
        self._parts: list[Snapshot] = []
        self._buffer = b""
        self._ids = 0

    async def live(self) -> None:
        await self._come()
        if self.kind == "stalls":
            self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _LITTLE_ROOM)
            await self._crowd.over.wait()
        else:
            if self.kind == "garbles":
                for _ in range(_ROUNDS):
                    await self._garble()
            await self._work()
            self._crowd.done()
            with self.following:
                await self._follow()
        await self._catch_up()
        self._compare()

    # Their work.

    async def _work(self) -> None:
        """Submit runs, one after the other."""
        for number in range(self.share):
            submit = {
                "job": "work",
                "handle": self._name,
                "lane": self._lane,
                "params": {"number": number},
                "request_id": f"{self._name} {number}",
                "warn_after": "none",
            }
            while True:
                try:
                    said = await self._call("submit", **submit)
                    await self._see_it_end(said.run_id)
                    break
                except Gone:
                    assert self.kind == "drops", f"{self._name}, which {self.kind}, was dropped"
                    self._crowd.seen["cut off"] += 1
                    await self._come()
            self._crowd.seen["runs"] += 1

    async def _see_it_end(self, run: str) -> None:
        left = self._lots.randrange(1, 12) if self.kind == "drops" else 0
        answered = set()
        while True:
            assert self._state is not None
            record = self._state.runs.get(run)
            if record is None or record.ended:  # its end was missed, and it is no longer in the snapshot
                return
            for id, interrupt in self._state.interrupts.items():
                if interrupt.run == run and id not in answered:
                    answered.add(id)
                    await self._post("answer", interrupt_id=id, data={"approved": True})
            self._take(await self._hear())
            left -= 1
            if left == 0:
                await self._cut()

    async def _cut(self) -> None:
        """Cut the connection, sometimes in the middle of a frame."""
        if self._lots.randrange(2):
            await self._stream.send_all(client_frame(b'{"type":"snapshot","id":1}')[:-5])
        if self._lots.randrange(2):
            reset = b"\1\0\0\0\0\0\0\0"  # on, and without waiting
            self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        await self._stream.aclose()
        raise trio.EndOfChannel

    async def _garble(self) -> None:
        """Send invalid data, and check the response."""
        send = self._lots.choice([self._send_bad_message, self._send_bad_frame, self._send_noise])
        await send()
        self._crowd.seen["garbage"] += 1

    async def _send_bad_message(self) -> None:
        """Each is answered with an error, and the connection stays open."""
        payload = self._lots.choice(
            [
                b"[" * 2_000,
                b'{"type":"submit","id":1}',
                b'{"type":"nothing","id":1}',
                b'{"type":"subscribe","id":[]}',
                b'{"type":"submit","id":1,"job":"\xc3\xa9","handle":"","params":1e400}',
                self._codec.encode(
                    {"type": "subscribe", "id": 1, "filter": {"handles": list(map(str, range(5_000)))}}
                ),
                self._codec.encode({"type": "cancel", "id": 1, "run_id": "x" * 10_000}),
            ]
        )
        opcode = BINARY if self._codec.binary else TEXT
        await self._stream.send_all(client_frame(payload, opcode))
        while not isinstance(message := await self._hear(), Error):
            self._take(message)

    async def _send_bad_frame(self) -> None:
        """Each closes the connection."""
        frame = self._lots.choice(
            [
                client_frame(b"{}", masked=False),
                client_frame(b"{}", reserved=3),
                client_frame(b"\xff\xfe\xfd"),
                client_frame(b"{}", 0),  # continues no message
                client_frame(b"x" * 300, CLOSE),
                client_frame(b"x", 11),
                bytes((0x82, 0xFF)) + b"\xff" * 12,  # longer than any valid length
                client_frame(b"x" * (MOST_BYTES + 1)),
                client_frame(b"x" * (MOST_BYTES + 1)) + client_frame(b"", PING),
            ]
        )
        try:
            await self._stream.send_all(frame * self._lots.randrange(1, 3))
            while True:
                self._take(await self._hear())
        except Gone:
            await self._stream.aclose()
            await self._come()

    async def _send_noise(self) -> None:
        """On another connection: not even HTTP."""
        noise = self._lots.choice(
            [
                self._lots.randbytes(500),
                b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
                b"POST /api/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{",
                b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000,
                _head(self._codec)[:60],
            ]
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow)  # at the same time
            stream = await self._open()
            try:
                await stream.send_all(noise)
                await stream.send_eof()
                while await stream.receive_some(1 << 16):
                    pass
            except (*Gone, OSError):
                self._crowd.seen["noise ended in a reset"] += 1
            await stream.aclose()
            nursery.cancel_scope.cancel()

    async def _follow(self) -> None:
        while True:
            self._take(await self._hear())

    async def _catch_up(self) -> None:
        """Follow all events. Only clients that do not read for long are disconnected."""
        droppable = self.kind == "stalls"
        while True:
            try:
                await self._call("list_runs", limit=1)
                return
            except Gone:
                assert droppable, f"{self._name}, which {self.kind}, was dropped"
                droppable = False
                self._crowd.seen["dropped"] += 1
                await self._stream.aclose()
                await self._come()

    def _compare(self) -> None:
        assert self._state is not None
        assert self._crowd.snapshot is not None
        mine = self._state.snapshot()
        theirs = filtered(self._crowd.snapshot, self._filter)
        if self._filter is not None:
            mine = _latest_of(mine, theirs)
        self._crowd.seen["equal" if mine == theirs else "different"] += 1
        self._crowd.seen[f"equal {self.kind}"] += mine == theirs

    # Their connection.

    async def _open(self) -> trio.SocketStream:
        plain = trio.socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _ROOM)
        await plain.connect(("127.0.0.1", self._crowd.port))
        return trio.SocketStream(plain)

    async def _come(self) -> None:
        """Connect, and resume."""
        self._stream = await self._open()
        await self._stream.send_all(_head(self._codec))
        self._buffer = b""
        self._parts = []
        while b"\r\n\r\n" not in self._buffer:
            await self._receive()
        _, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        welcome = await self._hear()
        assert isinstance(welcome, Welcome)
        filter = None if self._filter is None else msgspec.to_builtins(self._filter)
        if self._state is None:
            epoch = "another"  # so that it begins with a snapshot
        else:
            epoch = welcome.epoch
            self._crowd.seen["resumed"] += 1
        ok = await self._call("subscribe", after=self._told, epoch=epoch, filter=filter)
        assert ok.seq == self._told

    async def _post(self, type: str, **fields: Any) -> int:
        self._ids += 1
        payload = self._codec.encode({"type": type, "id": self._ids, **fields})
        await self._stream.send_all(client_frame(payload, BINARY if self._codec.binary else TEXT))
        return self._ids

    async def _call(self, type: str, **fields: Any) -> Ok:
        id = await self._post(type, **fields)
        while True:
            message = await self._hear()
            if isinstance(message, Ok) and message.id == id:
                return message
            assert not isinstance(message, Error), message
            self._take(message)

    async def _hear(self) -> Any:
        """The next message. Raises an error of `Gone`."""
        while True:
            parsed = parse_frame(self._buffer)
            if parsed is None:
                await self._receive()
                continue
            opcode, payload, self._buffer = parsed
            if opcode == PING:
                await self._stream.send_all(client_frame(payload, PONG))
            elif opcode == CLOSE:
                self._crowd.seen[f"closed with {int.from_bytes(payload[:2], 'big')}"] += 1
                raise trio.EndOfChannel
            else:
                return decoded(self._codec, payload)

    async def _receive(self) -> None:
        data = await self._stream.receive_some(1 << 16)
        if not data:
            raise trio.EndOfChannel
        self._buffer += data

    def _take(self, message: Any) -> None:
        if isinstance(message, Events):
            self._fold(message)
        elif isinstance(message, Resync):
            self._parts.append(message.snapshot)
            if not message.more:
                snapshot = joined(self._parts)
                self._parts = []
                self._state = Projection.from_snapshot(snapshot)
                self._told = snapshot.seq
                self._crowd.seen["resyncs"] += 1

    def _fold(self, batch: Events) -> None:
        state = self._state
        assert state is not None
        assert batch.from_ == self._told, (
            f"{self._name} received a batch from {batch.from_} after {self._told}"
        )
        for event in batch.events:
            if self._filter is not None:
                state.seq = event.seq - 1  # those between did not pass
            state.apply(event)
        self._told = state.seq = batch.to
        self._crowd.seen["events"] += len(batch.events)


def _read_snapshot() -> Snapshot:
    """The engine's, from the file that is named on the input."""
    path = Path(sys.stdin.readline().strip())
    return msgspec.msgpack.decode(path.read_bytes(), type=Snapshot)


def _latest_of(mine: Snapshot, theirs: Snapshot) -> Snapshot:
    """A fold of fewer runs keeps ended runs for longer. Remove those that the engine has evicted."""
    runs = {id: run for id, run in mine.runs.items() if id in theirs.runs or not run.ended}
    used = {run.handle for run in runs.values()}
    handles = {name: handle for name, handle in mine.handles.items() if name in used or handle.locked}
    return msgspec.structs.replace(mine, runs=runs, handles=handles)


def _head(codec: Codec) -> bytes:
    return (
        "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}\r\n"
        f"Sec-WebSocket-Protocol: {codec.subprotocol}\r\n\r\n"
    ).encode()


if __name__ == "__main__":
    gc.disable()  # very many objects without cycles: collections would take most of the time
    trio.run(Crowd(*map(int, sys.argv[1:])).run)
