"""`serve`: one connection of an executor: its reader and its writer.

The reader handles each frame in one step. The writer sends everything that is to be sent at that moment in
one frame. A connection that only carries heartbeats begins with `beat` instead of `attach`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence

import msgspec
import trio

from ...protocol import executors as wire
from ...protocol.codec import JSON
from ...protocol.errors import GreenroomError, Invalid
from .connection import ENDED, Connection
from .peer import Peer
from .registry import Registry, refusal

logger = logging.getLogger("greenroom")

_ATTACH_TIMEOUT = 10.0
_CLOSE_TIMEOUT = 2.0
_MOST_MESSAGES = 256
"""The number of messages in one frame."""
_MOST_BYTES = 1 << 18
"""The size from which a frame gets no further message."""
_ACK_AFTER = 64
"""The number of received messages after which an acknowledgement is sent without other messages."""
_MOST_BEATS = 16
"""The number of unanswered heartbeats on one connection."""

_encoder = msgspec.json.Encoder()


async def serve(
    registry: Registry, connection: Connection, *, name: str = "executor", child: bool = False
) -> None:
    """Serve an executor until its connection ends, then close the connection. `name` is that of its token."""
    try:
        first = await _first(connection)
        if isinstance(first, wire.Attach):
            await _serve_executor(registry, connection, first, child=child)
        else:
            await _answer_beats(registry, connection, first)
    except GreenroomError as error:
        logger.warning("connection of an executor (token %s) is closed: %s", name, error)
        await _refuse(connection, error)
    except ENDED:
        logger.debug("connection of an executor (token %s) has ended", name)
    finally:
        with trio.move_on_after(_CLOSE_TIMEOUT, shield=True):
            await connection.aclose()


async def _first(connection: Connection) -> wire.Attach | wire.Beat:
    with trio.move_on_after(_ATTACH_TIMEOUT):
        first = _decode(await connection.receive())
        if isinstance(first, wire.ExecutorFrame):
            raise Invalid("the first message of a connection must be attach or beat")
        return first
    raise Invalid(f"no attach or beat received within {_ATTACH_TIMEOUT:g} s")


async def _answer_beats(registry: Registry, connection: Connection, beat: wire.Beat) -> None:
    while True:
        beaten = registry.beat(beat)
        if beaten is not None:
            await connection.send(_encoder.encode(beaten))
        received = _decode(await connection.receive())
        if not isinstance(received, wire.Beat):
            raise Invalid("a connection that begins with beat carries only beats")
        beat = received


async def _refuse(connection: Connection, error: GreenroomError) -> None:
    with trio.move_on_after(_CLOSE_TIMEOUT):
        try:
            await connection.send(_encoder.encode(refusal(error)))
        except ENDED:
            logger.debug("executor left before it received: %s", error)


async def _serve_executor(
    registry: Registry, connection: Connection, attach: wire.Attach, *, child: bool
) -> None:
    own_folder = child or await registry.is_own_folder(attach.folder)
    peer, attached = registry.attach(attach, child=child, own_folder=own_folder)
    link = _Link(registry, connection, peer)
    try:
        await link.run(attached)
    finally:
        registry.disconnected(peer, link.hang_up)


class _Link:
    """The reader and the writer of one attached executor."""

    def __init__(self, registry: Registry, connection: Connection, peer: Peer) -> None:
        self._registry = registry
        self._connection = connection
        self._peer = peer
        self._beaten: deque[wire.Beaten] = deque(maxlen=_MOST_BEATS)
        self._acknowledged = peer.incoming.received
        self._news = trio.lowlevel.ParkingLot()
        self._waits = False  # whether the writer waits for news
        self._scope = trio.CancelScope()
        self.hang_up = self._scope.cancel

    async def run(self, attached: wire.Attached) -> None:
        """Send `attached`, and exchange frames until the connection ends. Raises `GreenroomError` if the
        executor breaks the protocol."""
        failed: GreenroomError | None = None
        self._registry.connected(self._peer, self._wake, self.hang_up)
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write, attached)
                try:
                    await self._read()
                except ENDED:
                    logger.debug("connection of executor %s has ended", self._peer.id)
                except GreenroomError as error:
                    failed = error
                nursery.cancel_scope.cancel()
        if failed is not None:
            raise failed

    @property
    def _was_hung_up(self) -> bool:
        """Whether another connection can have replaced this one. Its tasks may not have noticed that yet."""
        return self._scope.cancel_called

    def _wake(self) -> None:
        if self._waits:
            self._waits = False
            self._news.unpark()

    async def _read(self) -> None:
        peer = self._peer
        while True:
            message = _decode(await self._connection.receive())
            if self._was_hung_up:
                return  # the frame can be of an earlier session
            match message:
                case wire.ExecutorFrame():
                    self._registry.receive(peer, message)
                    if self._must_acknowledge():
                        self._wake()
                case wire.Beat():
                    beaten = self._registry.beat(message)
                    if beaten is not None:
                        self._beaten.append(beaten)
                        self._wake()
                case wire.Attach():
                    raise Invalid("the executor is already attached on this connection")

    def _must_acknowledge(self) -> bool:
        """Whether received messages must be acknowledged without other messages. An executor that drains
        exits only when all its messages are acknowledged."""
        received = self._peer.incoming.received - self._acknowledged
        return received >= (1 if self._peer.draining else _ACK_AFTER)

    @trio.lowlevel.enable_ki_protection
    async def _write(self, attached: wire.Attached) -> None:
        peer, connection = self._peer, self._connection
        try:
            await connection.send(_encoder.encode(attached))
            while not self._was_hung_up:  # otherwise messages would be taken for the wrong connection
                if self._beaten:
                    await connection.send(_encoder.encode(self._beaten.popleft()))
                elif peer.outgoing.unsent or self._must_acknowledge():
                    self._acknowledged = peer.incoming.received
                    first, messages = peer.outgoing.take(_MOST_MESSAGES, _MOST_BYTES)
                    await connection.send(_frame(first, self._acknowledged, messages))
                else:
                    self._waits = True
                    await self._news.park()
        except ENDED:
            logger.debug("executor %s can no longer be reached", peer.id)
            self._scope.cancel()


def _frame(first: int, acknowledged: int, messages: Sequence[bytes]) -> bytes:
    """An `EngineFrame` of messages that are encoded already."""
    head = b'{"type":"frame","first":%d,"ack":%d' % (first, acknowledged)
    return head + (b',"messages":[%b]}' % b",".join(messages) if messages else b"}")


def _decode(frame: bytes) -> wire.ExecutorSends:
    message: wire.ExecutorSends = JSON.decode(frame, wire.ExecutorSends)
    return message
