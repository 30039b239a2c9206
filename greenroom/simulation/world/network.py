"""Connections between simulated machines: streams that are late, come in pieces, stall, and break.

A line carries bytes both ways, in order, as TCP does: whoever sends more than fits must wait for the other
end to read. What is on its way when the line is cut arrives up to some byte, in the middle of whatever that
byte belongs to. All chance comes from the line's own source.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from random import Random

import trio

CAPACITY = 1 << 15
"""Bytes that may be on their way in one direction."""


class Line:
    """A connection; `near` and `far` are its ends. `delay` bounds how long what is sent takes, in seconds.
    `closing` is called when an end is closed that was not told to by a fault of the line."""

    def __init__(
        self, random: Random, delay: tuple[float, float] | None, closing: Callable[[], None]
    ) -> None:
        self.delay = delay
        self.stalls = False
        self.is_cut = False
        self.faultless = True
        """Whether nothing has happened to it but delays."""
        self.random = random
        self._closing = closing
        self._fuse = math.inf
        there, back = _Way(self), _Way(self)
        self._ways = there, back
        self.near, self.far = End(self, there, back), End(self, back, there)

    @property
    def quiet(self) -> bool:
        """Whether everything that was sent has been read."""
        return not (self.stalls or self.is_cut) and all(way.empty for way in self._ways)

    def stall(self) -> None:
        """Let nothing through any more, and tell nobody."""
        self.stalls = True
        self.faultless = False

    def go_on(self) -> None:
        """Let through what waits."""
        self.stalls = False
        self._stir()

    def cut(self, after: int | None = None) -> None:
        """Break it: now, with what is on its way arriving in part, or when that many more bytes were sent."""
        self.faultless = False
        if after is None:
            for way in self._ways:
                way.lose_a_part()
            self._snap()
        else:
            self._fuse = after

    def passed(self, size: int) -> int:
        """How many of these bytes still pass before it breaks."""
        passing = int(min(size, self._fuse))
        self._fuse -= passing
        return passing

    def sent(self) -> None:
        """Something was sent: perhaps it was the last that passes."""
        if self._fuse <= 0:
            self._snap()

    def closed(self) -> None:
        """One of the ends has been closed."""
        if self.faultless:
            self.faultless = False
            self._closing()
        self._stir()

    def _snap(self) -> None:
        self.is_cut = True
        self.stalls = False
        for way in self._ways:
            way.breaks_off = self.random.random() < 0.5
        self._stir()

    def _stir(self) -> None:
        for way in self._ways:
            way.changed.unpark_all()


class _Way:
    """One direction of a line."""

    def __init__(self, line: Line) -> None:
        self.changed = trio.lowlevel.ParkingLot()
        self.ended = False  # the sender has closed its end
        self.refused = False  # the receiver has
        self.breaks_off = False  # whether a cut shows as an error, rather than as an end
        self._line = line
        self._flying: deque[tuple[float, bytes]] = deque()  # when each arrives
        self._size = 0

    @property
    def empty(self) -> bool:
        return not self._flying

    def lose_a_part(self) -> None:
        """Of what is on its way only some arrives."""
        data = b"".join(data for _, data in self._flying)
        data = data[: self._line.random.randint(0, len(data))]
        self._flying = deque([(trio.current_time(), data)] if data else [])
        self._size = len(data)

    async def send(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        while data:
            if self.ended:
                raise trio.ClosedResourceError
            if self.refused or self._line.is_cut:
                raise trio.BrokenResourceError("the line is cut" if self._line.is_cut else "the peer is gone")
            room = CAPACITY - self._size
            if room <= 0:
                await self.changed.park()
                continue
            size = self._line.passed(min(room, len(data)))
            if size:
                self._put(data[:size])
            data = data[size:]
            self._line.sent()

    async def room(self) -> None:
        await trio.lowlevel.checkpoint()
        while self._size >= CAPACITY and not (self.ended or self.refused or self._line.is_cut):
            await self.changed.park()

    async def receive(self, most: int | None) -> bytes:
        await trio.lowlevel.checkpoint()
        while True:
            if self.refused:
                raise trio.ClosedResourceError
            arrives = math.inf
            if self._flying and not self._line.stalls:
                arrives = self._flying[0][0]
                if arrives <= trio.current_time():
                    return self._take(most)
            elif not self._flying and (self.ended or self._line.is_cut):
                if self.breaks_off and not self.ended:
                    raise trio.BrokenResourceError("the line is cut")
                return b""
            with trio.move_on_at(arrives):
                await self.changed.park()

    def drop(self) -> None:
        """Nobody is going to read what is on its way."""
        self._flying.clear()
        self._size = 0

    def _put(self, data: bytes) -> None:
        delay = self._line.delay
        arrives = trio.current_time() + (0.0 if delay is None else self._line.random.uniform(*delay))
        if self._flying:
            arrives = max(arrives, self._flying[-1][0])
        self._flying.append((arrives, data))
        self._size += len(data)
        self.changed.unpark_all()

    def _take(self, most: int | None) -> bytes:
        """Some of what has arrived: often all of what was sent at once, and sometimes a part of it."""
        arrives, data = self._flying.popleft()
        size = len(data) if self._line.random.random() < 0.8 else self._line.random.randint(1, len(data))
        size = min(size, most or size)
        if size < len(data):
            self._flying.appendleft((arrives, data[size:]))
        self._size -= size
        self.changed.unpark_all()
        return data[:size]


class End(trio.abc.HalfCloseableStream):
    """One end of a line."""

    def __init__(self, line: Line, out: _Way, in_: _Way) -> None:
        self._line = line
        self._out = out
        self._in = in_

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._out.send(bytes(data))

    async def wait_send_all_might_not_block(self) -> None:
        await self._out.room()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return await self._in.receive(max_bytes)

    async def send_eof(self) -> None:
        self._out.ended = True
        self._line.closed()
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        if not self._in.refused:
            self._out.ended = self._in.refused = True
            self._in.drop()
            self._line.closed()
        await trio.lowlevel.checkpoint()
