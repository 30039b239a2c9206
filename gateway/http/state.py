"""The body of `GET /api/state`, encoded once for all who ask while nothing happens.

Its maker is one task, so that however many ask at once, one snapshot is being encoded at any time, in slices
between which others get their turn. Who asks meanwhile gets the next one, together with all others who do.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
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
"""A slice ends with the entries that make it as long as this."""
_AT_ONCE = 16
"""So many entries are encoded by one call, which takes half as long as a call for each."""
MOST_BYTES = 1 << 26
"""Beyond this, what slow clients have not taken yet of older states leaves no room for another one."""


class Body:
    """An encoded snapshot, in pieces. Exists for as long as it is being sent to anyone."""

    __slots__ = ("__weakref__", "pieces", "seq", "size")

    def __init__(self, seq: int, pieces: list[bytes]) -> None:
        self.seq = seq
        self.pieces = pieces
        self.size = sum(map(len, pieces))


class States:
    """See the module's text."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self._asked = Channel()
        self._latest: Body | None = None
        self._held: WeakSet[Body] = WeakSet()

    async def body(self) -> Body:
        """The state as of now. Raises `RateLimited` where there is no room for it."""
        reply: Reply[Body] = Reply()
        self._asked.send_nowait(reply)
        return await reply.get()

    def forget(self) -> None:
        """Something has happened, so there will be another state."""
        self._latest = None

    async def run(self) -> None:
        """Make what is asked for, until cancelled."""
        while True:
            await self._answer(await self._asked.receive_all())

    async def _answer(self, asked: Sequence[Reply[Body]]) -> None:
        try:
            body = await self._make()
        except GreenroomError as error:
            for reply in asked:
                reply.fail(error)
        except Exception:
            logger.exception("the state could not be encoded")
            for reply in asked:
                reply.fail(Internal("a fault of the gateway, which has been logged"))
        else:
            for reply in asked:
                reply.set(body)

    async def _make(self) -> Body:
        snapshot = (await self._snapshots.now()).snapshot
        if self._latest is not None and self._latest.seq == snapshot.seq:
            return self._latest
        body = await self.encoded(snapshot)
        if self._snapshots.seq == body.seq:
            self._latest = body
        return body

    async def encoded(self, snapshot: Snapshot) -> Body:
        """A snapshot that one client is to get. Raises `RateLimited` where there is no room for it."""
        if sum(held.size for held in self._held) > MOST_BYTES:
            raise RateLimited("slow clients are being sent more copies of the state than there is room for")
        pieces = []
        for piece in slices(snapshot):
            pieces.append(piece)
            await trio.lowlevel.checkpoint()
        body = Body(snapshot.seq, pieces)
        self._held.add(body)
        return body


def slices(snapshot: Snapshot) -> Generator[bytes, None, None]:
    """The snapshot as JSON, byte for byte as the codec has it, in pieces."""
    encode = JSON.encode
    yield b'{"epoch":%b,"seq":%d,"engine":%b' % (
        encode(snapshot.epoch),
        snapshot.seq,
        encode(snapshot.engine),
    )
    for field in ("lanes", "handles", "interrupts", "runs"):
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
