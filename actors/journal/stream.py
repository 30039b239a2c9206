"""The stream: one ring of the latest events, so many and so many bytes, and a cursor per subscriber.

The journal publishes here after each commit. A subscriber has no queue of its own, only the number of the
last event it has taken, so one that never reads costs nothing and holds up nobody; when the ring has moved
on past its cursor, it is told so and starts again from a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import trio

from ...protocol.codec import Codec
from ...protocol.events import Event

RING_SIZE = 8192
RING_BYTES = 1 << 26
"""As JSON has the events. The encodings that are kept for subscribers, one per codec, come on top."""


class Published(msgspec.Struct, gc=False):
    """An event in the ring, with its encodings as far as anyone has asked for them, by the codec's name.
    `start` counts the bytes of all events before it."""

    event: Event
    start: int
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

    def __init__(self, size: int = RING_SIZE, *, most_bytes: int = RING_BYTES) -> None:
        self.last_seq = 0
        self._first_seq = 1  # of the events that are still here
        self._size = size
        self._most_bytes = most_bytes
        self._published_bytes = 0
        self._ring: list[Published | None] = [None] * size
        self._measure = msgspec.json.Encoder()
        self._measured = bytearray()
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
            self._measure.encode_into(event, self._measured)
            self._ring[event.seq % self._size] = Published(event, self._published_bytes)
            self._published_bytes += len(self._measured)
        self.last_seq += len(events)
        self._let_go()
        self._tell()

    def holds_well(self, seq: int) -> bool:
        """Whether what follows event `seq` is all here, and will be for about as long again."""
        if seq >= self.last_seq:
            return seq == self.last_seq
        following = self._ring[(seq + 1) % self._size]
        if seq + 1 < self._first_seq or following is None or self.last_seq - seq > self._size // 2:
            return False
        return self._published_bytes - following.start <= self._most_bytes // 2

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

    def _let_go(self) -> None:
        """Keep no more than there is room for, though always the last event."""
        self._first_seq = max(self._first_seq, self.last_seq - self._size + 1)
        while self._first_seq < self.last_seq:
            first = self._ring[self._first_seq % self._size]
            if first is not None and self._published_bytes - first.start <= self._most_bytes:
                break
            self._ring[self._first_seq % self._size] = None
            self._first_seq += 1

    def _tell(self) -> None:
        self._news.unpark_all()
        for hear in self._listeners:
            hear()

    def cursor(self, after: int) -> Cursor:
        """A cursor behind event `after`."""
        return Cursor(self, after)

    def between(self, after: int, most: int) -> list[Published]:
        """Up to `most` events that follow `after`, without waiting."""
        if after > self.last_seq or after + 1 < self._first_seq:
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
