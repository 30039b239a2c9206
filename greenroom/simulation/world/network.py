"""Connections between simulated machines: streams that delay, split, stall and lose data.

A line is one connection. It carries bytes in both directions, in order, as TCP does: a sender that fills the
buffer waits until the other end reads. If the line is cut, the bytes in flight arrive up to a random byte,
which can be in the middle of a message. Each line has its own source of random numbers.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from random import Random

import trio

CAPACITY = 1 << 15
"""The maximum number of bytes in flight in one direction."""


class Line:
    """A connection; `near` and `far` are its ends. `delay` is the minimum and the maximum of the seconds that
    data takes. `closing` is called when an end is closed and the line has had no fault."""

    def __init__(
        self, random: Random, delay: tuple[float, float] | None, closing: Callable[[], None]
    ) -> None:
        self.delay = delay
        self.stalls = False
        self.is_cut = False
        self.faultless = True
        """Whether it has had no fault except delays."""
        self.random = random
        self._closing = closing
        self._fuse = math.inf
        there, back = _Direction(self), _Direction(self)
        there.opposite, back.opposite = back, there
        self._directions = there, back
        self.near, self.far = End(self, there, back), End(self, back, there)

    @property
    def quiet(self) -> bool:
        """Whether all sent data has been read."""
        return not (self.stalls or self.is_cut) and all(one.empty for one in self._directions)

    @property
    def over(self) -> bool:
        """Whether both ends were closed, or it was cut."""
        return self.is_cut or all(one.ended for one in self._directions)

    def stall(self) -> None:
        """Stop delivering data, without an error at either end."""
        self.stalls = True
        self.faultless = False

    def go_on(self) -> None:
        """Deliver data again after a stall."""
        self.stalls = False
        self._wake()

    def block(self, *, there: bool, back: bool) -> None:
        """Deliver nothing from the near end to the far one (`there`), or `back`: neither data nor that an end
        was closed. What was sent arrives when the direction is free again, as TCP repeats it."""
        for direction, blocked in zip(self._directions, (there, back), strict=True):
            direction.blocked = blocked
        self._wake()

    def cut(self, after: int | None = None) -> None:
        """Break the line: now, so that only a part of the data in flight arrives, or `after` that many more
        bytes were sent."""
        self.faultless = False
        if after is None:
            for one in self._directions:
                one.lose_a_part()
            self._break()
        else:
            self._fuse = after

    def passed(self, size: int) -> int:
        """How many of the next `size` bytes pass before the line breaks."""
        passing = int(min(size, self._fuse))
        self._fuse -= passing
        return passing

    def sent(self) -> None:
        """Break the line if the last bytes before a planned cut were sent."""
        if self._fuse <= 0:
            self._break()

    def closed(self) -> None:
        """Report that one of the ends was closed."""
        if self.faultless:
            self.faultless = False
            self._closing()
        self._wake()

    def _break(self) -> None:
        self.is_cut = True
        self.stalls = False
        for one in self._directions:
            one.breaks_off = self.random.random() < 0.5
        self._wake()

    def _wake(self) -> None:
        for one in self._directions:
            one.changed.unpark_all()


class _Direction:
    """One direction of a line."""

    def __init__(self, line: Line) -> None:
        self.changed = trio.lowlevel.ParkingLot()
        self.ended = False  # the sender has closed its end
        self.refused = False  # the receiver has closed its end
        self.breaks_off = False  # whether the receiver of a cut line gets an error, instead of the end
        self.blocked = False
        self.opposite: _Direction
        self._line = line
        self._flying: deque[tuple[float, bytes]] = deque()  # the data in flight, with its time of arrival
        self._size = 0

    @property
    def empty(self) -> bool:
        return not self._flying

    def lose_a_part(self) -> None:
        """Drop a random part of the data in flight, from its end."""
        data = b"".join(data for _, data in self._flying)
        data = data[: self._line.random.randint(0, len(data))]
        self._flying = deque([(trio.current_time(), data)] if data else [])
        self._size = len(data)

    async def send(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        while data:
            if self.ended:
                raise trio.ClosedResourceError
            if (self.refused and not self.opposite.blocked) or self._line.is_cut:
                raise trio.BrokenResourceError(
                    "connection lost" if self._line.is_cut else "the peer has closed the connection"
                )
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
            if self._flying and not (self._line.stalls or self.blocked):
                arrives = self._flying[0][0]
                if arrives <= trio.current_time():
                    return self._take(most)
            elif not (self._flying or self.blocked) and (self.ended or self._line.is_cut):
                if self.breaks_off and not self.ended:
                    raise trio.BrokenResourceError("connection lost")
                return b""
            with trio.move_on_at(arrives):
                await self.changed.park()

    def drop(self) -> None:
        """Drop all data in flight: the receiver has closed its end."""
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
        """Take arrived data: in most cases all that one call has sent, otherwise a part of it."""
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

    def __init__(self, line: Line, out: _Direction, in_: _Direction) -> None:
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
        self.shut()
        await trio.lowlevel.checkpoint()

    def shut(self) -> None:
        """Close this end, as the operating system does when the process dies."""
        if not self._in.refused:
            self._out.ended = self._in.refused = True
            self._in.drop()
            self._line.closed()
