"""What subscribers are sent, prepared once for all who want the same.

A feed is one form (a codec's WebSocket frames, or server-sent events) of one filter's events. It has no
subscribers' queues, only the stream's ring: each subscriber remembers how far it has come and asks for what
is next, and those who stand at the same place get the same bytes. So under load many events share a frame
and many subscribers a frame's bytes, while a single event at rest leaves at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Protocol

import msgspec
import trio

from ...actors.channel import Channel
from ...actors.journal.stream import Published, Stream
from ...protocol.codec import JSON, Codec
from ...protocol.events import Event, Filter
from ..websocket.frames import message_frame

_MOST_BYTES = 1 << 16
_REMEMBERED = 8
_REMEMBERED_BYTES = 1 << 25
"""Of all feeds together."""
_QUIET = 1024
_AT_ONCE = 200


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """What comes next: bytes (empty where nothing passed the filter), how far the events have been read, and
    the `to` that the client has been told."""

    data: bytes
    read: int
    told: int


class Form(Protocol):
    """How what subscribers are sent looks."""

    @property
    def codec(self) -> Codec:
        """How events and snapshots are encoded in it."""

    def batch(self, told: int, to: int, events: Sequence[Published]) -> bytes:
        """A batch; `told` is the `to` of the one before."""

    def resync(self, seq: int, payload: bytes) -> bytes:
        """A message `resync`, whole or in part, that has been encoded."""


class _Events(msgspec.Struct, frozen=True, tag_field="type", tag="events", rename={"from_": "from"}):
    """`protocol.commands.Events` with the events already encoded."""

    from_: int
    to: int
    events: list[msgspec.Raw]


class Frames:
    """A WebSocket frame per batch, in one codec."""

    def __init__(self, codec: Codec) -> None:
        self.codec = codec

    def batch(self, told: int, to: int, events: Sequence[Published]) -> bytes:
        codec = self.codec
        raw = [msgspec.Raw(event.encoded(codec)) for event in events]
        return message_frame(codec.encode(_Events(told, to, raw)), binary=codec.binary)

    def resync(self, seq: int, payload: bytes) -> bytes:
        return message_frame(payload, binary=self.codec.binary)


class ServerSent:
    """Each event as `text/event-stream` has it."""

    codec = JSON

    def __init__(self, epoch: str) -> None:
        self._epoch = epoch.encode()

    def batch(self, told: int, to: int, events: Sequence[Published]) -> bytes:
        if not events:
            return b"id: %b:%d\n\n" % (self._epoch, to)  # for the client to resume from; no event for it
        return b"".join(self._event(event) for event in events)

    def resync(self, seq: int, payload: bytes) -> bytes:
        return b"id: %b:%d\nevent: resync\ndata: %b\n\n" % (self._epoch, seq, payload)

    def _event(self, event: Published) -> bytes:
        kind = event.event.type.encode()
        data = event.encoded(JSON)
        return b"id: %b:%d\nevent: %b\ndata: %b\n\n" % (self._epoch, event.event.seq, kind, data)


class Follower(Protocol):
    """Someone who follows a feed."""

    def news(self) -> None:
        """There may be more to take. Must not wait, and must not raise."""


class _Memory:
    """The chunks that are kept for the followers who come to them next: of all feeds, the latest first."""

    def __init__(self, most_bytes: int) -> None:
        self.size = 0
        self._most_bytes = most_bytes
        self._chunks: OrderedDict[tuple[Feed, int, int], int] = OrderedDict()

    def keep(self, feed: Feed, told: int, read: int, size: int) -> None:
        """A feed keeps a chunk; the oldest ones that there is no more room for are dropped."""
        self._chunks[feed, told, read] = size
        self.size += size
        while self.size > self._most_bytes and len(self._chunks) > 1:
            (oldest, *place), _ = next(iter(self._chunks.items()))
            oldest.drop(*place)

    def drop(self, feed: Feed, told: int, read: int) -> None:
        """It keeps it no longer."""
        self.size -= self._chunks.pop((feed, told, read))


class Feed:
    """See the module's text."""

    def __init__(
        self, stream: Stream, form: Form, filter: Filter | None, most_events: int, memory: _Memory
    ) -> None:
        self.key = (form, filter, most_events)
        self.followers: dict[Follower, None] = {}
        self._stream = stream
        self._form = form
        self._passes = None if filter is None else predicate(filter)
        self._most = most_events
        self._memory = memory
        self._chunks: dict[tuple[int, int], Chunk] = {}

    def after(self, told: int, read: int) -> Chunk | None:
        """What comes after the event `read`, or `None` if that was the last. Raises `FellBehind`."""
        chunk = self._chunks.get((told, read))
        if chunk is None:
            if read == self._stream.last_seq:
                return None
            chunk = self._prepare(told, read)
            if len(self._chunks) >= _REMEMBERED:
                self.drop(*next(iter(self._chunks)))
            self._chunks[told, read] = chunk
            self._memory.keep(self, told, read, len(chunk.data))
        return chunk

    def drop(self, told: int, read: int) -> None:
        """Keep a chunk no longer."""
        del self._chunks[told, read]
        self._memory.drop(self, told, read)

    def end(self) -> None:
        """Nobody follows it any more."""
        for place in list(self._chunks):
            self.drop(*place)

    def rest(self, told: int, read: int) -> bytes:
        """A batch without events that tells how far they have been read."""
        return self._form.batch(told, read, ())

    def _prepare(self, told: int, read: int) -> Chunk:
        come = self._stream.between(read, max(256, self._most))
        form, passes, most = self._form, self._passes, self._most
        codec = form.codec
        data: list[bytes] = []
        batch: list[Published] = []
        size = total = 0
        for published in come:
            if passes is None or passes(published.event):
                piece = len(published.encoded(codec))
                if batch and (len(batch) >= most or size + piece > _MOST_BYTES):
                    data.append(form.batch(told, read, batch))
                    told, batch, total, size = read, [], total + size, 0
                    if total + piece > _MOST_BYTES:
                        break
                batch.append(published)
                size += piece
            read += 1
        if batch or read - told >= _QUIET:
            data.append(form.batch(told, read, batch))
            told = read
        return Chunk(b"".join(data), read, told)


