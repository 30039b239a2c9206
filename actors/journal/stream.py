"""The stream: a ring of the latest events, limited in number and bytes, and one cursor per subscriber.

The journal publishes here after each commit. A subscriber has no queue, only the number of the last event
that it has taken, so a slow subscriber uses no memory and delays no one. When events after its cursor have
left the ring, it gets `FellBehind` and starts again from a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import trio

from ...protocol.codec import Codec
from ...protocol.events import Event

RING_SIZE = 8192
RING_BYTES = 1 << 26
"""The size of the events as JSON. The encodings kept for subscribers, one per codec, are not included."""


class Published(msgspec.Struct, gc=False):
    """An event in the ring, with the encodings requested so far, by the codec's name.

    `start` is the number of bytes of all events before it.
    """

    event: Event
    start: int
    encodings: dict[str, bytes] | None = None

    def encoded(self, codec: Codec) -> bytes:
        """The event in this codec; encoded once for all subscribers."""
        if self.encodings is None:
            self.encodings = {}
        encoding = self.encodings.get(codec.name)
        if encoding is None:
            encoding = self.encodings[codec.name] = codec.encode(self.event)
        return encoding


class FellBehind(Exception):
    """The events after the cursor are no longer in the ring: continue from a new snapshot."""


class Stream:
    """The ring. Seqs have no gaps, so an event's position follows from its seq."""

    def __init__(self, size: int = RING_SIZE, *, most_bytes: int = RING_BYTES) -> None:
        self.last_seq = 0
        self._first_seq = 1  # of the events in the ring
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
        """Whether the stream has ended."""
        return self._closed

    def begin(self, last_seq: int) -> None:
        """Continue the numbering after this seq."""
        self.last_seq = last_seq
        self._first_seq = last_seq + 1

    def continue_at(self, last_seq: int, missed: Sequence[Event]) -> None:
        """Continue at this seq, after another node of a cluster has published the events up to it. `missed`
        are those of them that this stream can still publish. If others are missing, the ring is emptied, and
        all subscribers continue from a snapshot, except those at `last_seq`; also if `last_seq` is lower than
        before."""
        follows = [event.seq for event in missed] == list(range(self.last_seq + 1, last_seq + 1))
        if follows and last_seq >= self.last_seq:
            self.publish(missed)
        else:
            self._ring = [None] * self._size
            self.begin(last_seq)
            self._notify()

    def publish(self, events: Sequence[Event]) -> None:
        """Append the events that follow `last_seq`, and wake all waiting subscribers."""
        for event in events:
            self._measure.encode_into(event, self._measured)
            self._ring[event.seq % self._size] = Published(event, self._published_bytes)
            self._published_bytes += len(self._measured)
        self.last_seq += len(events)
        self._trim()
        self._notify()

    def holds_well(self, seq: int) -> bool:
        """Whether all events after `seq` are in the newer half of the ring, so that they stay for a while."""
        if seq >= self.last_seq:
            return seq == self.last_seq
        following = self._ring[(seq + 1) % self._size]
        if seq + 1 < self._first_seq or following is None or self.last_seq - seq > self._size // 2:
            return False
        return self._published_bytes - following.start <= self._most_bytes // 2

    def close(self) -> None:
        """End the stream: subscribers end when they have taken the remaining events."""
        self._closed = True
        self._notify()

    def listen(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each publish, in the journal's turn: it must be fast and must not raise.

        For subscribers that also wait for other things; others use a cursor.
        """
        self._listeners[callback] = None

    def unlisten(self, callback: Callable[[], None]) -> None:
        """Remove a listener."""
        del self._listeners[callback]

    def _trim(self) -> None:
        """Remove the oldest events beyond the limits, but never the last event."""
        self._first_seq = max(self._first_seq, self.last_seq - self._size + 1)
        while self._first_seq < self.last_seq:
            first = self._ring[self._first_seq % self._size]
            if first is not None and self._published_bytes - first.start <= self._most_bytes:
                break
            self._ring[self._first_seq % self._size] = None
            self._first_seq += 1

    def _notify(self) -> None:
        self._news.unpark_all()
        for callback in self._listeners:
            callback()

    def cursor(self, after: int) -> Cursor:
        """A cursor positioned after event `after`."""
        return Cursor(self, after)

    def between(self, after: int, most: int) -> list[Published]:
        """At most `most` events after `after`, without waiting. Raises `FellBehind`."""
        if after > self.last_seq or after + 1 < self._first_seq:
            raise FellBehind(f"event {after + 1} is no longer in the ring")
        end = min(self.last_seq, after + most)
        return [p for seq in range(after + 1, end + 1) if (p := self._ring[seq % self._size]) is not None]

    async def wait_beyond(self, seq: int) -> bool:
        """Wait until there are events after `seq`; returns false if the stream was closed instead."""
        while self.last_seq <= seq and not self._closed:
            await self._news.park()
        return self.last_seq > seq


class Cursor:
    """The position of one subscriber in the stream."""

    __slots__ = ("_stream", "seq")

    def __init__(self, stream: Stream, after: int) -> None:
        self._stream = stream
        self.seq = after

    async def take(self, most: int = 256) -> list[Published]:
        """Wait for the next events; returns none only when the stream has ended. Raises `FellBehind`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not (events := self._stream.between(self.seq, most)):  # again if another task took them
            if not await self._stream.wait_beyond(self.seq):
                return []
        self.seq += len(events)
        return events
