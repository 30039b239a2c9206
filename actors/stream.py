"""The stream: one ring of the latest events, and a cursor per subscriber.

The journal publishes here after each commit. A subscriber has no queue of its own, only the number of the
last event it has taken, so one that never reads costs nothing and holds up nobody; when the ring has moved
on past its cursor, it is told so and starts again from a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import trio

from ..protocol.codec import Codec
from ..protocol.events import Event

RING_SIZE = 8192


class Published(msgspec.Struct, gc=False):
    """An event in the ring, with its encodings as far as anyone has asked for them, by the codec's name."""

    event: Event
    encodings: dict[str, bytes] | None = None

    def encoded(self, codec: Codec) -> bytes:
        """The event in this codec; encoded once, however many subscribers there are."""
        if self.encodings is None:
            self.encodings = {}
        encoding = self.encodings.get(codec.name)
        if encoding is None:
            encoding = self.encodings[codec.name] = codec.encode(self.event)
        return encoding


class FellBehind(Exception):
    """The cursor is no longer in the ring: take a snapshot and go on from there."""


class Stream:
    """The ring. Seqs have no gap, so an event's place in it follows from its number."""

    def __init__(self, size: int = RING_SIZE) -> None:
        self.last_seq = 0
        self._first_seq = 1  # of the events ever published here
        self._size = size
        self._ring: list[Published | None] = [None] * size
        self._news = trio.lowlevel.ParkingLot()
        self._listeners: dict[Callable[[], None], None] = {}
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether no more events come."""
        return self._closed

    def begin(self, last_seq: int) -> None:
        """Numbering goes on after this."""
        self.last_seq = last_seq
        self._first_seq = last_seq + 1

    def publish(self, events: Sequence[Event]) -> None:
        """Append events, which follow `last_seq`, and wake every subscriber that waits."""
        for event in events:
            self._ring[event.seq % self._size] = Published(event)
        self.last_seq += len(events)
        self._tell()

    def close(self) -> None:
        """No more events come: subscribers end when they have taken what there is."""
        self._closed = True
        self._tell()

    def listen(self, hear: Callable[[], None]) -> None:
        """Call `hear` at news, in the turn of the journal: it must be quick, and must not raise.

        For those who wait for other things as well; whoever waits for events alone has a cursor.
        """
        self._listeners[hear] = None

    def unlisten(self, hear: Callable[[], None]) -> None:
        """Call it no longer."""
        del self._listeners[hear]

    def _tell(self) -> None:
        self._news.unpark_all()
        for hear in self._listeners:
            hear()

    def cursor(self, after: int) -> Cursor:
        """A cursor behind event `after`."""
        return Cursor(self, after)

    def between(self, after: int, most: int) -> list[Published]:
        """Up to `most` events that follow `after`, without waiting."""
        if after > self.last_seq or after + 1 < max(self._first_seq, self.last_seq - self._size + 1):
            raise FellBehind(f"event {after + 1} is not in the ring any more")
        end = min(self.last_seq, after + most)
        return [p for seq in range(after + 1, end + 1) if (p := self._ring[seq % self._size]) is not None]

    async def wait_beyond(self, seq: int) -> bool:
        """Wait until there are events after `seq`; false when the stream has been closed instead."""
        while self.last_seq <= seq and not self._closed:
            await self._news.park()
        return self.last_seq > seq


class Cursor:
    """How far one subscriber has come."""

    __slots__ = ("_stream", "seq")

    def __init__(self, stream: Stream, after: int) -> None:
        self._stream = stream
        self.seq = after

    async def take(self, most: int = 256) -> list[Published]:
        """The next events, at least one, or none when the stream has ended. Raises `FellBehind`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        events = self._stream.between(self.seq, most)
        if not events:
            if not await self._stream.wait_beyond(self.seq):
                return []
            events = self._stream.between(self.seq, most)
        self.seq += len(events)
        return events
