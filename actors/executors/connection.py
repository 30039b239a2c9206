"""`Connection`: what carries frames between an engine and an executor.

A frame is a JSON object, encoded as bytes. A connection delivers frames whole and in order, or ends. The
implementations here are a byte stream (children use a socket pair) and a pair in memory (tests, the
simulation); WebSockets are in the gateway and in `greenroom/executor`.
"""

from __future__ import annotations

from typing import Protocol

import trio

MAX_FRAME_BYTES = 64 << 20
"""The maximum size of a frame on a stream."""

ENDED = (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError)
"""What the calls of a connection raise when it has ended."""

_RECEIVE_SIZE = 1 << 16
_FRAMES_IN_FLIGHT = 16


class Connection(Protocol):
    """See the module's docstring. One task sends, and one task receives."""

    async def send(self, frame: bytes) -> None:
        """Send a frame. Raises `trio.BrokenResourceError` if the connection has ended; a cancelled `send`
        leaves the connection broken."""

    async def receive(self) -> bytes:
        """Receive a frame. Raises `trio.EndOfChannel` if the other side has closed the connection, and
        `trio.BrokenResourceError` if it was lost."""

    async def aclose(self) -> None:
        """Close the connection. The other calls then raise `trio.ClosedResourceError`."""


class StreamConnection:
    """Frames over a byte stream, one per line: JSON needs no line break within a frame."""

    def __init__(self, stream: trio.abc.Stream, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._stream = stream
        self._max_frame_bytes = max_frame_bytes
        self._received = bytearray()

    async def send(self, frame: bytes) -> None:
        await self._stream.send_all(frame + b"\n")

    async def receive(self) -> bytes:
        searched = 0
        while (end := self._received.find(b"\n", searched)) < 0:
            searched = len(self._received)
            if searched > self._max_frame_bytes:
                raise trio.BrokenResourceError(f"a frame must have at most {self._max_frame_bytes:,} bytes")
            more = await self._stream.receive_some(_RECEIVE_SIZE)
            if not more:
                raise trio.EndOfChannel
            self._received += more
        if not searched:  # the frame was already here
            await trio.lowlevel.checkpoint()
        frame = bytes(self._received[:end])
        del self._received[: end + 1]
        return frame

    async def aclose(self) -> None:
        await self._stream.aclose()


class MemoryConnection:
    """One end of a connection within a process. Like a socket, it has room for a few frames that the other
    side has not received."""

    def __init__(
        self, sends: trio.MemorySendChannel[bytes], receives: trio.MemoryReceiveChannel[bytes]
    ) -> None:
        self._sends = sends
        self._receives = receives

    async def send(self, frame: bytes) -> None:
        await self._sends.send(frame)

    async def receive(self) -> bytes:
        return await self._receives.receive()

    async def aclose(self) -> None:
        self._sends.close()
        self._receives.close()
        await trio.lowlevel.checkpoint()


def connection_pair(frames_in_flight: float = _FRAMES_IN_FLIGHT) -> tuple[MemoryConnection, MemoryConnection]:
    """Return the two ends of a connection in memory."""
    there = trio.open_memory_channel[bytes](frames_in_flight)
    back = trio.open_memory_channel[bytes](frames_in_flight)
    return MemoryConnection(there[0], back[1]), MemoryConnection(back[0], there[1])
