"""The stream between trio-websocket and a connection's transport.

The head of the request has been read before trio-websocket comes into play, so this stream replays one to
it: not what the client wrote, but what was understood of it, so that there are no two readings of one head.
It also rations what trio-websocket is given to read: some frames at a time, so that others get their turns;
no more per second than one connection may send; and of a stranger one message, until that has been judged.

And it shares the sending half: whatever trio-websocket writes (the answer to the handshake, pongs, the
closing frame) goes through the connection's writer, which puts it between the frames that it sends itself.
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
from .frames import FrameCounter

_AT_ONCE = 64
_MOST_FRAGMENTS = 1 << 16

Send = Callable[[bytes, Reply[None]], None]
"""Have the writer send bytes, and reply when they are sent."""

Refuse = Callable[[GreenroomError], None]
"""Close the connection with an error, and read nothing more."""


class Wire(trio.abc.Stream):
    """A stream for trio-websocket. It never closes the transport: whoever opened that does so."""

    def __init__(
        self,
        transport: trio.abc.Stream,
        head: bytes,
        rest: bytes,
        stranger: Stranger,
        limits: Callable[[], Limits],
    ) -> None:
        self.heard_at = trio.current_time()
        self._transport = transport
        self._head = head
        self._rest = rest
        self._at = 0  # what of `_rest` has been read
        self._stranger = stranger
        self._limits = limits
        self._frames = FrameCounter()
        self._rate = Rate(int(limits().frame_rate))
        self._unjudged: trio.Event | None = None
        self._timed: float | None = None
        self._send: Send | None = None
        self._refuse: Refuse | None = None
        self._accepted = trio.Event()
        self._closed = False

    def accepted(self, send: Send, refuse: Refuse) -> None:
        """The handshake is done: from now on the writer sends, and what follows the head may be read."""
        self._send = send
        self._refuse = refuse
        self._accepted.set()

    def judged(self) -> None:
        """It is known what to make of a stranger's message: what follows it may be read."""
        if self._unjudged is not None:
            self._unjudged.set()
            self._unjudged = None

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if self._timed is not None:
            self._stranger.use(seconds=thread_time() - self._timed)
            self._timed = None
        if self._head:
            head, self._head = self._head, b""
            await trio.lowlevel.checkpoint()
            return head
        await self._accepted.wait()  # frames that came too early would be lost in the handshake
        if self._unjudged is not None:
            await self._unjudged.wait()
        if self._closed:
            raise trio.ClosedResourceError
        if self._at < len(self._rest):
            await trio.lowlevel.checkpoint()  # the turn of others, between two parts of what came at once
        else:
            self._rest, self._at = bytes(await self._transport.receive_some(max_bytes)), 0
            self.heard_at = trio.current_time()
        return await self._ration() if self._rest else b""

    async def _ration(self) -> bytes:
        """The next part of what has come."""
        frames, start = self._frames, self._at
        stranger = not self._stranger.known
        self._at = frames.take(self._rest, start, _AT_ONCE, one_message=stranger)
        count = max(1, frames.begun)  # a frame that comes byte by byte costs as much as many
        refused: GreenroomError | None = None
        if stranger:
            self._stranger.use(frames=count, bytes=self._at - start)
            refused = self._stranger.excess()
            if frames.ended:
                self._unjudged = trio.Event()
            elif not frames.control:
                self._timed = thread_time()  # nothing else runs until trio-websocket wants more
        else:
            pause = self._rate.spend(self._limits().frame_rate, count)
            if pause:
                await trio.sleep(pause)
        if frames.fragments > _MOST_FRAGMENTS:
            refused = TooLarge(f"a message in more than {_MOST_FRAGMENTS} frames", limit=_MOST_FRAGMENTS)
        if refused is not None:
            assert self._refuse is not None, "it is there since the handshake"
            self._refuse(refused)
            await trio.sleep_forever()
        return self._rest[start : self._at]

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self._closed:
            raise trio.ClosedResourceError
        if self._send is None:
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
