"""The body of `GET /api/state`, encoded once for all requests until the next event.

One task encodes, so at most one snapshot is being encoded at any time; it yields to other tasks between
slices. Requests that arrive during the encoding share the next snapshot.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from itertools import islice
from typing import Any
from weakref import WeakSet

import trio

from ...actors.channel import Channel, Reply
from ...protocol.codec import JSON
from ...protocol.errors import GreenroomError, Internal, RateLimited
from ...protocol.records import Snapshot
from ..stream.snapshots import Snapshots

logger = logging.getLogger("greenroom.gateway")

PIECE = 1 << 16
"""A slice ends when it has at least this many bytes."""
_AT_ONCE = 16
"""The number of entries per call of the encoder; one call takes half the time of separate calls."""
MOST_BYTES = 1 << 26
"""The limit of memory for encoded states that slow clients have not read yet."""


class Body:
    """An encoded snapshot, in pieces. It exists while it is being sent to a client."""

    __slots__ = ("__weakref__", "pieces", "seq", "size")

    def __init__(self, seq: int, pieces: list[bytes]) -> None:
        self.seq = seq
        self.pieces = pieces
        self.size = sum(map(len, pieces))


class States:
    """Encodes snapshots of the engine, one at a time, and shares the bytes. `reduced` returns the part of a
    snapshot that its clients see."""

    def __init__(
        self, snapshots: Snapshots, reduced: Callable[[Snapshot], Snapshot] = lambda snapshot: snapshot
    ) -> None:
        self._snapshots = snapshots
        self._reduced = reduced
        self._asked = Channel()
        self._latest: Body | None = None
        self._held: WeakSet[Body] = WeakSet()

    async def body(self) -> Body:
        """The current snapshot. Raises `RateLimited` if the memory for encoded states is used up."""
        reply: Reply[Body] = Reply()
        self._asked.send_nowait(reply)
        return await reply.get()

    def forget(self) -> None:
        """Drop the cached body, because an event has made it out of date."""
        self._latest = None

    async def run(self) -> None:
        """Answer requests for the state until cancelled."""
        while True:
            await self._answer(await self._asked.receive_all())

    async def _answer(self, asked: Sequence[Reply[Body]]) -> None:
        try:
            body = await self._make()
        except GreenroomError as error:
            for reply in asked:
                reply.fail(error)
        except Exception:
            logger.exception("encoding of the state failed")
            for reply in asked:
                reply.fail(Internal("internal error of the gateway; see the server's log"))
        else:
            for reply in asked:
                reply.set(body)

    async def _make(self) -> Body:
        snapshot = (await self._snapshots.now()).snapshot
        if self._latest is not None and self._latest.seq == snapshot.seq:
            return self._latest
        body = await self.encoded(self._reduced(snapshot))
        if self._snapshots.seq == body.seq:
            self._latest = body
        return body

    async def encoded(self, snapshot: Snapshot) -> Body:
        """Encode a snapshot. Raises `RateLimited` if the memory for encoded states is used up."""
        if sum(held.size for held in self._held) > MOST_BYTES:
            raise RateLimited(
                f"out of memory for snapshots (limit: {MOST_BYTES >> 20} MiB): slow clients have not read "
                "theirs yet; retry later"
            )
        pieces = []
        for piece in slices(snapshot):
            pieces.append(piece)
            await trio.lowlevel.checkpoint()
        body = Body(snapshot.seq, pieces)
        self._held.add(body)
        return body


def slices(snapshot: Snapshot) -> Generator[bytes, None, None]:
    """The snapshot as JSON in pieces, byte for byte as the codec encodes it."""
    encode = JSON.encode
    yield b'{"epoch":%b,"seq":%d,"engine":%b' % (
        encode(snapshot.epoch),
        snapshot.seq,
        encode(snapshot.engine),
    )
    for field in ("lanes", "handles", "interrupts", "runs", "executors", "schedules"):
        yield b',"%b":{' % field.encode()
        yield from _entries(getattr(snapshot, field))
        yield b"}"
    yield b"}"


def _entries(table: dict[str, Any]) -> Generator[bytes, None, None]:
    rest = iter(table.items())
    comma = b""
    gathered: list[bytes] = []
    size = 0
    while few := dict(islice(rest, _AT_ONCE)):
        encoded = JSON.encode(few)[1:-1]
        gathered.append(encoded)
        size += len(encoded)
        if size >= PIECE:
            yield comma + b",".join(gathered)
            comma, gathered, size = b",", [], 0
    if gathered:
        yield comma + b",".join(gathered)