class Feeds:
    """The feeds that somebody wants, each once, and the task that tells their followers of news."""

    def __init__(self, stream: Stream, most_events: Callable[[], int]) -> None:
        self._stream = stream
        self._most_events = most_events
        self._feeds: dict[tuple[Form, Filter | None, int], Feed] = {}
        self._memory = _Memory(_REMEMBERED_BYTES)
        self._woken = Channel()

    def join(self, form: Form, filter: Filter | None, follower: Follower) -> Feed:
        """The feed for a form and a filter; the follower hears of news from now on."""
        most = self._most_events()
        feed = self._feeds.get((form, filter, most))
        if feed is None:
            feed = Feed(self._stream, form, filter, most, self._memory)
            self._feeds[feed.key] = feed
        feed.followers[follower] = None
        return feed

    def leave(self, feed: Feed, follower: Follower) -> None:
        """Hear of it no longer."""
        del feed.followers[follower]
        if not feed.followers:
            del self._feeds[feed.key]
            feed.end()

    async def run(self) -> None:
        """Tell followers of news until cancelled."""
        self._stream.listen(self._woken.wake)
        try:
            while True:
                told = 0
                for feed in list(self._feeds.values()):
                    for follower in list(feed.followers):
                        if follower in feed.followers:  # it may have left in the pause
                            follower.news()
                        told += 1
                        if told % _AT_ONCE == 0:
                            await trio.lowlevel.checkpoint()
                await self._woken.receive_all()
        finally:
            self._stream.unlisten(self._woken.wake)


def predicate(filter: Filter) -> Callable[[Event], bool]:
    """`filter.passes`, made quick: it is asked for every event by every filter."""
    wanted = {
        "handle": filter.handles,
        "lane": filter.lanes,
        "run": filter.runs,
    }
    given = [(name, names) for name, names in wanted.items() if names is not None]
    if type(filter) is not Filter or filter.types is not None or len(given) != 1:
        return filter.passes
    [(name, names)] = given
    get = attrgetter(name)

    def passes(event: Event) -> bool:
        try:
            return get(event) in names
        except AttributeError:
            return True  # it has no such field

    return passes
