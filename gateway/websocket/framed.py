"""The WebSocket connection of an executor, or of a node of the cluster: it carries their frames.

The frames are those of `protocol.executors` and `protocol.cluster`. The engine serves executors
(`engine.executors`), and the leader serves nodes (`cluster/joining.py`); this module limits what the
connection receives, and ends it. There is no queue of frames: `send` waits while the socket is full, and the
connection is not read while a frame is handled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_server_stream

from ...protocol.errors import GreenroomError
from ..auth.tokens import Caller
from ..config import Limits
from ..shared import Shared
from .frames import close_frame
from .session import ABNORMAL, TOO_BIG, UNAUTHORIZED
from .wire import Wire

_NORMAL = 1000


class FramedSession:
    """A WebSocket connection of an executor or node after the handshake. `serve` serves it until it ends."""

    def __init__(
        self,
        shared: Shared,
        caller: Caller,
        serve: Callable[[WebSocketFrames], Awaitable[None]],
        max_frame_bytes: int,
    ) -> None:
        self.lingers = False
        self._shared = shared
        self._caller = caller
        self._serve = serve
        self._max_frame_bytes = max_frame_bytes
        self._keep_reading = True
        self._serving = trio.CancelScope()
        self._ending: tuple[int, str] | None = None

    async def run(self, wire: Wire, subprotocol: str | None) -> None:
        """Serve the other side until either side ends the connection. The transport stays open for
        `linger`."""
        shared = self._shared
        async with trio.open_nursery() as nursery:
            with trio.fail_after(shared.limits.head_timeout):
                request = await wrap_server_stream(
                    nursery,
                    wire,
                    max_message_size=self._max_frame_bytes,
                    receive_buffer_size=65_536,
                )
                socket = await request.accept(subprotocol=subprotocol)
            wire.accepted(None, self._break_off)
            shared.metrics.websockets.inc()
            try:
                with self._serving:
                    await self._serve(WebSocketFrames(socket, wire))
                await self._close(socket, wire)
            finally:
                shared.metrics.websockets.dec()
            nursery.cancel_scope.cancel()

    def end(self, code: int, reason: str) -> None:
        """Close the connection with a code and a reason."""
        if self._ending is None:
            self._ending = (code, reason)
            self._serving.cancel()

    def recheck(self) -> None:
        """Close the connection if its token has been revoked; called when the tokens have changed."""
        if not self._shared.access.still_admits(self._caller):
            self.end(UNAUTHORIZED, "token has been revoked")

    def _break_off(self, error: GreenroomError) -> None:
        """Close the connection with an error, and stop reading."""
        self._keep_reading = False
        self.end(TOO_BIG, error.message)

    async def _close(self, socket: WebSocketConnection, wire: Wire) -> None:
        """Send a closing frame, and wait at most `close_timeout` for the other side's."""
        code, reason = self._ending or (_NORMAL, "")
        with trio.move_on_after(self._shared.limits.close_timeout):
            if socket.closed is None and self._keep_reading:
                await socket.aclose(code, reason)
                return
            if socket.closed is not None:
                if socket.closed.code == ABNORMAL:
                    return
                code, reason = socket.closed.code, socket.closed.reason or ""
            self.lingers = True
            if not wire.has_closed:  # trio-websocket sends no closing frame after a frame that it refuses
                await wire.send_all(close_frame(code, reason))


class WebSocketFrames:
    """A `Connection` over a WebSocket."""

    def __init__(self, socket: WebSocketConnection, wire: Wire) -> None:
        self._socket = socket
        self._wire = wire
        self._calls: set[trio.CancelScope] = set()
        self._closed = False

    @property
    def received_at(self) -> float:
        """The time of the last data, which can be a part of a frame."""
        return self._wire.received_at

    async def send(self, frame: bytes) -> None:
        with self._until_closed():
            try:
                await self._socket.send_message(frame.decode())
            except ConnectionClosed as closed:
                raise trio.BrokenResourceError(str(closed)) from None

    async def receive(self) -> bytes:
        with self._until_closed():
            try:
                message = await self._socket.get_message()
            except ConnectionClosed as closed:
                if closed.reason is not None and closed.reason.code != ABNORMAL:
                    raise trio.EndOfChannel from None
                raise trio.BrokenResourceError(str(closed)) from None
        return message.encode() if isinstance(message, str) else message

    async def aclose(self) -> None:
        """End the other calls; the session closes the WebSocket when `serve` has returned."""
        self._closed = True
        for call in self._calls:
            call.cancel()
        await trio.lowlevel.checkpoint()

    @contextmanager
    def _until_closed(self) -> Iterator[None]:
        if self._closed:
            raise trio.ClosedResourceError
        with trio.CancelScope() as call:
            self._calls.add(call)
            try:
                yield
            finally:
                self._calls.discard(call)
        if call.cancelled_caught:
            raise trio.ClosedResourceError


def max_frame_bytes(max_value_bytes: int) -> int:
    """The maximum size of an executor's frame, for an engine with this maximum size of a value."""
    return 2 * max_value_bytes + (1 << 20)


def max_node_frame_bytes(limits: Limits) -> int:
    """The maximum size of a follower's frame: all that a gateway with these limits accepts fits into one."""
    # A frame has one message or body of a client, and what is given in the head of its request, such as path
    # and query. No byte of these becomes more than 6 bytes in the frame:
    # - A forwarded body is in a JSON string, where a character has at most 6 times its bytes: "\u001f" for 1.
    # - A command is encoded again, as MessagePack: at most 3 times as long ("-0," becomes the 9 bytes of a
    #   float); or as JSON, if it came as JSON: at most 4 times ("9e15," becomes "9000000000000000.0,").
    #   Base64 adds a third: at most 16/3 times.
    # The rest of a frame is the client's name, the limits of its token, and the names of fields.
    return 6 * (limits.max_message_bytes + limits.max_head_bytes) + (1 << 20)
