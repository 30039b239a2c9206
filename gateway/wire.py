"""The stream between trio-websocket and a connection's transport.

The head of the request has been read before trio-websocket comes into play, so this stream replays one to
it: not what the client wrote, but what was understood of it, so that there are no two readings of one head.
And it shares the sending half: whatever trio-websocket writes (the answer to the handshake, pongs, the
closing frame) goes through the connection's writer, which puts it between the frames that it sends itself.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from ..actors.actor import Reply

Send = Callable[[bytes, Reply[None]], None]
"""Have the writer send bytes, and reply when they are sent."""


class Wire(trio.abc.Stream):
    """A stream for trio-websocket. It never closes the transport: whoever opened that does so."""

    def __init__(self, transport: trio.abc.Stream, head: bytes, rest: bytes) -> None:
        self.heard_at = trio.current_time()
        self._transport = transport
        self._head = head
        self._rest = rest
        self._send: Send | None = None
        self._accepted = trio.Event()
        self._closed = False

    def accepted(self, send: Send) -> None:
        """The handshake is done: from now on the writer sends, and what follows the head may be read."""
        self._send = send
        self._accepted.set()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if self._head:
            head, self._head = self._head, b""
            await trio.lowlevel.checkpoint()
            return head
        await self._accepted.wait()  # frames that came too early would be lost in the handshake
        if self._closed:
            raise trio.ClosedResourceError
        if self._rest:
            rest, self._rest = self._rest, b""
            return rest
        data = await self._transport.receive_some(max_bytes)
        self.heard_at = trio.current_time()
        return bytes(data)

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
