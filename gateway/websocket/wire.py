"""The stream between trio-websocket and a connection's transport.

The head of the request has been parsed before trio-websocket starts, so this stream passes a new head to it:
one that is built from the parsed request, so that two parsers cannot disagree about one head.

The stream limits what trio-websocket reads: a few frames at a time, so that other tasks run in between; at
most `frame_rate` frames per second; and from an unauthenticated client one message, until that is checked.

What trio-websocket sends (the response to the handshake, pongs, the closing frame) is passed to the
connection's writer, which sends it between its own frames; without a writer, it is sent directly.
"""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time

import trio

from ...actors.channel import Reply
from ...protocol.errors import GreenroomError, TooLarge
from ..auth.strangers import Stranger
from ..config import Limits
from ..limits import Rate
from .frames import FrameCounter, is_close

_AT_ONCE = 64
_MOST_FRAGMENTS = 1 << 16

Send = Callable[[bytes, Reply[None]], None]
"""Passes bytes to the writer, which replies when they are sent."""

Refuse = Callable[[GreenroomError], None]
"""Closes the connection with an error."""


class Wire(trio.abc.Stream):
    """A stream for trio-websocket. It never closes the transport: the `Connection` does."""

    def __init__(
        self,
        transport: trio.abc.Stream,
        head: bytes,
        rest: bytes,
        stranger: Stranger,
        limits: Callable[[], Limits],
    ) -> None:
        self.received_at = trio.current_time()
        self._transport = transport
        self._head = head
        self._rest = rest
        self._at = 0  # the position in `_rest`
        self._stranger = stranger
        self._limits = limits
        self._frames = FrameCounter()
        self._rate = Rate(int(limits().frame_rate))
        self._unchecked: trio.Event | None = None
        self._timed: float | None = None
        self._send: Send | None = None
        self._refuse: Refuse | None = None
        self._accepted = trio.Event()
        self._closed = False
        self.has_closed = False
        """Whether a closing frame was sent without a writer."""

    def accepted(self, send: Send | None, refuse: Refuse) -> None:
        """Continue after the handshake: from now on the writer sends, if there is one, and frames can be
        read."""
        self._send = send
        self._refuse = refuse
        self._accepted.set()

    def checked(self) -> None:
        """Continue after the check of an unauthenticated client's message: the next one can be read."""
        if self._unchecked is not None:
            self._unchecked.set()
            self._unchecked = None

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if self._timed is not None:
            self._stranger.use(seconds=thread_time() - self._timed)
            self._timed = None
        if self._head:
            head, self._head = self._head, b""
            await trio.lowlevel.checkpoint()
            return head
        await self._accepted.wait()  # frames that are read during the handshake would be lost
        if self._unchecked is not None:
            await self._unchecked.wait()
        if self._closed:
            raise trio.ClosedResourceError
        if self._at < len(self._rest):
            await trio.lowlevel.checkpoint()  # other tasks run between two parts of the same data
        else:
            self._rest, self._at = bytes(await self._transport.receive_some(max_bytes)), 0
            self.received_at = trio.current_time()
        return await self._ration() if self._rest else b""

    async def _ration(self) -> bytes:
        """The next part of the received data."""
        frames, start = self._frames, self._at
        stranger = not self._stranger.known
        self._at = frames.take(self._rest, start, _AT_ONCE, one_message=stranger)
        count = max(1, frames.begun)  # a frame that arrives byte by byte costs as much as many frames
        refused: GreenroomError | None = None
        if stranger:
            self._stranger.use(frames=count, bytes=self._at - start)
            refused = self._stranger.excess()
            if frames.ended:
                self._unchecked = trio.Event()
            elif not frames.control:
                self._timed = thread_time()  # no other task runs until trio-websocket reads again
        else:
            pause = self._rate.spend(self._limits().frame_rate, count)
            if pause:
                await trio.sleep(pause)
        if frames.fragments > _MOST_FRAGMENTS:
            text = f"a message must have at most {_MOST_FRAGMENTS:,} frames"
            refused = TooLarge(text, limit=_MOST_FRAGMENTS)
        if refused is not None:
            assert self._refuse is not None, "set at the end of the handshake"
            self._refuse(refused)
            await trio.sleep_forever()
        return self._rest[start : self._at]

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self._closed:
            raise trio.ClosedResourceError
        if self._send is None:
            self.has_closed = self.has_closed or is_close(bytes(data[:1]))
            await self._transport.send_all(data)
        else:
            sent: Reply[None] = Reply()
            self._send(bytes(data), sent)
            await sent.get()

    async def wait_send_all_might_not_block(self) -> None:
        await self._transport.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        self._closed = True
        await trio.lowlevel.checkpoint()
